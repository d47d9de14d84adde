#include "client/transport/aio_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <libaio.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "common/check.h"
#include "common/descriptor.h"

namespace ramspan {
namespace {

// Transfers in the kernel at once, and their bytes. On a 2-core virtual machine raw libaio lost a quarter of its
// bandwidth with 32 MiB in flight; and a miss should not queue behind more than this.
constexpr size_t kDepth = 128;
constexpr uint64_t kBytesInFlightMax = uint64_t{8} << 20;
constexpr uint64_t kAllocateStep = 64 << 20, kAllocateStepMin = 256 << 10;
constexpr uint64_t kAllocateAttemptsMax = 1000;  // of one step
constexpr int kAttemptsMax = 8;         // of one transfer that comes back short
constexpr int kSubmitRetriesMax = 100;  // when the kernel is short of resources, 100 us apart
constexpr int kNamesMax = 1000;         // swap files of others in the way
constexpr uint64_t kBlock = 4096;       // O_DIRECT: where a short transfer may be continued

Status CreateError(int error, const std::string& directory) {
  const std::string what = "cannot create a swap file in " + directory + ": " + std::strerror(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return ResourceExhausted(what + "; make room there or set swapfiles to a directory on another disk");
    case EMFILE:
    case ENFILE:
      return ResourceExhausted(what + "; raise the limit of open files (ulimit -n)");
    default:
      return FailedPrecondition(what + "; set TMPDIR or the key swapfiles (RAMSPAN_SWAPFILES) to a directory that you "
                                       "may write");
  }
}

// The mask with its last two %d replaced, which leaves a folder's name alone; by hand, since the mask comes from outside.
std::string NameFor(const std::string& mask, uint64_t number) {
  std::string name = mask;
  for (const std::string& value : {std::to_string(number), std::to_string(getpid())}) {
    const size_t at = name.rfind("%d");
    if (at != std::string::npos) name.replace(at, 2, value);
  }
  return name;
}

// Whose descriptors those of swap files are.
std::atomic<pid_t> g_process{0};

// A child of vfork has its parent's memory, and descriptors of its own: those that its parent has opened since it makes its own, too, under the same number. False: there is no
// such, or this is no such child. By system calls only: it may be within the handler of a signal.
bool TakeFromParent(int fd) {
  const pid_t process = g_process.load(std::memory_order_relaxed);
  if (syscall(SYS_getpid) == process) return false;
  const auto open_of = [&](const char* folder, int flags) {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d/%s/%d", static_cast<int>(process), folder, fd);
    return open(path, flags | O_CLOEXEC);
  };
  char text[256] = {};
  const int about = open_of("fdinfo", O_RDONLY);
  if (about < 0) return false;
  const ssize_t length = read(about, text, sizeof(text) - 1);
  close(about);
  const char* const flags = length > 0 ? std::strstr(text, "flags:") : nullptr;
  if (flags == nullptr) return false;
  const int own = open_of("fd", O_RDWR | (static_cast<int>(std::strtoul(flags + 6, nullptr, 8)) & O_DIRECT));
  if (own < 0 || own == fd) return own == fd;
  const bool taken = dup3(own, fd, O_CLOEXEC) == fd;
  close(own);
  return taken;
}

// A descriptor, or -errno. `mask` is seen from `folder`.
int OpenNamed(int folder, const std::string& mask, uint64_t* number) {
  for (int i = 0; i < kNamesMax; ++i) {
    const std::string name = NameFor(mask, (*number)++);
    const int fd = BeyondPrograms(openat(folder, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (fd >= 0 && unlinkat(folder, name.c_str(), 0) == 0) return fd;
    const int error = errno;
    if (fd >= 0) close(fd);
    if (error != EEXIST) return -error;
  }
  return -EEXIST;
}

// The same for a file without a name where the file system has such.
int OpenIn(int folder, const std::string& directory, const std::string& mask, uint64_t* number) {
  const int fd = BeyondPrograms(openat(folder, directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (fd >= 0) return fd;
  const bool may_have_none = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT;
  return may_have_none ? OpenNamed(folder, mask, number) : -errno;
}

}  // namespace

std::string DirectoryOf(const std::string& mask) {
  const size_t slash = mask.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : mask.substr(0, slash);
}

Result<AioFile> AioFile::Create(const std::string& mask, bool direct, uint64_t* number, const Descriptor* folder) {
  const std::string directory = DirectoryOf(mask);
  g_process.store(getpid(), std::memory_order_relaxed);
  int fd = -EBADF;
  if (folder != nullptr && *folder) fd = OpenIn(folder->number(), ".", mask.substr(mask.rfind('/') + 1), number);
  if (fd < 0) fd = OpenIn(AT_FDCWD, directory, mask, number);  // also where the folder was removed, and made anew
  if (fd < 0) return CreateError(-fd, directory);
  // Not in open: a file system without O_DIRECT would refuse the call after it has made the name.
  const bool is_direct = direct && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT) == 0;
  return AioFile(fd, is_direct);
}

AioFile::AioFile(AioFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), direct_(other.direct_) {}

AioFile& AioFile::operator=(AioFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(direct_, other.direct_);
  return *this;
}

AioFile::~AioFile() {
  if (fd_ >= 0) close(fd_);
}

Status AioFile::Allocate(uint64_t bytes) {
  int error = 0;
  // In steps, and shorter ones after a signal: older kernels end the call at each, on a tmpfs, and take back what it has done.
  uint64_t step = kAllocateStep;
  for (uint64_t done = 0, attempts = 0; done < bytes && attempts < kAllocateAttemptsMax; ++attempts) {
    const uint64_t more = std::min(step, bytes - done);
    error = fallocate(fd_, 0, static_cast<off_t>(done), static_cast<off_t>(more)) == 0 ? 0 : errno;
    if (error == 0) {
      done += more;
      attempts = 0;
    } else if (error == EINTR) {
      step = std::max(step / 2, kAllocateStepMin);
    } else {
      break;
    }
  }
  if (error == EOPNOTSUPP || error == ENOSYS) error = ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  if (error == 0) return {};
  // What was allocated before the disk was full goes back.
  if (ftruncate(fd_, 0) != 0) return Unavailable(std::string("swap file: ") + std::strerror(errno));
  const std::string what = std::string("no room for a swap file: ") + std::strerror(error);
  return error == ENOSPC || error == EDQUOT || error == EFBIG ? ResourceExhausted(what) : Unavailable(what);
}

AioCompletion TransferNow(const AioTransfer& t) {
  AioCompletion completion{.cookie = t.cookie};
  int interrupted = 0;
  while (completion.bytes < t.bytes) {
    char* const at = static_cast<char*>(t.buffer) + completion.bytes;
    const auto offset = static_cast<off_t>(t.offset + completion.bytes);
    const size_t left = t.bytes - completion.bytes;
    const ssize_t n = t.is_write ? pwrite(t.fd, at, left, offset) : pread(t.fd, at, left, offset);
    if (n > 0) {
      completion.bytes += static_cast<size_t>(n);
    } else if (n == 0 || (errno != EINTR && !(errno == EBADF && TakeFromParent(t.fd))) || ++interrupted > kAttemptsMax) {
      completion.error = n < 0 ? errno : t.is_write ? EIO : ENODATA;
      break;
    }
  }
  return completion;
}

struct AioQueue::Slot {
  // For what is left of the transfer.
  iocb* Prepare() {
    const AioTransfer& t = transfer;
    (t.is_write ? io_prep_pwrite : io_prep_pread)(&control, t.fd, static_cast<char*>(t.buffer) + done, t.bytes - done,
                                                  static_cast<long long>(t.offset + done));
    control.data = this;
    return &control;
  }

  iocb control{};
  AioTransfer transfer;
  size_t done = 0;  // of transfer.bytes, by earlier attempts
  int attempts = 0;
  int error = 0;
};

struct AioQueue::Context {
  ~Context() {
    if (handle != nullptr) io_destroy(handle);
  }
  io_context_t handle = nullptr;
};

Result<std::unique_ptr<AioQueue>> AioQueue::Create() {
  auto context = std::make_unique<Context>();
  const int error = io_setup(kDepth, &context->handle);
  if (error != 0) return Unavailable(std::string("no asynchronous file I/O: ") + std::strerror(-error));
  return std::unique_ptr<AioQueue>(new AioQueue(std::move(context)));
}

AioQueue::AioQueue(std::unique_ptr<Context> context) : context_(std::move(context)), slots_(new Slot[kDepth]) {
  free_.reserve(kDepth);
  failed_.reserve(kDepth);
  for (size_t i = kDepth; i > 0; --i) free_.push_back(&slots_[i - 1]);
}

AioQueue::~AioQueue() = default;

// The ring of the kernel holds twice the depth, in pages mapped into this process.
uint64_t AioQueue::metadata_bytes() const {
  return sizeof(*this) + kDepth * (sizeof(Slot) + 2 * sizeof(Slot*) + 2 * sizeof(io_event)) + kBlock;
}

size_t AioQueue::Start(std::span<const AioTransfer> transfers) {
  std::array<iocb*, kDepth> controls;
  size_t count = 0;
  {
    // All is written under the mutex: the thread in Reap takes it before it looks at a slot, and from io_submit on the
    // slot may be its.
    MutexLock lock(mutex_);
    while (count < transfers.size() && !free_.empty()) {
      const AioTransfer& transfer = transfers[count];
      if (bytes_in_flight_ > 0 && bytes_in_flight_ + transfer.bytes > kBytesInFlightMax) break;
      bytes_in_flight_ += transfer.bytes;
      Slot* slot = free_.back();
      free_.pop_back();
      *slot = Slot{.transfer = transfer};
      controls[count++] = slot->Prepare();
    }
  }
  Submit({controls.data(), count});
  return count;
}

void AioQueue::Submit(std::span<iocb*> controls) {
  int retries = 0;
  while (!controls.empty()) {
    const int n = io_submit(context_->handle, static_cast<long>(controls.size()), controls.data());
    if (n > 0) {
      controls = controls.subspan(static_cast<size_t>(n));
    } else if (n == -EBADF && ++retries <= kSubmitRetriesMax && TakeFromParent(static_cast<int>(controls[0]->aio_fildes))) {
      continue;
    } else if ((n == -EAGAIN || n == 0) && ++retries <= kSubmitRetriesMax) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    } else {
      // The first one is what the kernel refused; those behind it get their own chance.
      MutexLock lock(mutex_);
      auto* slot = static_cast<Slot*>(controls[0]->data);
      slot->error = n < 0 ? -n : EAGAIN;
      failed_.push_back(slot);
      controls = controls.subspan(1);
    }
  }
}

size_t AioQueue::TakeFailed(std::span<AioCompletion> done) {
  MutexLock lock(mutex_);
  size_t count = 0;
  while (count < done.size() && !failed_.empty()) {
    Slot* slot = failed_.back();
    failed_.pop_back();
    done[count++] = {slot->transfer.cookie, slot->done, slot->error};
    bytes_in_flight_ -= slot->transfer.bytes;
    free_.push_back(slot);
  }
  return count;
}

// What an event says; false when the transfer was short and goes on.
bool AioQueue::Finish(Slot* slot, long result, AioCompletion* completion) {
  iocb* rest = nullptr;
  {
    MutexLock lock(mutex_);
    const size_t left = slot->transfer.bytes - slot->done;
    RS_CHECK(result <= static_cast<long>(left), "the kernel moved %ld of %zu bytes", result, left);
    const bool whole = result == static_cast<long>(left);
    if (result > 0) slot->done += whole ? left : static_cast<size_t>(result) & ~(kBlock - 1);
    const bool hopeful = result > 0 || result == -EAGAIN || result == -EINTR;
    if (whole || !hopeful || ++slot->attempts >= kAttemptsMax) {
      const int error = whole ? 0 : result < 0 ? static_cast<int>(-result) : slot->transfer.is_write ? EIO : ENODATA;
      *completion = {slot->transfer.cookie, slot->done, error};
      bytes_in_flight_ -= slot->transfer.bytes;
      free_.push_back(slot);
      return true;
    }
    rest = slot->Prepare();
  }
  Submit({&rest, 1});
  return false;
}

size_t AioQueue::Reap(std::span<AioCompletion> done, std::chrono::microseconds wait) {
  std::array<io_event, 64> events;
  if (const size_t count = TakeFailed(done)) return count;
  timespec timeout{.tv_sec = wait.count() / 1000000, .tv_nsec = wait.count() % 1000000 * 1000};
  const auto room = static_cast<long>(std::min(done.size(), events.size()));
  // An empty ring is seen in user space when the timeout is zero. An interrupted wait is one that found nothing.
  const int n = io_getevents(context_->handle, 1, room, events.data(), &timeout);
  RS_CHECK(n >= 0 || n == -EINTR, "io_getevents: %s", std::strerror(-n));
  size_t count = 0;
  for (int i = 0; i < n; ++i) {
    if (Finish(static_cast<Slot*>(events[i].data), static_cast<long>(events[i].res), &done[count])) ++count;
  }
  return count;
}

}  // namespace ramspan
