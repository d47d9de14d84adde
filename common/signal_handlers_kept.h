// SignalHandlersKept: what handlers of signals the program has when this begins, it has again when this ends. Some libraries take
// SIGINT, SIGTERM and others for themselves and make them an exit with status 1: psm2 and psm3 when libfabric looks at them, of
// use or not, and libinfinipath as soon as it is loaded. UCX makes SIGHUP a wish for debugging messages. Signals are the program's.
//
// Thread-safety: handlers that another thread sets meanwhile may be lost, so it is for short calls at the start.
#pragma once

#include <array>
#include <csignal>
#include <iterator>

#include <signal.h>

namespace ramspan {

class SignalHandlersKept {
 public:
  SignalHandlersKept() {
    for (size_t i = 0; i < handlers_.size(); ++i) sigaction(kSignals[i], nullptr, &handlers_[i]);
  }
  ~SignalHandlersKept() {
    for (size_t i = 0; i < handlers_.size(); ++i) sigaction(kSignals[i], &handlers_[i], nullptr);
  }
  SignalHandlersKept(const SignalHandlersKept&) = delete;
  SignalHandlersKept& operator=(const SignalHandlersKept&) = delete;

 private:
  static constexpr int kSignals[] = {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGCHLD};
  std::array<struct sigaction, std::size(kSignals)> handlers_{};
};

}  // namespace ramspan
