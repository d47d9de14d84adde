// FileSwap: the SwapTier of local files. Slots are cut by SlotSpace from files that are made when they are first needed
// and that no name leads to, so a kill leaves nothing behind. Freed room is used again before a file is added: written
// extents are faster than fresh ones.
//
// With O_DIRECT, transfers go through libaio, cut into parts that are in flight together. Buffered, they are plain
// pread and pwrite in the submitting thread: libaio would block there all the same.
//
// Thread-safety: as SwapTier says; one thread at a time collects the kernel's events for all. Ownership: owns its
// files; destroying it with requests in flight waits for the kernel and forgets them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/swap/slot_space.h"
#include "client/swap/swap_tier.h"
#include "client/transport/aio_file.h"
#include "common/mutex.h"
#include "ramspan/options.h"

namespace ramspan {

struct FileSwapOptions {
  std::string mask;        // path with two %d: process id, file number
  uint64_t bytes_max = 0;  // of all files; may be exceeded as `policy` says
  bool direct = true;      // O_DIRECT; falls back to buffered with one warning where the file system cannot
  SwapPolicy policy = SwapPolicy::kFail;
  // The first file; later ones are half of all before them, if that is more, but no larger than their bitmaps may be at once.
  uint64_t file_bytes = uint64_t{64} << 20;
  // kInteractive: may the files grow by `wanted` bytes? Called without locks, at most once after a no. Empty: asks on
  // the terminal, and takes a missing terminal or 60 s of silence for a no.
  std::function<bool(uint64_t wanted, std::string message)> ask;
};

class FileSwap final : public SwapTier {
 public:
  // Proves with a nameless file that the directory can be written; makes nothing that stays.
  // kFailedPrecondition: it cannot, message names the remedy. kInvalidArgument: mask or sizes.
  static Result<std::unique_ptr<FileSwap>> Create(const FileSwapOptions& options);
  ~FileSwap() override;

  Capabilities capabilities() const override;
  Result<SlotRef> Reserve(size_t bytes) override;
  Result<SlotRef> TryReserve(size_t bytes) override;
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override;
  void Free(SlotRef slot, size_t bytes) override;
  void SubmitWrite(std::span<IoRequest* const> batch) override { Submit(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) override { Submit(batch, false); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  TierStats stats() const override;

  // The limit of all files together and what happens beyond it, at run time. Slots keep their places. Blocks while a
  // file is being made. kFailedPrecondition: more than `bytes` is in use; then nothing changes.
  Status SetLimit(uint64_t bytes) RS_EXCLUDES(mutex_);
  void SetPolicy(SwapPolicy policy) RS_EXCLUDES(mutex_);
  // Bytes of the files: free, in slots of one piece, in slots of several.
  void Fragmentation(uint64_t* free, uint64_t* whole, uint64_t* scattered) const RS_EXCLUDES(mutex_);
  // The size of the next file when `need` bytes are missing and files of `have` bytes are there, `first` the size of the first.
  static uint64_t UsualStep(uint64_t need, uint64_t have, uint64_t first);
  uint64_t limit() const { return limit_bytes_; }
  SwapPolicy policy() const { return policy_; }

 private:
  // A file's bitmaps, 2.1 bits a granule, count in the budget when it is made, and nothing can be evicted for them then: it may
  // be for an eviction that it is made. Those of a file of this size, 63 KiB, fit into half of the least that the budget keeps
  // free for that; so does a thirty-second part of the bitmaps that are there (budget.h). Half of it would be twice the files.
  static constexpr uint64_t kFileBytesMax = uint64_t{960} << 20;
  static constexpr uint64_t kFilesPart = 32;
  static constexpr uint64_t kFilesForASlot = 32;  // at most so many by plan

  struct File {
    AioFile file;
    uint64_t bytes = 0;
  };

  FileSwap(const FileSwapOptions& options, bool direct, std::unique_ptr<AioQueue> aio);

  Status Grow(uint64_t need, uint64_t have) RS_EXCLUDES(mutex_);
  Result<uint64_t> StepFor(uint64_t need, uint64_t have) RS_EXCLUDES(mutex_);
  Result<uint64_t> StepBeyondLimit(uint64_t need, uint64_t have) RS_EXCLUDES(mutex_);
  Status FullError(const std::string& why) const;
  uint64_t FileBytes() const RS_REQUIRES(mutex_);
  void WaitWhileGrowing() RS_REQUIRES(mutex_);

  void Submit(std::span<IoRequest* const> batch, bool is_write) RS_EXCLUDES(mutex_);
  void Cut(IoRequest* request, std::vector<AioTransfer>* parts) RS_REQUIRES(mutex_);
  void StartAll(std::span<const AioTransfer> parts) RS_EXCLUDES(mutex_);
  void Absorb(std::span<const AioCompletion> completions) RS_REQUIRES(mutex_);
  void Finish(IoRequest* request) RS_REQUIRES(mutex_);
  void CloseRegionsOf(const IoRequest& request) RS_REQUIRES(mutex_);
  void WarnOfFirstError() RS_REQUIRES(mutex_);
  void CollectEvents(std::chrono::microseconds wait) RS_REQUIRES(mutex_);
  size_t TakeDone(std::span<IoRequest*> done) RS_REQUIRES(mutex_);

  // Constant after construction.
  const FileSwapOptions options_;
  const bool direct_;
  const std::unique_ptr<AioQueue> aio_;  // null: transfers are done in the submitting thread

  mutable Mutex mutex_{LockRank::kTier};
  CondVar changed_;  // something completed, the collector's role or the grower's role is free
  SlotSpace space_ RS_GUARDED_BY(mutex_);
  std::vector<std::optional<File>> files_ RS_GUARDED_BY(mutex_);  // by region
  bool has_closed_regions_ RS_GUARDED_BY(mutex_) = false;
  std::vector<Extent> extents_ RS_GUARDED_BY(mutex_);     // scratch of Cut and CloseRegionsOf
  uint64_t in_flight_ RS_GUARDED_BY(mutex_) = 0;          // requests not yet on the done list
  IoRequest* done_head_ RS_GUARDED_BY(mutex_) = nullptr;  // linked by IoRequest::next
  IoRequest* done_tail_ RS_GUARDED_BY(mutex_) = nullptr;
  bool collecting_ RS_GUARDED_BY(mutex_) = false;  // a thread is inside aio_->Reap
  int waiters_ RS_GUARDED_BY(mutex_) = 0;          // on changed_
  bool growing_ RS_GUARDED_BY(mutex_) = false;     // a thread is inside Grow
  int first_error_ RS_GUARDED_BY(mutex_) = 0;      // errno of the first failed transfer
  bool warned_ RS_GUARDED_BY(mutex_) = false;      // of it
  TierStats stats_ RS_GUARDED_BY(mutex_);

  // What slots may use when the limit was set below the files' sizes: files are not cut, they are not filled.
  uint64_t usable_bytes_ RS_GUARDED_BY(mutex_) = UINT64_MAX;

  // The grower's own (growing_); others write them under mutex_ while nobody grows.
  uint64_t next_file_number_ = 0;
  std::atomic<uint64_t> limit_bytes_;  // read by anybody
  std::atomic<SwapPolicy> policy_;
  bool refused_ = false;
};

}  // namespace ramspan
