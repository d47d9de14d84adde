#include "client/runtime/forked_pages.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "client/front/session.h"
#include "client/pages/fault_server.h"
#include "client/pages/fork_copy.h"
#include "client/pages/page_space.h"
#include "client/runtime/page_call.h"
#include "common/cancel_disabled.h"
#include "common/errno_guard.h"
#include "common/public_call.h"

namespace ramspan::forked_pages {
namespace {

// Also in a child, which has none of it.
std::atomic<PageSpace*> parents_space{nullptr};
std::atomic<char*> homes_begin{nullptr};
std::atomic<size_t> homes_bytes{0};  // stored last

// By the system call itself: libc's name may be the preloaded library's, which keeps such addresses free.
void MapInChild(void* begin, size_t bytes, int protection) { syscall(SYS_mmap, begin, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0); }

// The program's own of SIGSEGV, in a child whose handler is BringToChild: the child has one thread when it is set, and others change it with all signals blocked.
struct sigaction segv_of_program = {};
// Other threads of the child may have touched something just before it was there. An address at which there is nothing comes again and again.
constexpr int kFaultsWithCopy = 1000;
std::atomic<int> faults_with_copy{0};

void ExplainInChild(const char* why_not) {
  const CancelDisabled uncancelled;
  static constexpr char kText[] = "ramspan: a forked child uses memory of its parent that is swapped by pages, and has no copy of it: ";
  static constexpr char kRemedy[] =
      "\nramspan: let the child exec another program, or use threads; ramspan run --pages-above SIZE leaves smaller allocations to malloc, which children share\n";
  static_cast<void>(!write(STDERR_FILENO, kText, sizeof(kText) - 1));
  static_cast<void>(!write(STDERR_FILENO, why_not, strlen(why_not)));
  static_cast<void>(!write(STDERR_FILENO, kRemedy, sizeof(kRemedy) - 1));
}

// What the child touches of its parent's memory comes now, as a copy. All others are the program's.
void BringToChild(int number, siginfo_t* info, void* context) {
  struct sigaction own = segv_of_program;
  if (info->si_code > 0 && IsHome(info->si_addr)) {
    const bool had_all = ForkCopy::descriptor() < 0;
    if (ForkCopy::Ask(info->si_addr) && (!had_all || faults_with_copy.fetch_add(1) < kFaultsWithCopy)) return;
    if (const char* const why_not = ForkCopy::why_not()) {
      ExplainInChild(why_not);
      own = {};  // and ends: a handler of the program's would come back to it for ever
    }
  }
  if ((own.sa_flags & SA_SIGINFO) == 0 && own.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if ((own.sa_flags & SA_SIGINFO) != 0 || (own.sa_handler != SIG_DFL && own.sa_handler != SIG_IGN)) {
    if ((own.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) segv_of_program = {};
    {
      const detail::Inside inside;
      sigset_t mask = static_cast<ucontext_t*>(context)->uc_sigmask;
      sigorset(&mask, &mask, &own.sa_mask);
      sigdelset(&mask, SIGSEGV);  // it may use such memory
      pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    }
    (own.sa_flags & SA_SIGINFO) != 0 ? own.sa_sigaction(number, info, context) : own.sa_handler(number);
    return;
  }
  const detail::Inside inside;
  signal(number, SIG_DFL);  // the instruction is executed again
  if (info->si_code <= 0) raise(number);
}

// Of the forks that this thread is in, one in the other: whether the space counts them, which may have been made in the middle of one.
thread_local uint32_t t_counted = 0;

template <typename F>
void Run(const F& f) {
  const bool may_hold_locks = detail::t_inside_ramspan > 0;  // a handler of SIGABRT, where Ramspan ends the process
  const PageCall call;
  if (!may_hold_locks && call.space() != nullptr) call.Run(f);
}

void BeforeFork() {
  PageSpace* const space = Session::InForkedChild() ? nullptr : Space();
  t_counted = t_counted << 1 | (space != nullptr ? 1 : 0);
  if (space != nullptr) {
    const ErrnoGuard guard;
    space->CountForks(1);
    Run([](PageSpace& pages) { pages.ShowHidden(); });
  }
  ForkCopy::Prepare();
  FaultServer::BeforeFork();
}
void InParentAfterFork() {
  if ((t_counted & 1) != 0) {
    const ErrnoGuard guard;
    Space()->CountForks(-1);
    Run([](PageSpace& pages) { pages.HideShown(); });
  }
  t_counted >>= 1;
  ForkCopy::InParent();
}
void InForkedChild() {
  const CancelDisabled uncancelled;
  FaultServer::InForkedChild();
  // Nobody else's: what is mapped later would pass for memory that was the parent's.
  if (!ForkCopy::is_first_child()) return ForkCopy::InChild();
  if (!ForkCopy::is_of_unknown_child()) MapInChild(homes_begin.load(), homes_bytes.load(), PROT_NONE);
  Session::CloseInForkedChild();  // handlers of the program's may give such memory back before it is the runtime's turn
  struct sigaction action = {};
  action.sa_sigaction = BringToChild;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  const detail::Inside inside;
  if (sigaction(SIGSEGV, &action, &segv_of_program) != 0) return;
  struct sigaction own;
  FaultServer::ExchangeHandlerOfOthers(nullptr, &own);
  if (Space()->userfault().signal() == SIGSEGV) segv_of_program = own;
  if (Space()->userfault().signal() == SIGBUS) sigaction(SIGBUS, &own, nullptr);  // nothing comes by it here
  ForkCopy::InChild();
}

}  // namespace

void Start(PageSpace* space) {
  parents_space = space;  // first: others' threads may fork
  homes_begin.store(space->homes().begin, std::memory_order_relaxed);
  homes_bytes.store(space->homes().bytes, std::memory_order_release);
}

PageSpace* Space() { return parents_space; }

bool IsHome(const void* address) {
  const size_t bytes = homes_bytes.load(std::memory_order_acquire);
  return static_cast<size_t>(static_cast<const char*>(address) - homes_begin.load(std::memory_order_relaxed)) < bytes;
}

// Its copy of the parent's memory. Addresses stay Ramspan's.
void Drop(void* begin, size_t bytes) {
  if (bytes > 0) MapInChild(begin, bytes, PROT_NONE);
}

// Whole pages are others' then.
void Discard(char* begin, size_t bytes) {
  if (!ForkCopy::Ask(nullptr)) return;
  constexpr size_t kPage = 4096;
  char* const end = begin + bytes;
  char* const first = std::min(end, begin + -reinterpret_cast<uintptr_t>(begin) % kPage);
  char* const last = std::max(first, end - reinterpret_cast<uintptr_t>(end) % kPage);
  memset(begin, 0, static_cast<size_t>(first - begin));
  if (last > first) MapInChild(first, static_cast<size_t>(last - first), PROT_READ | PROT_WRITE);
  memset(last, 0, static_cast<size_t>(end - last));
}

void Free(void* begin) {
  if (ForkCopy::is_first_child()) return;  // no handler was told of it: what lies there may be others'
  const size_t bytes = Space()->BytesOf(begin), unit = Space()->unit_bytes();
  if (ForkCopy::why_not() == nullptr && ForkCopy::descriptor() < 0) Drop(begin, (bytes + unit - 1) / unit * unit);  // else there is no copy, or not yet
}

void ExchangeHandler(const struct sigaction* action, struct sigaction* before) {
  const detail::Inside inside;
  sigset_t all, mask;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &mask);
  const struct sigaction now = segv_of_program;
  if (action != nullptr) segv_of_program = *action;
  if (before != nullptr) *before = now;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void RegisterHandlers() {
  static std::atomic<bool> registered{false};
  if (!registered.exchange(true)) pthread_atfork(BeforeFork, InParentAfterFork, InForkedChild);
}

}  // namespace ramspan::forked_pages
