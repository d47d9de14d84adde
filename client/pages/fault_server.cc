#include "client/pages/fault_server.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "client/pages/page_scanner.h"
#include "common/errno_guard.h"
#include "common/limit_of_threads.h"
#include "common/log.h"
#include "common/own_thread.h"
#include "common/process_mark.h"
#include "common/public_call.h"
#include "common/topology.h"

namespace ramspan {

namespace {

// One thread waits while another one's pages come from swap.
constexpr int kServersMax = 4;
// A thread that has been served often faults again at once: to sleep and be woken costs 30 to 60 us.
constexpr auto kSpinForFaults = std::chrono::microseconds(30);
constexpr int kFaultWaitMs = 1000;
constexpr size_t kWaitingMax = 64;  // of one server; then it takes no more until one has been served

FaultServer* the_server = nullptr;  // where a signal tells of faults; set before the handler is there
// The program's own of that signal. Guarded by a lock that handlers take, too: with all signals blocked.
struct sigaction signal_before;
struct sigaction our_handler;  // constant from the start on
std::atomic<pid_t> signal_before_locked{0};  // by whom, as HolderOfThisProcess says; 0: by nobody
// A child of _Fork or clone, of which nobody is told, may have the lock of a thread that stayed in its parent.
pid_t HolderOfThisProcess() { return ProcessMark::IsOfParent() ? getpid() : -1; }

// Whose calls Ramspan does not stand before, for the mask is to be that.
struct OthersHandler {
  OthersHandler() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &mask_);
    const pid_t self = HolderOfThisProcess();
    for (pid_t holder = 0; !signal_before_locked.compare_exchange_weak(holder, self, std::memory_order_acquire, std::memory_order_relaxed);) {
      if (holder != self) continue;  // takes it, if it is still a parent's
      holder = 0;
      __builtin_ia32_pause();
    }
  }
  ~OthersHandler() {
    signal_before_locked.store(0, std::memory_order_release);
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  const detail::Inside inside_;
  sigset_t mask_;
};
thread_local struct sigaction t_at_fork;  // that of the program's, whole

// All that do not come of what the thread itself does: by those come pages.
sigset_t SignalsOfOthers() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigdelset(&signals, own);
  return signals;
}

// Of a handler of that signal of the program's that runs on this thread: where its stack begins, and whether the signal has been sent again meanwhile.
__thread uintptr_t t_handler_begins = 0;
__thread bool t_sent_again = false;

constexpr int64_t kFetchesCode = 16;  // of a page fault's error code (x86): no page that comes would help

[[noreturn]] void EndProcess(const char* why) {
  LogWarning("memory of the program's that is swapped by pages cannot be brought back, and a load or store cannot fail, so the process ends: %s", why);
  std::abort();
}

}  // namespace

Status FaultServer::Start() {
  const FaultMode mode = space_->userfault().mode();
  Status status = mode == FaultMode::kThread ? StartThreads() : TakeSignal();
  if (status.ok() && mode != FaultMode::kProtect) StartHolder();
  return status;
}

void FaultServer::StartHolder() {
  try {
    StartOwnThread([this] {
      const detail::Inside inside;
      space_->userfault().HoldOpen();
    }).detach();
  } catch (const std::system_error&) {  // a program that closes what it has not opened is found out late
  }
}

Status FaultServer::StartThreads() {
  const int servers = std::clamp(UsableCores(), 2, kServersMax);
  try {
    for (int i = 0; i < servers; ++i) StartOwnThread([this] { Run(); }).detach();
  } catch (const std::system_error& e) {
    return InvalidArgument(std::string("no thread can be started for bringing pages: ") + e.what() + "; " + LimitOfThreads());
  }
  return Status();
}

// Who must wait for memory is put aside: the thread that holds it may wait for a page, too.
void FaultServer::Run() {
  const detail::Inside inside;
  Waiting waiting[kWaitingMax];
  size_t count = 0;
  auto served = std::chrono::steady_clock::time_point(), looked = served;
  for (;;) {
    auto now = std::chrono::steady_clock::now();
    const bool spins = now - served < kSpinForFaults || count > 0;
    if (count < kWaitingMax && space_->userfault().Next(&waiting[count].fault, spins ? 0 : kFaultWaitMs)) {
      served = std::chrono::steady_clock::now();
      waiting[count].since = served;
      waiting[count].told = false;
      if (!Serve(&waiting[count])) ++count;
    } else if (count > 0) {
      std::this_thread::sleep_for(PageSpace::kPause);
    }
    now = std::chrono::steady_clock::now();
    if (count == 0 || now - looked < PageSpace::kPause) continue;
    looked = now;
    for (size_t i = 0; i < count;) {
      if (Serve(&waiting[i])) {
        waiting[i] = waiting[--count];
      } else {
        ++i;
      }
    }
  }
}

// False: there is no memory for it yet.
bool FaultServer::Serve(Waiting* one) {
  const void* const address = one->fault.address;
  if (!space_->Owns(address)) {
    if (space_->OwnsFrame(address)) space_->userfault().FillHole(address);
    return true;
  }
  PageScanner::ServeThread(NumberOf(one->fault.thread));
  const Status status = space_->TryBring(address);
  if (status.ok()) {
    // The kernel has, but not where it moved a page untold (Userfault::Move), or took it away for a moment and put it back, because a device held it. Takes a hundredth of a fault.
    space_->userfault().Wake(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) & ~(kPageBytes - 1)), kPageBytes);
    return true;
  }
  if (!PageSpace::PassesByItself(status) || !space_->MayWaitOn(status, one->since, &one->told)) EndProcess(status.c_str());
  return false;
}

uint32_t FaultServer::NumberOf(uint32_t thread) {
  for (uint32_t looked = 0, at = thread; looked < kThreads; ++looked, ++at) {
    std::atomic<uint32_t>& known = known_[at % kThreads];
    uint32_t other = known.load(std::memory_order_relaxed);
    if (other == 0 && known.compare_exchange_strong(other, thread, std::memory_order_relaxed)) return first_thread_ + at % kThreads;
    if (other == thread) return first_thread_ + at % kThreads;
  }
  return first_thread_ + thread % kThreads;
}

Status FaultServer::TakeSignal() {
  the_server = this;
  struct sigaction& action = our_handler;
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  action.sa_mask = SignalsOfOthers();  // the program's handlers run behind it, and may touch pages themselves
  // libc's own signal of pthread_cancel, which its functions leave out: a thread that may be cancelled at any instruction is not within the handler.
  constexpr int kCancel = 32;
  reinterpret_cast<unsigned char*>(&action.sa_mask)[(kCancel - 1) / 8] |= 1U << (kCancel - 1) % 8;
  if (sigaction(space_->userfault().signal(), &action, &signal_before) != 0) return Unavailable(std::string("no handler of SIGBUS or SIGSEGV: ") + strerror(errno));
  const OthersHandler locked;
  RestartAsOthers();
  return Status();
}

// Whether a call goes on behind such a signal that somebody sends is for the program's handler to say. REQUIRES: OthersHandler.
void FaultServer::RestartAsOthers() {
  struct sigaction ours = our_handler;
  ours.sa_flags |= signal_before.sa_flags & static_cast<int>(SA_RESTART);
  sigaction(the_server->space_->userfault().signal(), &ours, nullptr);
}

void FaultServer::ExchangeHandlerOfOthers(const struct sigaction* action, struct sigaction* before) {
  const OthersHandler locked;
  const struct sigaction now = signal_before;
  if (action != nullptr) {
    signal_before = *action;
    RestartAsOthers();
  }
  if (before != nullptr) *before = now;
}

// Not locked during the fork: handlers of forks that the program has may need it.
void FaultServer::BeforeFork() { ExchangeHandlerOfOthers(nullptr, &t_at_fork); }

void FaultServer::InForkedChild() {
  signal_before = t_at_fork;
  signal_before_locked.store(0, std::memory_order_release);  // another thread had it, which is not here
}

// Another thread may have made the page so between the fault and now, and what the program does there may be allowed: it tries again some times.
bool FaultServer::IsRefused(const void* address) {
  constexpr int kTries = 3;
  static __thread const void* t_last = nullptr;
  static __thread int t_tries = 0;
  if (!the_server->space_->IsRefusedByProgram(address)) return t_last = nullptr, false;
  t_tries = std::exchange(t_last, address) == address ? t_tries + 1 : 0;
  if (t_tries < kTries) return false;
  t_last = nullptr;
  return true;
}

void FaultServer::OnSignal(int number, siginfo_t* info, void* context) {
  const bool fetches_code = (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kFetchesCode) != 0;
  const bool of_memory = info->si_code > 0 && !fetches_code && !ProcessMark::IsOfParent() && the_server->space_->Owns(info->si_addr) && !(number == SIGSEGV && IsRefused(info->si_addr));
  if (of_memory) {
    int cancel = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    {
      const ErrnoGuard guard;
      const detail::Inside inside;
      const Status status = the_server->space_->Bring(info->si_addr);
      if (!status.ok()) EndProcess(status.c_str());
    }
    pthread_setcancelstate(cancel, nullptr);  // may be the end of this thread
    return;
  }
  // Else it would be blocked as long as its handler runs. Who has left that by a jump runs no deeper in the stack.
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (info->si_code <= 0 && t_handler_begins != 0 && here < t_handler_begins) {
    t_sent_again = true;
    return;
  }
  // The program's own, or its end.
  struct sigaction own;
  {
    const OthersHandler locked;
    own = signal_before;
    if ((own.sa_flags & static_cast<int>(SA_RESETHAND)) != 0 && own.sa_handler != SIG_IGN) signal_before = {};
  }
  if (own.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if ((own.sa_flags & SA_SIGINFO) != 0 || (own.sa_handler != SIG_DFL && own.sa_handler != SIG_IGN)) {
    // As if it had come at once, but for that signal itself: it may touch pages.
    sigset_t mask = static_cast<ucontext_t*>(context)->uc_sigmask;
    sigorset(&mask, &mask, &own.sa_mask);
    sigdelset(&mask, number);
    t_handler_begins = here;
    {
      const detail::Inside inside;
      pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    }
    do {
      t_sent_again = false;
      t_handler_begins = here;
      (own.sa_flags & SA_SIGINFO) != 0 ? own.sa_sigaction(number, info, context) : own.sa_handler(number);
      t_handler_begins = 0;
    } while (t_sent_again);
    return;
  }
  const detail::Inside inside;  // past what keeps this handler for the program
  sigaction(number, &own, nullptr);  // the instruction is executed again, and faults again
  if (info->si_code <= 0) raise(number);
}

}  // namespace ramspan
