// errno belongs to the program: a call that succeeds leaves it alone, as if the call were not there, and one that throws
// says what is wrong in its exception. Made at the entry of public calls that may ask the system for anything; not on the
// resident path, which asks it for nothing. Thread-safety: errno is the thread's own.
#pragma once

#include <cerrno>

namespace ramspan {

class ErrnoGuard {
 public:
  ErrnoGuard() : before_(errno) {}
  ~ErrnoGuard() { errno = before_; }
  ErrnoGuard(const ErrnoGuard&) = delete;
  ErrnoGuard& operator=(const ErrnoGuard&) = delete;
  // Of a call that fails as one of libc's.
  void Set(int error) { before_ = error; }

 private:
  int before_;
};

}  // namespace ramspan
