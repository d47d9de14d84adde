// PublicCall: what holds within every call of a program's that may ask the system for something or take a lock. Not made on the resident path, which does neither.
// - errno is the program's (common/errno_guard.h).
// - What is allocated is Ramspan's: the library that `ramspan run --pages` preloads leaves it to libc, because pages that are away cannot be brought by who
//   needs them for that (Inside).
// - Where the program has memory that is swapped by pages, its signal handlers come after the call: one that touched a page that is away would wait for who needs
//   the locks that this thread holds. What the thread itself does wrong, or where it touches pages (SIGBUS), is not put off. Nor is it cancelled meanwhile.
// - Its stack is not such memory, which would be away sooner or later while it holds a lock: the process ends, with the reason, instead of waiting for ever. Calls that go on
//   on another stack (client/runtime/page_call.h) say so.
//
// Thread-safety: the thread's own; BeginPages once, by any.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>

#include "common/errno_guard.h"

namespace ramspan {

namespace detail {
extern __attribute__((visibility("default"))) __thread int t_inside_ramspan __attribute__((tls_model("initial-exec")));

class Inside {
 public:
  Inside() { ++t_inside_ramspan; }
  ~Inside() { --t_inside_ramspan; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};
}  // namespace detail

class __attribute__((visibility("default"))) PublicCall {
 public:
  enum class Stack { kStays, kAny };
  explicit PublicCall(Stack stack = Stack::kStays) : is_first_(detail::t_inside_ramspan++ == 0 && put_off_.load(std::memory_order_relaxed)) {
    if (__builtin_expect(is_first_, 0)) Block();
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    if (stack == Stack::kStays && __builtin_expect(IsOfPages(here), 0)) EndOnSuchStack();
  }
  ~PublicCall() {
    if (__builtin_expect(is_first_, 0)) Unblock();
    --detail::t_inside_ramspan;
  }
  PublicCall(const PublicCall&) = delete;
  PublicCall& operator=(const PublicCall&) = delete;

  // What the program finds in errno after it, of a call that stands for one of libc's.
  void Fail(int error) { errno_.Set(error); }

  // There are pages at these addresses from now on, which threads may use that see it: before they do. A call that has begun before does not put handlers off yet.
  static void BeginPages(const void* begin, uint64_t bytes);

 private:
  void Block();
  void Unblock();

  [[noreturn]] static void EndOnSuchStack();
  static bool IsOfPages(uintptr_t address) {
    const uintptr_t bytes = pages_bytes_.load(std::memory_order_acquire);  // then their begin is known, too
    return address - pages_begin_.load(std::memory_order_relaxed) < bytes;
  }

  static std::atomic<bool> put_off_;
  static std::atomic<uintptr_t> pages_begin_, pages_bytes_;
  ErrnoGuard errno_;
  const bool is_first_;
  int cancel_before_;
};

}  // namespace ramspan
