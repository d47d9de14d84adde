// Descriptor: owns a file descriptor and closes it at its end. Move-only value.
//
// A program may have been started without standard streams (`2>&-`), or have closed them. What it, or anybody, prints then goes to whatever has got their
// numbers since: so no swap file, socket, trace or copy of Ramspan's has one of them.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ramspan {

// The same under another number, of at least `least`; it itself, where there is none (ulimit -n); -1: somebody has closed it. Takes it over. Keeps errno.
inline int Moved(int number, int least) {
  const int before = errno, other = fcntl(number, F_DUPFD_CLOEXEC, least);
  const bool is_closed = other < 0 && errno == EBADF;
  if (other >= 0) close(number);
  errno = before;
  return other >= 0 || is_closed ? other : number;
}

inline int BeyondStandardStreams(int number) { return number < 0 || number > STDERR_FILENO ? number : Moved(number, STDERR_FILENO + 1); }

// Beyond those that programs count on to get, and below the usual limit of 1024: for what must not be taken for a file of a program's that has closed it with all others (closefrom).
inline int LeastBeyondPrograms() {
  constexpr int kHigh = 700;
  rlimit files{};
  const bool are_few = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur / 4 * 3 < kHigh;
  return are_few ? static_cast<int>(files.rlim_cur / 4 * 3) : kHigh;
}
// Also what is there already gets another number: in a program that `ramspan run --pages` runs, it is by this that a descriptor is known to be one of Ramspan's that stay
// (client/preload/descriptors.cc). What a library opens and closes by itself is none.
inline int BeyondPrograms(int number) {
  if (number < 0) return number;
  const int beyond = BeyondStandardStreams(Moved(number, LeastBeyondPrograms()));
  if (beyond == number) fcntl(beyond, F_SETFD, FD_CLOEXEC);  // there is no other number left, but it stays
  return beyond;
}

// Opens /dev/null under the number of each standard stream that is closed; `opened` says which those are. Keeps errno.
inline void OpenClosedStandardStreams(int flags, bool (&opened)[STDERR_FILENO + 1]) {
  const int before = errno;
  int number = 0;
  while ((number = open("/dev/null", O_RDWR | flags)) >= 0 && number <= STDERR_FILENO) opened[number] = true;
  if (number >= 0) close(number);
  errno = before;
}

// Standard streams that are closed are /dev/null from now on: for libraries that open what they need by themselves.
inline void FillStandardStreams() {
  bool opened[STDERR_FILENO + 1] = {};
  OpenClosedStandardStreams(0, opened);
}

// The same while it lives: for two descriptors that are made at once, before they are moved up.
class HeldStandardStreams {
 public:
  HeldStandardStreams() { OpenClosedStandardStreams(O_CLOEXEC, held_); }
  ~HeldStandardStreams() {
    const int before = errno;
    for (int number = 0; number <= STDERR_FILENO; ++number) {
      if (held_[number]) close(number);
    }
    errno = before;
  }
  HeldStandardStreams(const HeldStandardStreams&) = delete;
  HeldStandardStreams& operator=(const HeldStandardStreams&) = delete;

 private:
  bool held_[STDERR_FILENO + 1] = {};
};

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(BeyondStandardStreams(number)) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }

  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }
  void MoveBeyondPrograms() { number_ = BeyondPrograms(number_); }
  void Close() {
    if (number_ >= 0) close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

}  // namespace ramspan
