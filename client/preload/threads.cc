// libramspan-pages, fourth part: threads. Those that Ramspan starts are Ramspan's, and so are those that they start; all others get a stack for the handler that brings
// pages, where that is how they are brought.
// Thread-safety: as the call that it replaces.
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>

#include "client/preload/homes.h"
#include "client/preload/pinned_stack.h"

extern "C" {
void* __libc_malloc(size_t);
void __libc_free(void*);
}

namespace ramspan::preload {
namespace {

struct Beginning {
  void* (*run)(void*);
  void* argument;
  int inside;
};

// The handler of SIGBUS runs on a stack of Ramspan's beside the thread's own, whose pages it may be that are brought. It takes 13 KiB, and so do others'
// handlers then: a smaller one that the program sets is remembered only, and told to it when it asks. A handler of the program's that has none has what a thread's stack has:
// what it does not use is addresses only. Less where there are not as many (limits of them; no overcommitment). Below it is a page that nobody may use: what runs over ends there.
constexpr size_t kStackBytes = size_t{8} << 20, kSmallStackBytes = size_t{256} << 10, kLeastStack = size_t{64} << 10, kLeastOfSystem = 2048, kGuardBytes = 4096;
__thread __attribute__((tls_model("initial-exec"))) bool t_has_ours = false;
__thread __attribute__((tls_model("initial-exec"))) stack_t t_programs;  // where t_has_ours

pthread_key_t stack_key;  // its value: the stack, which ends with the thread

long SetStack(const stack_t* stack, stack_t* before) { return syscall(SYS_sigaltstack, stack, before); }

// What the key knows: a word above the stack, where a handler that uses all of it does not come.
struct Stack {
  size_t bytes;  // of the stack, which ends here
  char* begin() { return reinterpret_cast<char*>(this) - bytes; }
  size_t mapped() const { return kGuardBytes + bytes + kAboveBytes; }
  static constexpr size_t kAboveBytes = 64;
};
Stack* MapStack(size_t all) {
  const size_t bytes = all - kGuardBytes - Stack::kAboveBytes;
  const long mapped = syscall(SYS_mmap, nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == -1) return nullptr;
  syscall(SYS_munlock, mapped, all);                   // mlockall(MCL_FUTURE): all of it would be memory
  syscall(SYS_madvise, mapped, all, MADV_NOHUGEPAGE);  // two megabytes for each thread, beside the limit
  if (syscall(SYS_mprotect, mapped + static_cast<long>(kGuardBytes), all - kGuardBytes, PROT_READ | PROT_WRITE) != 0) return syscall(SYS_munmap, mapped, all), nullptr;
  auto* const stack = reinterpret_cast<Stack*>(mapped + static_cast<long>(kGuardBytes + bytes));
  stack->bytes = bytes;
  return stack;
}
void UnmapStack(Stack* stack) { syscall(SYS_munmap, stack->begin() - kGuardBytes, stack->mapped()); }

void EndStack(void* ours) {
  auto* const stack = static_cast<Stack*>(ours);
  stack_t now = {}, none = {};
  none.ss_flags = SS_DISABLE;
  if (SetStack(nullptr, &now) == 0 && now.ss_sp == stack->begin() && SetStack(&none, nullptr) != 0) return;  // in use
  t_has_ours = false;
  UnmapStack(stack);
}

// Not by a constructor: those of other libraries, which start threads, may come first.
pthread_once_t stack_key_once = PTHREAD_ONCE_INIT;
void MakeStackKey() { pthread_key_create(&stack_key, EndStack); }

bool IsLargeEnough(const stack_t& stack) { return (stack.ss_flags & SS_DISABLE) == 0 && stack.ss_size >= kLeastStack && !IsHome(stack.ss_sp); }

// False: there is no memory.
bool TakeOurs() {
  pthread_once(&stack_key_once, MakeStackKey);
  auto* stack = static_cast<Stack*>(pthread_getspecific(stack_key));
  if (stack == nullptr) {
    rlimit addresses = {};
    const bool are_few = syscall(SYS_getrlimit, RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY;
    stack = are_few ? nullptr : MapStack(kStackBytes);
    if (stack == nullptr) stack = MapStack(kSmallStackBytes);
    if (stack == nullptr) return false;
    if (pthread_setspecific(stack_key, stack) != 0) return UnmapStack(stack), false;
  }
  stack_t ours = {};
  ours.ss_sp = stack->begin();
  ours.ss_size = stack->bytes;
  t_has_ours = SetStack(&ours, nullptr) == 0;
  return t_has_ours;
}

void* RunThread(void* beginning) {
  const Beginning begin = *static_cast<Beginning*>(beginning);
  __libc_free(beginning);
  detail::t_inside_ramspan = begin.inside;
  if (begin.inside == 0 && MayComeBySignal()) MakeStackOfThisThread();
  return begin.run(begin.argument);
}

// What HoldTopOf holds, for munlockall, until its memory is given back: whole pages, [begin, begin + pages) as the sum of both; 0: none. The list only grows, to as many as were held at a time, which
// half of the memory limit bounds.
constexpr uintptr_t kPageBytes = 4096;
struct HeldTop {
  std::atomic<uintptr_t> pages;
  HeldTop* next;
};
std::atomic<HeldTop*> held_tops{nullptr};  // release, acquire: what it points to
uintptr_t BeginOf(uintptr_t pages) { return pages & ~(kPageBytes - 1); }
uintptr_t EndOf(uintptr_t pages) { return BeginOf(pages) + pages % kPageBytes * kPageBytes; }

enum class Noted { kAlready, kNow, kNot };
Noted NoteTop(uintptr_t pages) {
  HeldTop* const first = held_tops.load(std::memory_order_acquire);
  for (const HeldTop* one = first; one != nullptr; one = one->next) {
    if (one->pages.load(std::memory_order_relaxed) == pages) return Noted::kAlready;
  }
  holds_tops.store(true, std::memory_order_relaxed);
  for (HeldTop* one = first; one != nullptr; one = one->next) {
    uintptr_t none = 0;
    if (one->pages.compare_exchange_strong(none, pages, std::memory_order_relaxed)) return Noted::kNow;
  }
  void* const memory = __libc_malloc(sizeof(HeldTop));
  if (memory == nullptr) return Noted::kNot;
  auto* const own = new (memory) HeldTop{pages, first};
  while (!held_tops.compare_exchange_weak(own->next, own, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return Noted::kNow;
}

// Of the libraries that are there now: libc puts those of all at the top of a thread's stack.
size_t BytesOfThreadVariables() {
  size_t bytes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* sum) {
        for (int i = 0; i < library->dlpi_phnum; ++i) *static_cast<size_t*>(sum) += library->dlpi_phdr[i].p_type == PT_TLS ? library->dlpi_phdr[i].p_memsz : 0;
        return 0;
      },
      &bytes);
  return bytes;
}

// A stack of the program's that is swapped by pages: where a thread begins it has no other stack yet, and above that libc keeps what the kernel looks at, and the thread's own variables, which are used
// with locks of Ramspan's. It stays until the memory is given back. A forked child has it from the start: libc takes the thread out of its list of threads, which goes through their stacks' tops, before
// any handler of forks runs.
// False: too much is held.
bool HoldTopOf(const pthread_attr_t& attributes) {
  static const size_t top_bytes = (size_t{64} << 10) + BytesOfThreadVariables();
  void* stack = nullptr;
  size_t bytes = 0;
  if (is_forked.load(std::memory_order_relaxed) || pthread_attr_getstack(&attributes, &stack, &bytes) != 0 || bytes == 0 || !IsHome(stack)) return true;
  char* const top = static_cast<char*>(stack) + (bytes > top_bytes ? bytes - top_bytes : 0);
  const size_t held = static_cast<size_t>(static_cast<char*>(stack) + bytes - top);
  const uintptr_t begin = BeginOf(reinterpret_cast<uintptr_t>(top)), end = reinterpret_cast<uintptr_t>(top) + held;
  const uintptr_t pages = begin + (end - begin + kPageBytes - 1) / kPageBytes;
  const PublicCall call(PublicCall::Stack::kAny);
  const Noted noted = NoteTop(pages);  // first: munlockall may come at once
  if (noted == Noted::kNot) return false;
  if (detail::LockPages(top, held, true)) {
    detail::SetPagesInherited(top, held, true);
    return true;
  }
  if (noted == Noted::kNow) ForgetTops(reinterpret_cast<void*>(begin), EndOf(pages) - begin, Given::kEmptied);
  return false;
}

// Forked children do not get it any more; but for what is in a unit with another top, and so may be in a block with it. One that is noted beside this counts by the second look.
void DisinheritTop(uintptr_t pages) {
  const uintptr_t unit = detail::UnitOfPages();
  const auto first_of = [unit](uintptr_t top) { return BeginOf(top) & ~(unit - 1); };
  const auto end_of = [unit](uintptr_t top) { return (EndOf(top) + unit - 1) & ~(unit - 1); };
  const auto for_each_other = [&](const auto& f) {
    for (const HeldTop* one = held_tops.load(std::memory_order_acquire); one != nullptr; one = one->next) {
      const uintptr_t top = one->pages.load(std::memory_order_relaxed);
      if (top != 0 && end_of(top) > first_of(pages) && first_of(top) < end_of(pages)) f(top);
    }
  };
  for (uintptr_t at = first_of(pages), end = end_of(pages), next, behind; at < end; at = behind) {
    next = behind = end;
    for_each_other([&](uintptr_t top) {
      if (end_of(top) > at && first_of(top) < next) next = std::max(at, first_of(top)), behind = std::min(end, end_of(top));
    });
    if (next > at) detail::SetPagesInherited(reinterpret_cast<void*>(at), next - at, false);
  }
  for_each_other([](uintptr_t top) { detail::SetPagesInherited(reinterpret_cast<void*>(BeginOf(top)), EndOf(top) - BeginOf(top), true); });
}

}  // namespace

std::atomic<bool> holds_tops{false};

void ForgetTops(const void* begin, size_t bytes, Given given) {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  for (HeldTop* one = held_tops.load(std::memory_order_acquire); one != nullptr; one = one->next) {
    uintptr_t pages = one->pages.load(std::memory_order_relaxed);
    const bool is_touched = EndOf(pages) > first && BeginOf(pages) < first + bytes, is_covered = BeginOf(pages) >= first && EndOf(pages) <= first + bytes;
    const bool goes = pages != 0 && (given == Given::kBack ? is_touched : is_covered);
    if (goes && one->pages.compare_exchange_strong(pages, 0, std::memory_order_relaxed)) DisinheritTop(pages);
  }
}

void UnlockAllButStacks() {
  const uintptr_t end = homes.begin + homes.bytes;
  for (uintptr_t at = homes.begin, next, behind; at < end; at = behind) {
    next = behind = end;
    for (const HeldTop* one = held_tops.load(std::memory_order_acquire); one != nullptr; one = one->next) {
      const uintptr_t pages = one->pages.load(std::memory_order_relaxed);
      if (EndOf(pages) > at && BeginOf(pages) < next) next = std::max(at, BeginOf(pages)), behind = EndOf(pages);
    }
    if (next > at) detail::UnlockPages(reinterpret_cast<void*>(at), next - at);
  }
}

void MakeStackOfThisThread() {
  const detail::Inside inside;  // the program's masks and stacks are kept by others' calls
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, SIGBUS);
  sigaddset(&ours, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
  stack_t now = {};
  if (t_has_ours || SetStack(nullptr, &now) != 0 || IsLargeEnough(now)) return;
  t_programs = now;
  TakeOurs();
}

}  // namespace ramspan::preload

using ramspan::detail::t_inside_ramspan;
using ramspan::preload::Beginning;
using ramspan::preload::HoldTopOf;
using ramspan::preload::IsLargeEnough;
using ramspan::preload::kLeastOfSystem;
using ramspan::preload::MakeStackOfThisThread;
using ramspan::preload::MayComeBySignal;
using ramspan::preload::PinnedStack;
using ramspan::preload::RunThread;
using ramspan::preload::SetStack;
using ramspan::preload::t_has_ours;
using ramspan::preload::t_programs;
using ramspan::preload::TakeOurs;

RS_LIBC(pthread_create, int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))
RS_LIBC(pthread_kill, int (*)(pthread_t, int))
RS_LIBC(pthread_sigqueue, int (*)(pthread_t, int, const sigval))
RS_LIBC(pthread_cancel, int (*)(pthread_t))

extern "C" {

RAMSPAN_API int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) noexcept {
  if (attributes != nullptr && t_inside_ramspan == 0 && !HoldTopOf(*attributes)) return EAGAIN;
  const PinnedStack stack;
  if (t_inside_ramspan == 0 && !MayComeBySignal()) return real_pthread_create(thread, attributes, run, argument);
  auto* const begin = static_cast<Beginning*>(__libc_malloc(sizeof(Beginning)));
  if (begin == nullptr) return EAGAIN;
  *begin = {run, argument, t_inside_ramspan};
  const int error = real_pthread_create(thread, attributes, RunThread, begin);
  if (error != 0) __libc_free(begin);
  return error;
}

// Under other names, because a handler that the signal runs on this thread may leave by pthread_exit: libc's headers say that nothing is thrown through them. To itself a thread
// sends it without blocking any.
RAMSPAN_API int SendToThread(pthread_t thread, int number) __asm__("pthread_kill");
int SendToThread(pthread_t thread, int number) {
  if (pthread_equal(thread, pthread_self())) return real_pthread_kill(thread, number);
  const PinnedStack stack;
  return real_pthread_kill(thread, number);
}
RAMSPAN_API int QueueToThread(pthread_t thread, int number, const sigval value) __asm__("pthread_sigqueue");
int QueueToThread(pthread_t thread, int number, const sigval value) {
  const PinnedStack stack;
  return real_pthread_sigqueue(thread, number, value);
}
RAMSPAN_API int pthread_cancel(pthread_t thread) {
  const PinnedStack stack;
  return real_pthread_cancel(thread);
}

RAMSPAN_API int sigaltstack(const stack_t* stack, stack_t* before) noexcept {
  const bool may_need_ours = MayComeBySignal();
  if (t_inside_ramspan != 0 || (!may_need_ours && !t_has_ours)) return static_cast<int>(SetStack(stack, before));
  if (may_need_ours) MakeStackOfThisThread();
  stack_t now = {};
  if (SetStack(nullptr, &now) != 0) return -1;
  if (t_has_ours) {
    now.ss_flags = (now.ss_flags & SS_ONSTACK) | (t_programs.ss_flags & ~SS_ONSTACK);
    now.ss_sp = t_programs.ss_sp;
    now.ss_size = t_programs.ss_size;
  }
  if (stack != nullptr) {
    const bool enables = (stack->ss_flags & SS_DISABLE) == 0;
    if ((now.ss_flags & SS_ONSTACK) != 0) return errno = EPERM, -1;
    if (enables && stack->ss_size < kLeastOfSystem) return errno = ENOMEM, -1;
    if (!may_need_ours || IsLargeEnough(*stack)) {
      if (SetStack(stack, nullptr) != 0) return -1;
      t_has_ours = false;
    } else {
      const stack_t wanted = *stack;
      if (!t_has_ours && !TakeOurs()) return errno = ENOMEM, -1;
      t_programs = wanted;
    }
  }
  if (before != nullptr) *before = now;
  return 0;
}

}  // extern "C"
