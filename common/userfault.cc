#include "common/userfault.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ramspan {
namespace {

// Of Linux 6.8 (linux/userfaultfd.h), for headers that are older than the kernel.
constexpr uint64_t kFeatureMove = uint64_t{1} << 16;
struct MoveRequest {
  uint64_t to, from, bytes, mode;
  int64_t moved;
};
constexpr unsigned long kMove = _IOWR(UFFDIO, 0x05, MoveRequest);
constexpr int kUserModeOnly = 1;  // UFFD_USER_MODE_ONLY, of Linux 5.11

// A page that another thread's system call or migration holds for a moment.
constexpr int kRetries = 100'000;

int OpenFd(bool user_mode_only) {
  return static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | (user_mode_only ? kUserModeOnly : 0)));
}

// A page that is shared with a forked child becomes this process's own by a write. The program's threads may be writing there, too.
void Unshare(char* begin, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kPageBytes) __atomic_fetch_or(begin + i, 0, __ATOMIC_RELAXED);
}

}  // namespace

Userfault::~Userfault() {
  if (fd_ >= 0) close(fd_);
}

Status Userfault::Open(FaultMode wanted) {
  int fd = -1;
  user_mode_only_ = wanted == FaultMode::kSignal;
  if (!user_mode_only_) fd = OpenFd(false);
  if (fd < 0) {
    user_mode_only_ = true;
    fd = OpenFd(true);
  }
  if (fd < 0) {
    return Unavailable(std::string("the kernel gives no userfaultfd (") + strerror(errno) +
                       "), by which memory that is swapped by pages is brought back: allow it (outside of containers it is there from Linux 5.11 on; in "
                       "them the seccomp profile has to let the system call userfaultfd through)");
  }
  fd_ = fd;
  mode_ = wanted != FaultMode::kAuto ? wanted : user_mode_only_ ? FaultMode::kSignal : FaultMode::kThread;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kFeatureMove | (mode_ == FaultMode::kSignal ? UFFD_FEATURE_SIGBUS : UFFD_FEATURE_THREAD_ID);
  if (ioctl(fd, UFFDIO_API, &api) != 0) {
    return Unavailable("this kernel's userfaultfd cannot move pages (UFFDIO_MOVE, from Linux 6.8 on), by which memory that is swapped by pages is "
                       "brought back and taken away; use managedPtr or managedVector there");
  }
  return Status();
}

int Userfault::Register(void* begin, size_t bytes) {
  uffdio_register range{};
  range.range = {reinterpret_cast<uintptr_t>(begin), bytes};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  return ioctl(fd_, UFFDIO_REGISTER, &range) == 0 ? 0 : errno;
}

int Userfault::Unregister(void* begin, size_t bytes) {
  uffdio_range range{reinterpret_cast<uintptr_t>(begin), bytes};
  return ioctl(fd_, UFFDIO_UNREGISTER, &range) == 0 ? 0 : errno;
}

int Userfault::Move(void* to, void* from, size_t bytes) {
  size_t done = 0;
  const int error = TryMove(to, from, bytes, &done);
  if (error == 0) return 0;
  size_t back = 0;
  const int failed = done == 0 ? 0 : TryMove(from, to, done, &back);
  RS_CHECK(failed == 0, "of %zu bytes of pages that could not be moved (%s), %zu could not be moved back (%s)", bytes, strerror(error), done - back,
           strerror(failed));
  return error;
}

int Userfault::TryMove(void* to, void* from, size_t bytes, size_t* done) {
  bool unshared = false;
  for (int i = 0; i < kRetries; ++i) {
    MoveRequest request{reinterpret_cast<uintptr_t>(to) + *done, reinterpret_cast<uintptr_t>(from) + *done, bytes - *done, 0, 0};
    const int error = ioctl(fd_, kMove, &request) == 0 ? 0 : errno;
    if (request.moved > 0) *done += static_cast<size_t>(request.moved);
    if (error == 0 || *done == bytes) return 0;
    if (error == EBUSY && !unshared) {
      unshared = true;
      Unshare(static_cast<char*>(from) + *done, bytes - *done);
    } else if (error != EAGAIN) {
      return error;
    }
  }
  return EBUSY;
}

void Userfault::Wake(void* begin, size_t bytes) {
  uffdio_range range{reinterpret_cast<uintptr_t>(begin), bytes};
  static_cast<void>(ioctl(fd_, UFFDIO_WAKE, &range));
}

bool Userfault::Next(Fault* fault, int timeout_ms) {
  uffd_msg message{};
  ssize_t got = read(fd_, &message, sizeof(message));
  if (got < 0 && timeout_ms != 0) {
    pollfd ready{fd_, POLLIN, 0};
    if (poll(&ready, 1, timeout_ms) <= 0) return false;
    got = read(fd_, &message, sizeof(message));
  }
  if (got != sizeof(message) || message.event != UFFD_EVENT_PAGEFAULT) return false;
  *fault = {reinterpret_cast<void*>(message.arg.pagefault.address), message.arg.pagefault.feat.ptid};
  return true;
}

}  // namespace ramspan
