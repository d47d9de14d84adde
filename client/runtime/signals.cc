#include "client/runtime/signals.h"

#include <dlfcn.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <exception>

#include "client/front/throw_status.h"
#include "common/log.h"
#include "ramspan/errors.h"
#include "ramspan/runtime.h"

namespace ramspan {
namespace {

// A signal sets `wanted`, the mover calls `report`. Relaxed order for `wanted`: nothing is published with it.
struct SignalReport {
  const int signal;
  std::atomic<bool> wanted{false};
  std::atomic<void (*)()> report{nullptr};
  std::atomic<void (*)(int)> before{nullptr};  // MPI's handler, which hears of the signal as before
};
SignalReport reports[] = {{SIGUSR1}, {SIGUSR2}};
std::atomic<bool> started{false};  // before that the program may still install handlers of its own

extern "C" void OnReportSignal(int signal) {
  SignalReport& one = reports[signal == SIGUSR2];
  one.wanted.store(true, std::memory_order_relaxed);
  // Relaxed: a function of a library that is never unloaded.
  if (void (*const before)(int) = one.before.load(std::memory_order_relaxed)) before(signal);
}

// MPICH takes SIGUSR1 in MPI_Init: by it mpiexec tells that another process has failed.
bool IsOfMpi(void (*handler)(int)) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(handler), &info) == 0 || info.dli_fname == nullptr) return false;
  const char* const slash = std::strrchr(info.dli_fname, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : info.dli_fname, "libmpi", std::strlen("libmpi")) == 0;
}

// Only where the program has no handler of its own.
void InstallHandler(SignalReport& report) {
  struct sigaction old = {}, action = {};
  if (report.report.load() == nullptr || sigaction(report.signal, nullptr, &old) != 0) return;
  const bool has_one = (old.sa_flags & SA_SIGINFO) != 0 || old.sa_handler != SIG_DFL;
  if (has_one && ((old.sa_flags & SA_SIGINFO) != 0 || old.sa_handler == SIG_IGN || !IsOfMpi(old.sa_handler))) return;
  if (has_one) report.before.store(old.sa_handler, std::memory_order_relaxed);
  action.sa_handler = OnReportSignal;
  action.sa_flags = SA_RESTART;
  sigaction(report.signal, &action, nullptr);
}

}  // namespace

void StartSignalReports(void (*report)()) {
  void (*none)() = nullptr;
  reports[0].report.compare_exchange_strong(none, report);
  started = true;
  for (SignalReport& one : reports) InstallHandler(one);
}

void GiveSignalReports() {
  for (SignalReport& one : reports) {
    if (!one.wanted.exchange(false, std::memory_order_relaxed)) continue;
    void (*const report)() = one.report.load();
    if (report == nullptr) continue;  // the program does not want it any more
    try {
      report();
    } catch (const std::exception& e) {  // the mover has other work, too
      LogWarning("the report for signal %d failed: %s", one.signal, e.what());
    } catch (...) {
      LogWarning("the report for signal %d failed: an exception that is no std::exception", one.signal);
    }
  }
}

void SetSignalReport(int signal, void (*report)()) {
  if (signal != SIGUSR1 && signal != SIGUSR2) {
    ThrowStatus({StatusCode::kInvalidArgument, StaticText("SetSignalReport: only SIGUSR1 and SIGUSR2 can give reports")});
  }
  SignalReport& slot = reports[signal == SIGUSR2];
  slot.report.store(report);
  if (started) InstallHandler(slot);
}

}  // namespace ramspan
