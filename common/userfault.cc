#include "common/userfault.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "common/away_pages.h"
#include "common/descriptor.h"
#include "common/log.h"
#include "common/process_mark.h"

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
constexpr unsigned long kNewFromDevice = _IO(0xAA, 0x00);  // USERFAULTFD_IOC_NEW, of Linux 6.1

constexpr uint32_t kTriesALook = 16;  // at the clock
constexpr auto kBusyPatience = std::chrono::milliseconds(2);  // with what holds a page; then the caller does without
constexpr auto kBackPatience = std::chrono::seconds(10);  // the way back is the only one; forks, one after the other, may share its pages again and again
// A program that closes what it has not opened begins at 3, and ends at some number that it takes for large. No higher: select(2) reads and writes as many bits as the kernel's
// table has descriptors where a program says `getdtablesize()`, and an fd_set has 1024.
constexpr int kHighFd = 1023;

constexpr int kLeaveMapping = 4;  // MREMAP_DONTUNMAP, of Linux 5.7
constexpr int kUnshareDescriptors = 1 << 1;  // CLOSE_RANGE_UNSHARE, of Linux 5.9
constexpr auto kLookWithoutPoll = std::chrono::milliseconds(1);

// To where the kernel has room; null: errno. Not by libc's function, before which libramspan-pages stands for the program.
char* LeaveMapping(void* from, size_t bytes) {
  const long at = syscall(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | kLeaveMapping, nullptr);
  return at == -1 ? nullptr : reinterpret_cast<char*>(at);
}

// Whether pages can leave a mapping that stays.
bool MappingsCanStay() {
  void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  char* const left = LeaveMapping(page, kPageBytes);
  munmap(page, kPageBytes);
  if (left != nullptr) munmap(left, kPageBytes);
  return left != nullptr;
}

int OpenFd(bool user_mode_only) {
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | (user_mode_only ? kUserModeOnly : 0)));
  if (fd >= 0 || user_mode_only) return fd;
  // From Linux 6.1 on a system may give it to those who may open this.
  const int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device < 0) return -1;
  const int made = ioctl(device, kNewFromDevice, O_CLOEXEC | O_NONBLOCK);
  close(device);
  return made;
}

std::string TextOf(const std::string& path) {
  char text[2048];
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t n = read(fd, text, sizeof(text));
  close(fd);
  return {text, static_cast<size_t>(std::max<ssize_t>(n, 0))};
}

// Whether somebody traces this process who stops all of its threads and then reads its memory by process_vm_readv, as strace does: he would wait for one of them to bring it. Debuggers
// read in other ways, which fail at once for what has left, and halt at each signal by which it would come.
bool IsTracedByWhoWaits() {
  constexpr char kKey[] = "TracerPid:\t";
  const std::string status = TextOf("/proc/self/status");
  const size_t at = status.find(kKey);
  const int tracer = at != std::string::npos ? std::atoi(status.c_str() + at + sizeof(kKey) - 1) : 0;
  if (tracer == 0) return false;
  const std::string name = TextOf("/proc/" + std::to_string(tracer) + "/comm");
  return name.rfind("gdb", 0) != 0 && name.rfind("lldb", 0) != 0;
}

// A page that is shared with a forked child becomes this process's own by a write. The program's threads may be writing there, too.
void Unshare(char* page) { __atomic_fetch_or(page, 0, __ATOMIC_RELAXED); }

}  // namespace

Userfault::~Userfault() {
  if (fd_ >= 0) close(fd_);
}

Status Userfault::Open(FaultMode wanted, PageMoves how) {
  if (wanted == FaultMode::kProtect) return OpenWithout(how);
  int fd = -1;
  user_mode_only_ = wanted == FaultMode::kSignal || (wanted == FaultMode::kAuto && IsTracedByWhoWaits());
  if (!user_mode_only_) fd = OpenFd(false);
  if (fd < 0) {
    user_mode_only_ = true;
    fd = OpenFd(true);
  }
  if (fd < 0 && wanted == FaultMode::kAuto && how != PageMoves::kMove) return OpenWithout(how);
  if (fd < 0) {
    return Unavailable(std::string("the kernel gives no userfaultfd (") + strerror(errno) +
                       "), which pageFaults or pageMoves asks for: allow it (outside of containers it is there from Linux 5.11 on; in "
                       "them the seccomp profile has to let the system call userfaultfd through), or leave pageFaults and pageMoves at auto");
  }
  rlimit files{};
  const int high = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kHighFd ? static_cast<int>(files.rlim_cur) - 1 : kHighFd;
  fd_ = fcntl(fd, F_DUPFD_CLOEXEC, high);
  fd_ < 0 ? fd_ = BeyondStandardStreams(fd) : close(fd);
  static_cast<void>(ProcessMark::Set());  // where there is no page for that, there is no memory for much else either
  mode_ = wanted != FaultMode::kAuto ? wanted : user_mode_only_ ? FaultMode::kSignal : FaultMode::kThread;
  const auto agree = [this](uint64_t features) {
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = features | (mode_ == FaultMode::kSignal ? UFFD_FEATURE_SIGBUS : UFFD_FEATURE_THREAD_ID);
    return ioctl(fd_, UFFDIO_API, &api) == 0;
  };
  moves_ = how != PageMoves::kCopy && agree(kFeatureMove);
  if (moves_ || (how != PageMoves::kMove && MappingsCanStay() && agree(0))) return Status();
  if (how == PageMoves::kMove) return Unavailable("this kernel's userfaultfd cannot move pages (UFFDIO_MOVE, from Linux 6.8 on): pageMoves = auto takes copies instead");
  return Unavailable("this kernel's userfaultfd cannot do what memory that is swapped by pages needs (Linux 5.11 or newer); use managedPtr or managedVector there");
}

Status Userfault::OpenWithout(PageMoves how) {
  if (how == PageMoves::kMove) return Unavailable("pageFaults = protect copies pages: leave pageMoves at auto");
  mode_ = FaultMode::kProtect;
  user_mode_only_ = true;
  moves_ = false;
  return Status();
}

// errno. In a child that has the descriptor, too, it would be asked of the parent's memory.
int Userfault::Ask(unsigned long what, void* of) const {
  if (ProcessMark::IsOfParent()) return EPERM;
  if (ioctl(fd_, what, of) == 0) return 0;
  if (errno == EBADF || errno == ENOTTY) EndAsClosed();  // ENOTTY: something else has its number
  return errno;
}

void Userfault::EndAsClosed() const {
  LogWarning("the program has closed descriptor %d, the userfaultfd without which memory that has left cannot come back, so the process ends: let it close what it has opened, or set "
             "RAMSPAN_PAGE_FAULTS=protect, which needs none", fd_);
  std::abort();
}

void Userfault::HoldOpen() const {
  const auto number = static_cast<unsigned>(fd_);
  if (syscall(SYS_close_range, number + 1, ~0U, kUnshareDescriptors) != 0 || (number > 0 && syscall(SYS_close_range, 0, number - 1, 0) != 0)) return;
  for (;;) pause();
}

int Userfault::Register(void* begin, size_t bytes) {
  if (mode_ == FaultMode::kProtect) return mprotect(begin, bytes, PROT_NONE) == 0 ? 0 : errno;
  uffdio_register range{};
  range.range = {reinterpret_cast<uintptr_t>(begin), bytes};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  return Ask(UFFDIO_REGISTER, &range);
}

int Userfault::Unregister(void* begin, size_t bytes) {
  if (mode_ == FaultMode::kProtect) return 0;
  uffdio_range range{reinterpret_cast<uintptr_t>(begin), bytes};
  return Ask(UFFDIO_UNREGISTER, &range);
}

int Userfault::Move(void* to, void* from, size_t bytes, MayBeShared shared) {
  auto* const there = static_cast<char*>(to);
  auto* const here = static_cast<char*>(from);
  size_t done = 0;
  const int error = TryMove(there, here, bytes, shared, kBusyPatience, &done);
  if (error == 0) return 0;
  size_t back = 0;
  // The other side: of homes and frames only the latter may be shared with a forked child.
  const MayBeShared back_shared = shared == MayBeShared::kYes ? MayBeShared::kNo : MayBeShared::kYes;
  const int failed = done == 0 ? 0 : TryMove(here, there, done, back_shared, kBackPatience, &back);
  RS_CHECK(failed == 0, "of %zu bytes of pages that could not be moved (%s), %zu could not be moved back (%s)", bytes, strerror(error), done - back,
           strerror(failed));
  return error;
}

// All at once; page by page where they lie in several mappings (memory policies, protections), or one of them is not there or held.
int Userfault::TryMove(char* to, char* from, size_t bytes, MayBeShared shared, std::chrono::steady_clock::duration patience, size_t* done) {
  size_t step = bytes;
  const auto since = std::chrono::steady_clock::now();
  for (uint32_t tries = 1; *done < bytes; ++tries) {
    MoveRequest request{reinterpret_cast<uintptr_t>(to) + *done, reinterpret_cast<uintptr_t>(from) + *done, std::min(step, bytes - *done), 0, 0};
    const int error = Ask(kMove, &request);
    if (request.moved > 0) *done += static_cast<size_t>(request.moved);
    if (error == 0 || *done == bytes) continue;
    if ((error == EINVAL || error == ENOENT || error == EBUSY || error == EEXIST) && step > kPageBytes) {
      step = kPageBytes;
    } else if (error == EEXIST && IsThere(to + *done) && !IsThere(from + *done)) {
      Wake(to + *done, kPageBytes);  // it has been moved already, of which the kernel had told neither this one (seen on Linux 6.18) nor who waits for it
      *done += kPageBytes;
    } else if (error == ENOENT) {  // the program has given it back behind our back: it is zeros
      alignas(kPageBytes) static const char zeros[kPageBytes] = {};
      size_t copied = 0;
      if (const int failed = Copy(to + *done, zeros, kPageBytes, &copied); failed != 0) return failed;
      *done += kPageBytes;
    } else if (error == EBUSY || error == EAGAIN) {
      // Shared with a forked child, or held for a moment by a system call of another thread, a device, or the kernel's own housekeeping.
      if (tries % kTriesALook == 0 && std::chrono::steady_clock::now() - since > patience) return error;
      if (error == EBUSY && shared == MayBeShared::kYes) Unshare(from + *done);
      if (tries % kTriesALook == 0) sched_yield();
    } else {
      return error;
    }
  }
  return 0;
}

int Userfault::TakeAway(void* to, void* from, size_t bytes) {
  if (mode_ == FaultMode::kProtect) return away_pages::Leave(to, from, bytes);
  auto* const there = static_cast<char*>(to);
  auto* const here = static_cast<char*>(from);
  size_t step = bytes;
  for (size_t done = 0; done < bytes;) {
    if (char* const left = LeaveMapping(here + done, step); left != nullptr) {
      memcpy(there + done, left, step);
      munmap(left, step);
      done += step;
    } else if (step > kPageBytes) {
      step = kPageBytes;  // they lie in several mappings (memory policies)
    } else {
      size_t back = 0;
      const int error = errno, failed = done == 0 ? 0 : Copy(here, there, done, &back);
      RS_CHECK(failed == 0, "of %zu bytes of pages that could not leave (%s), %zu could not come back (%s)", bytes, strerror(error), done, strerror(failed));
      return error;
    }
  }
  return 0;
}

int Userfault::Copy(void* to, const void* from, size_t bytes, size_t* done) {
  *done = 0;
  if (mode_ == FaultMode::kProtect) {
    const int error = away_pages::Come(to, from, bytes);
    if (error == 0) *done = bytes;
    return error;
  }
  size_t step = bytes;
  while (*done < bytes) {
    uffdio_copy copy{};
    copy.dst = reinterpret_cast<uintptr_t>(to) + *done;
    copy.src = reinterpret_cast<uintptr_t>(from) + *done;
    copy.len = std::min(step, bytes - *done);
    const int error = Ask(UFFDIO_COPY, &copy);
    if (copy.copy > 0) *done += static_cast<size_t>(copy.copy);
    if (error == 0 || error == EAGAIN) continue;
    if (step == kPageBytes) return error;
    step = kPageBytes;  // they lie in several mappings
  }
  return 0;
}

int Userfault::Zero(void* begin, size_t bytes) {
  if (mode_ == FaultMode::kProtect) return away_pages::Come(begin, nullptr, bytes);
  for (size_t done = 0;;) {
    uffdio_zeropage zero{};
    zero.range = {reinterpret_cast<uintptr_t>(begin) + done, bytes - done};
    const int error = Ask(UFFDIO_ZEROPAGE, &zero);
    if (zero.zeropage > 0) done += static_cast<size_t>(zero.zeropage);
    if (done == bytes) return 0;
    if (error != EAGAIN && zero.zeropage <= 0) return error;
  }
}

void Userfault::FillHole(const void* address) {
  if (mode_ == FaultMode::kProtect) return;  // the kernel has
  static_cast<void>(Zero(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) & ~(kPageBytes - 1)), kPageBytes));
}

int Userfault::Drop(void* begin, size_t bytes) {
  if (mode_ == FaultMode::kProtect) return away_pages::MakeAway(begin, bytes);
  return Empty(begin, bytes);
}

bool Userfault::IsThere(void* page) {
  constexpr uint64_t kPresent = uint64_t{1} << 63, kSwapped = uint64_t{1} << 62;
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  uint64_t entry = kPresent;
  if (fd < 0 || pread(fd, &entry, sizeof(entry), static_cast<off_t>(reinterpret_cast<uintptr_t>(page) / kPageBytes * sizeof(entry))) != sizeof(entry)) entry = kPresent;
  if (fd >= 0) close(fd);
  return (entry & (kPresent | kSwapped)) != 0;
}

// What is locked (mlockall) cannot be given back. The system calls themselves: libc's names may be the preloaded library's, which stands there for the program.
int Userfault::Empty(void* begin, size_t bytes) {
  if (syscall(SYS_madvise, begin, bytes, MADV_DONTNEED) == 0) return 0;
  if (errno != EINVAL || syscall(SYS_munlock, begin, bytes) != 0) return errno;
  return syscall(SYS_madvise, begin, bytes, MADV_DONTNEED) == 0 ? 0 : errno;
}

void Userfault::FreeTables(void* begin, size_t bytes) { syscall(SYS_madvise, begin, bytes, MADV_DONTNEED); }

void Userfault::Wake(void* begin, size_t bytes) {
  if (mode_ == FaultMode::kProtect) return;
  uffdio_range range{reinterpret_cast<uintptr_t>(begin), bytes};
  static_cast<void>(Ask(UFFDIO_WAKE, &range));
}

bool Userfault::Next(Fault* fault, int timeout_ms) {
  uffd_msg message{};
  ssize_t got = read(fd_, &message, sizeof(message));
  if (got < 0 && timeout_ms != 0) {
    pollfd ready{fd_, POLLIN, 0};
    const int told = poll(&ready, 1, timeout_ms);
    if (told < 0 && errno == EINVAL) {
      std::this_thread::sleep_for(kLookWithoutPoll);  // the program may have no descriptors, it has said since
    } else if (told <= 0) {
      return false;
    }
    got = read(fd_, &message, sizeof(message));
  }
  if (got < 0 ? errno != EAGAIN && errno != EINTR : got != sizeof(message)) EndAsClosed();  // or something else has its number
  if (got < 0 || message.event != UFFD_EVENT_PAGEFAULT) return false;
  *fault = {reinterpret_cast<void*>(message.arg.pagefault.address), message.arg.pagefault.feat.ptid};
  return true;
}

}  // namespace ramspan
