#include "memserver/ends_by_signals.h"

#include <pthread.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <system_error>

#include "common/limit_of_threads.h"
#include "common/own_thread.h"
#include "memserver/ofi_endpoint.h"

namespace ramspan {
namespace {

[[noreturn]] void EndAtOnce(int number) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  _exit(128 + number);  // not reached: the signal has its default action
}

}  // namespace

EndsBySignals::EndsBySignals() {
  struct sigaction before {};
  const bool nohup = sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
  sigemptyset(&signals_);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    if (number == SIGHUP && nohup) continue;
    sigaddset(&signals_, number);
    struct sigaction action {};  // libfabric's libraries may have set others before main began
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  // They ask programs for reports, and are sent to all of a user's processes by name or by group; `ramspan ctl list` asks a server.
  for (const int number : {SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
}

Result<EndsBySignals*> EndsBySignals::Begin() {
  static EndsBySignals* const all = new EndsBySignals;  // the thread uses it until the process is gone
  try {
    StartOwnThread([] { all->Watch(); }).detach();
  } catch (const std::system_error& error) {
    return ResourceExhausted(std::string("no thread for signals: ") + error.what() + "; " + LimitOfThreads());
  }
  return all;
}

void EndsBySignals::Tell(OfiEndpoint* endpoint) {
  MutexLock lock(mutex_);
  endpoint_ = endpoint;
  if (endpoint_ != nullptr && asked_) endpoint_->End();
}

void EndsBySignals::Watch() {
  using std::chrono::steady_clock;
  std::optional<steady_clock::time_point> first;
  for (int number = 0;;) {
    if (sigwait(&signals_, &number) != 0) continue;
    const auto now = steady_clock::now();
    if (first && number != SIGHUP && now - *first >= kSecondWish) EndAtOnce(number);
    if (first) continue;
    first = now;
    MutexLock lock(mutex_);
    asked_ = true;
    if (endpoint_ != nullptr) endpoint_->End();
  }
}

}  // namespace ramspan
