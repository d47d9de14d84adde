// FileSwap: the SwapTier of local files. Slots are cut by SlotSpace from files that SwapFileMaker makes when they are first needed
// and that no name leads to, so a kill leaves nothing behind. Freed room is used again before a file is added: written
// extents are faster than fresh ones.
//
// With O_DIRECT, transfers go through libaio, cut into parts that are in flight together. Buffered, they are plain
// pread and pwrite in the submitting thread: libaio would block there all the same.
//
// Thread-safety: as SwapTier says; one thread at a time collects the kernel's events for all. Ownership: owns its
// files; destroying it with requests in flight waits for the kernel and forgets them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/swap/slot_space.h"
#include "client/swap/swap_file_maker.h"
#include "client/swap/swap_tier.h"
#include "client/transport/aio_file.h"
#include "common/mutex.h"

namespace ramspan {

class FileSwap final : public PlainTier {
 public:
  // Proves with a nameless file that the directory can be written; makes nothing that stays.
  // kFailedPrecondition: it cannot, message names the remedy. kInvalidArgument: mask or sizes.
  static Result<std::unique_ptr<FileSwap>> Create(const FileSwapOptions& options);
  ~FileSwap() override;

  Capabilities capabilities() const noexcept override;
  Result<SlotRef> Reserve(size_t bytes) override;
  Result<SlotRef> TryReserve(size_t bytes) override;
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override;
  bool MayCut(SlotRef slot, size_t) const noexcept override { return !slot_bits::IsRow(slot); }
  void Free(SlotRef slot, size_t bytes) noexcept override;
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { Submit(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { Submit(batch, false); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  TierStats stats() const noexcept override;
  uint64_t metadata_bytes() const noexcept override;

  // The limit of all files together and what happens beyond it, at run time. Slots keep their places. Blocks while a
  // file is being made. kFailedPrecondition: more than `bytes` is in use; then nothing changes.
  Status SetLimit(uint64_t bytes) RS_EXCLUDES(mutex_);
  void SetPolicy(SwapPolicy policy) RS_EXCLUDES(mutex_);
  // Bytes of the files: free, in slots of one piece, in slots of several.
  void Fragmentation(uint64_t* free, uint64_t* whole, uint64_t* scattered) const RS_EXCLUDES(mutex_);
  uint64_t limit() const { return maker_.limit(); }
  SwapPolicy policy() const { return maker_.policy(); }

 private:
  FileSwap(const FileSwapOptions& options, bool direct, std::unique_ptr<AioQueue> aio);

  void AddFile(SwapFileMaker::File file) RS_REQUIRES(mutex_);
  uint64_t FileBytes() const RS_REQUIRES(mutex_);
  uint64_t MetadataBytes() const RS_REQUIRES(mutex_);
  void WaitWhileGrowing() RS_REQUIRES(mutex_);

  void Submit(std::span<IoRequest* const> batch, bool is_write) RS_EXCLUDES(mutex_);
  std::span<const AioTransfer> CutAll(std::span<IoRequest* const> batch) RS_EXCLUDES(mutex_);
  void Cut(IoRequest* request, std::vector<AioTransfer>* parts) RS_REQUIRES(mutex_);
  void StartAll(std::span<const AioTransfer> parts) RS_EXCLUDES(mutex_);
  void Absorb(std::span<const AioCompletion> completions) RS_REQUIRES(mutex_);
  void Finish(IoRequest* request) RS_REQUIRES(mutex_);
  void CloseRegionsOf(const IoRequest& request) RS_REQUIRES(mutex_);
  void OpenRegionsAgain() RS_REQUIRES(mutex_);
  void WarnOfFirstError() RS_REQUIRES(mutex_);
  void CollectEvents(std::chrono::microseconds wait) RS_REQUIRES(mutex_);
  size_t TakeDone(std::span<IoRequest*> done) RS_REQUIRES(mutex_);

  // Constant after construction.
  const bool direct_;
  const std::chrono::milliseconds closed_for_;
  const std::unique_ptr<AioQueue> aio_;  // null: transfers are done in the submitting thread

  mutable Mutex mutex_{LockRank::kTier};
  CondVar changed_;  // something completed, the collector's role or the grower's role is free
  SlotSpace space_ RS_GUARDED_BY(mutex_);
  std::vector<std::optional<SwapFileMaker::File>> files_ RS_GUARDED_BY(mutex_);  // by region
  bool has_closed_regions_ RS_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point open_again_ RS_GUARDED_BY(mutex_){};  // where there are some
  uint64_t in_flight_ RS_GUARDED_BY(mutex_) = 0;          // requests not yet on the done list
  IoRequest* done_head_ RS_GUARDED_BY(mutex_) = nullptr;  // linked by IoRequest::next
  IoRequest* done_tail_ RS_GUARDED_BY(mutex_) = nullptr;
  bool collecting_ RS_GUARDED_BY(mutex_) = false;  // a thread is inside aio_->Reap
  int waiters_ RS_GUARDED_BY(mutex_) = 0;          // on changed_
  bool growing_ RS_GUARDED_BY(mutex_) = false;     // a thread makes a file
  int first_error_ RS_GUARDED_BY(mutex_) = 0;      // errno of the first failed transfer
  bool warned_ RS_GUARDED_BY(mutex_) = false;      // of it
  TierStats stats_ RS_GUARDED_BY(mutex_);

  // What slots may use when the limit was set below the files' sizes: files are not cut, they are not filled.
  uint64_t usable_bytes_ RS_GUARDED_BY(mutex_) = UINT64_MAX;

  SwapFileMaker maker_;  // the grower's own (growing_), but for what it lets anybody ask
};

}  // namespace ramspan
