// FaultServer: brings pages that the program touches: by threads of Ramspan's, which the kernel tells of each fault and keeps the program's
// thread waiting meanwhile (FaultMode::kThread), or in the thread itself by a handler of SIGBUS (kSignal) or SIGSEGV (kProtect). What cannot be brought (data is lost,
// swap is full) ends the process with the reason on standard error, for a load or store cannot fail.
// Thread-safety: Start once. Ownership: borrows the space; never destroyed.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "client/pages/page_space.h"
#include "common/status.h"

namespace ramspan {

class FaultServer {
 public:
  // `first_thread`: the program's threads are numbered for policies from there on.
  FaultServer(PageSpace* space, uint32_t first_thread) : space_(space), first_thread_(first_thread) {}
  Status Start();
  // Where a signal tells of faults, of that: what the program would have for those that are none of its pages. Null: leaves it, or does not ask. A signal handler may call it.
  static void ExchangeHandlerOfOthers(const struct sigaction* action, struct sigaction* before);
  // In the thread that forks: a child has what there was before, also where another thread is just changing it.
  static void BeforeFork();
  static void InForkedChild();

 private:
  static constexpr uint32_t kThreads = 64;  // of the program's that policies tell apart; others share numbers
  Status StartThreads();
  void StartHolder();
  Status TakeSignal();
  static void RestartAsOthers();
  static bool IsRefused(const void* address);
  static void OnSignal(int number, siginfo_t* info, void* context);
  // A fault that could not be served yet.
  struct Waiting {
    Userfault::Fault fault;
    std::chrono::steady_clock::time_point since;
    bool told = false;
  };
  void Run();
  bool Serve(Waiting* one);
  uint32_t NumberOf(uint32_t thread);

  PageSpace* const space_;
  const uint32_t first_thread_;
  std::atomic<uint32_t> known_[kThreads] = {};  // the threads' ids
};

}  // namespace ramspan
