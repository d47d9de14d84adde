// PublicCall: what holds within every call of a program's that may ask the system for something or take a lock. Not made on the resident path, which does neither.
// - errno is the program's (common/errno_guard.h).
// - What is allocated is Ramspan's: the library that `ramspan run --pages` preloads leaves it to libc, because pages that are away cannot be brought by who
//   needs them for that (Inside).
// - Where the program has memory that is swapped by pages, its signal handlers come after the call: one that touched a page that is away would wait for who needs
//   the locks that this thread holds. What the thread itself does wrong, or where it touches pages (SIGBUS), is not put off. Nor is it cancelled meanwhile.
//
// Thread-safety: the thread's own; PutHandlersOff once, by any.
#pragma once

#include <signal.h>

#include <atomic>

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
  PublicCall() : is_first_(detail::t_inside_ramspan++ == 0 && put_off_.load(std::memory_order_relaxed)) {
    if (__builtin_expect(is_first_, 0)) Block();
  }
  ~PublicCall() {
    if (__builtin_expect(is_first_, 0)) Unblock();
    --detail::t_inside_ramspan;
  }
  PublicCall(const PublicCall&) = delete;
  PublicCall& operator=(const PublicCall&) = delete;

  // What the program finds in errno after it, of a call that stands for one of libc's.
  void Fail(int error) { errno_.Set(error); }

  // From now on, in all threads: a call that has begun before does not do so yet. Before there are pages.
  static void PutHandlersOff();

 private:
  void Block();
  void Unblock();

  static std::atomic<bool> put_off_;
  ErrnoGuard errno_;
  const bool is_first_;
  int cancel_before_;
};

}  // namespace ramspan
