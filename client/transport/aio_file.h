// AioFile: an unlinked file with room for swap. AioQueue: Linux native AIO (libaio) for files opened with O_DIRECT.
// They move bytes between buffers and file offsets; they know no chunk and no slot.
//
// Thread-safety: AioFile is constant after Create and Allocate; its descriptor may be used by any thread. AioQueue:
// Start from any thread, Reap from one thread at a time (the caller's role to hand round), both at once.
// Ownership: an AioFile owns its descriptor, and with it the space on disk, which goes at close or at the process's
// end. An AioQueue borrows descriptors and buffers until it has returned the transfer from Reap.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/descriptor.h"
#include "common/mutex.h"
#include "common/status.h"

struct iocb;  // libaio's

namespace ramspan {

class AioFile {
 public:
  // A new empty file in the directory of `mask` that no name leads to: O_TMPFILE where the file system has it, else
  // created exclusively (mode 0600) under the mask's name for this process and *number, and unlinked at once. *number
  // moves past the names that are taken. With `direct`, O_DIRECT where the file system can: see direct().
  // kFailedPrecondition: not a directory that we may write. kResourceExhausted: disk, quota or descriptors.
  // `folder`: that directory, opened (O_PATH does), for when its path leads elsewhere by then (chdir, chroot). Borrowed.
  static Result<AioFile> Create(const std::string& mask, bool direct, uint64_t* number, const Descriptor* folder = nullptr);

  AioFile(AioFile&& other) noexcept;
  AioFile& operator=(AioFile&& other) noexcept;
  ~AioFile();

  // Reserves [0, bytes) on the disk, so that a full disk is found here and not in a write (where the file system has
  // no fallocate: only sets the size). kResourceExhausted leaves the file empty. May take milliseconds.
  [[nodiscard]] Status Allocate(uint64_t bytes);

  int fd() const { return fd_; }
  bool direct() const { return direct_; }

 private:
  AioFile(int fd, bool direct) : fd_(fd), direct_(direct) {}

  int fd_ = -1;
  bool direct_ = false;
};

// The directory that swap files of this mask lie in ("." for a mask without a slash).
std::string DirectoryOf(const std::string& mask);

struct AioTransfer {
  int fd = -1;
  bool is_write = false;
  void* buffer = nullptr;
  uint64_t offset = 0;
  size_t bytes = 0;
  void* cookie = nullptr;  // the caller's; comes back in the completion
};

struct AioCompletion {
  void* cookie = nullptr;
  size_t bytes = 0;  // moved; less than asked for only with an error
  int error = 0;     // an errno; ENODATA: the file ends inside the transfer
};

// Moves one transfer in the calling thread by pread or pwrite.
AioCompletion TransferNow(const AioTransfer& transfer);

class AioQueue {
 public:
  // kUnavailable: the kernel has no AIO, or none left (fs.aio-max-nr).
  static Result<std::unique_ptr<AioQueue>> Create();
  // Blocks until the kernel has let go of all buffers.
  ~AioQueue();

  // Starts a prefix of `transfers` and returns how many: fewer when the queue is full (Reap makes room). With O_DIRECT
  // offset, bytes and buffer are multiples of the device's block. What the kernel refuses is completed with its error.
  size_t Start(std::span<const AioTransfer> transfers);

  // Completions, up to done.size(); waits up to `wait` for the first. Short transfers are continued inside, a bounded
  // number of times. REQUIRES: one thread at a time.
  size_t Reap(std::span<AioCompletion> done, std::chrono::microseconds wait);

  uint64_t metadata_bytes() const;

 private:
  struct Slot;
  struct Context;

  explicit AioQueue(std::unique_ptr<Context> context);
  void Submit(std::span<iocb*> controls) RS_EXCLUDES(mutex_);
  size_t TakeFailed(std::span<AioCompletion> done) RS_EXCLUDES(mutex_);
  bool Finish(Slot* slot, long result, AioCompletion* completion) RS_EXCLUDES(mutex_);

  const std::unique_ptr<Context> context_;
  const std::unique_ptr<Slot[]> slots_;

  Mutex mutex_{LockRank::kTransport};
  std::vector<Slot*> free_ RS_GUARDED_BY(mutex_);
  std::vector<Slot*> failed_ RS_GUARDED_BY(mutex_);  // refused by io_submit, not yet reaped
  uint64_t bytes_in_flight_ RS_GUARDED_BY(mutex_) = 0;
};

}  // namespace ramspan
