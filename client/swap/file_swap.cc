#include "client/swap/file_swap.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/check.h"
#include "common/log.h"
#include "common/thread_scratch.h"
#include "common/units.h"

namespace ramspan {
namespace {

using std::chrono::microseconds;

// So that one large chunk alone fills the disk's queue; 256 KiB to 1 MiB were alike on a 2-core virtual machine.
constexpr size_t kPartBytes = size_t{512} << 10;
constexpr microseconds kSlice{5000};           // the longest sleep without a look at what others did
constexpr microseconds kWaitMax{3600'000'000};
constexpr int kGrowthsMax = 64;                // files made for one slot (a small `ulimit -f`), or lost to others

uint64_t RoundDownToGranule(uint64_t bytes) { return bytes & ~uint64_t{kSwapGranule - 1}; }

StatusCode CodeFor(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return StatusCode::kResourceExhausted;
    case ENODATA:
      return StatusCode::kDataLoss;
    default:
      return StatusCode::kUnavailable;
  }
}

}  // namespace

Result<std::unique_ptr<FileSwap>> FileSwap::Create(const FileSwapOptions& options) {
  const Result<bool> direct = SwapFileMaker::Probe(options);
  if (!direct.ok()) return direct.status();
  std::unique_ptr<AioQueue> aio;
  if (direct.value()) {
    Result<std::unique_ptr<AioQueue>> queue = AioQueue::Create();
    if (queue.ok()) aio = std::move(queue).value();
    if (!queue.ok()) LogWarning("%s: swap files are read and written one at a time", queue.status().message().c_str());
  }
  return std::unique_ptr<FileSwap>(new FileSwap(options, direct.value(), std::move(aio)));
}

FileSwap::FileSwap(const FileSwapOptions& options, bool direct, std::unique_ptr<AioQueue> aio)
    : direct_(direct), closed_for_(options.closed_for), aio_(std::move(aio)), space_(options.files_max), maker_(options, direct) {}

FileSwap::~FileSwap() = default;

SwapTier::Capabilities FileSwap::capabilities() const noexcept {
  return {.name = "file", .synchronous = aio_ == nullptr, .checksums = false, .max_in_flight = 64};
}

uint64_t FileSwap::FileBytes() const {
  uint64_t sum = 0;
  for (const auto& file : files_) sum += file ? file->bytes : 0;
  return sum;
}

Result<SlotRef> FileSwap::Reserve(size_t bytes) {
  MutexLock lock(mutex_);
  OpenRegionsAgain();
  for (int growths = 0; growths < kGrowthsMax;) {
    const bool usable = space_.used_bytes() + RoundUpToGranule(bytes) <= usable_bytes_;
    if (usable) {
      if (SlotRef slot = space_.Reserve(bytes)) return slot;
    }
    if (growing_) {
      // The grower's wait is bounded: by the file system's answer, or by AskOnTerminal's timeout.
      ++waiters_;
      changed_.WaitFor(mutex_, kSlice);
      --waiters_;
      continue;
    }
    // Its limit was lowered below what its files have, and it is none where they may grow: all of them comes before another one.
    if (!usable && usable_bytes_ != UINT64_MAX && maker_.policy() == SwapPolicy::kAutoextendable) {
      usable_bytes_ = UINT64_MAX;
      maker_.GrowLimitTo(FileBytes());
      continue;
    }
    if (!space_.MayAddRegion()) return maker_.FullError("there are " + std::to_string(space_.regions()) + " of them, and can be no more (ulimit -f makes them small)");
    ++growths;
    growing_ = true;
    const uint64_t need = usable ? RoundUpToGranule(bytes) - space_.free_bytes() : RoundUpToGranule(bytes);
    const uint64_t have = usable ? FileBytes() : usable_bytes_;
    mutex_.unlock();
    Result<SwapFileMaker::File> file = WithinHeap([&] { return maker_.Make(need, have); }, Result<SwapFileMaker::File>(OutOfHeap()));
    mutex_.lock();
    growing_ = false;
    if (waiters_ > 0) changed_.NotifyAll();
    if (!file.ok()) return file.status();
    AddFile(std::move(file).value());
  }
  return maker_.FullError("no room was left after " + std::to_string(kGrowthsMax) + " new files" + (maker_.AreFilesLimited() ? ", which `ulimit -f` makes small: raise that" : ""));
}

Result<SlotRef> FileSwap::TryReserve(size_t bytes) {
  MutexLock lock(mutex_);
  OpenRegionsAgain();
  if (space_.used_bytes() + RoundUpToGranule(bytes) <= usable_bytes_) {
    if (SlotRef slot = space_.Reserve(bytes)) return slot;
  }
  return Status(StatusCode::kMustAsk, StaticText("a swap file has to be made"));
}

SlotRef FileSwap::TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) {
  MutexLock lock(mutex_);
  const std::optional<size_t> needed = space_.NeededOf(given, bytes);
  if (!needed) return {};
  uint64_t used = space_.used_bytes() + RoundUpToGranule(bytes);
  size_t n = 0;
  for (; n < given.size() && (n < *needed || used > usable_bytes_); ++n) used -= RoundUpToGranule(given[n].bytes);
  if (used > usable_bytes_) return {};
  space_.PrepareRow(bytes);  // while nothing is given back yet
  // A file that gives no slots any more and is empty now goes with the next Free.
  for (const HeldSlot& one : given.first(n)) space_.Free(one.slot, one.bytes);
  *taken = n;
  return space_.Reserve(bytes);
}

void FileSwap::AddFile(SwapFileMaker::File file) {
  files_.reserve(files_.size() + 1);  // before there is a region without a file
  const uint32_t region = space_.AddRegion(file.bytes).value();  // one thread at a time makes files, and looks before
  if (region >= files_.size()) files_.resize(region + 1);
  if (usable_bytes_ != UINT64_MAX) usable_bytes_ += file.bytes;
  files_[region].emplace(std::move(file));
}

void FileSwap::WaitWhileGrowing() {
  while (growing_) {
    ++waiters_;
    changed_.WaitFor(mutex_, kSlice);
    --waiters_;
  }
}

Status FileSwap::SetLimit(uint64_t bytes) {
  bytes = RoundDownToGranule(bytes);
  MutexLock lock(mutex_);
  WaitWhileGrowing();
  if (bytes < space_.used_bytes()) {
    return FailedPrecondition("swap files in " + maker_.folder() + " hold " +
                              FormatBytes(space_.used_bytes()) + " now, so their limit cannot be " + FormatBytes(bytes) +
                              "; free objects first, or raise the memory limit");
  }
  maker_.SetLimit(bytes);
  usable_bytes_ = bytes < FileBytes() ? bytes : UINT64_MAX;
  return {};
}

void FileSwap::Fragmentation(uint64_t* free, uint64_t* whole, uint64_t* scattered) const {
  MutexLock lock(mutex_);
  *free = space_.free_bytes();
  *scattered = space_.scattered_bytes();
  *whole = space_.used_bytes() - *scattered;
}

void FileSwap::SetPolicy(SwapPolicy policy) {
  MutexLock lock(mutex_);
  WaitWhileGrowing();
  maker_.SetPolicy(policy);
}

void FileSwap::Free(SlotRef slot, size_t bytes) noexcept {
  std::vector<SwapFileMaker::File> drained;  // closed after the lock is released: giving back a large file takes a while
  MutexLock lock(mutex_);
  space_.Free(slot, bytes);
  if (!has_closed_regions_) return;
  for (uint32_t r = 0; r < files_.size(); ++r) {
    if (!files_[r] || space_.RegionUsed(r) > 0 || space_.RegionFree(r) > 0) continue;
    // Where the heap has no more the file stays until the next Free.
    if (!WithinHeap([&] { return drained.reserve(drained.size() + 1), true; }, false)) return;
    drained.push_back(std::move(*files_[r]));
    files_[r].reset();
    space_.RemoveRegion(r);
  }
}

// The parts of all requests, which count as being in flight from now on. The list is the thread's own, and keeps its size.
std::span<const AioTransfer> FileSwap::CutAll(std::span<IoRequest* const> batch) {
  std::vector<AioTransfer>& parts = ThreadScratch<std::vector<AioTransfer>, struct FilePartsTag>();
  parts.clear();
  if (parts.capacity() == 0) parts.reserve(64);  // for a whole batch of the engine's
  MutexLock lock(mutex_);
  for (IoRequest* request : batch) Cut(request, &parts);
  in_flight_ += batch.size();
  return parts;
}

void FileSwap::Submit(std::span<IoRequest* const> batch, bool is_write) {
  for (IoRequest* request : batch) request->is_write = is_write;
  std::span<const AioTransfer> parts;
  try {
    parts = CutAll(batch);
  } catch (const std::bad_alloc&) {
    MutexLock lock(mutex_);
    for (IoRequest* request : batch) {
      request->result = StatusCode::kFailedPrecondition;
      request->bytes_done = 0;
      ++in_flight_;
      Finish(request);
    }
    if (waiters_ > 0) changed_.NotifyAll();
    return;
  }
  if (aio_ != nullptr) return StartAll(parts);
  for (const AioTransfer& part : parts) {
    const AioCompletion completion = TransferNow(part);
    MutexLock lock(mutex_);
    Absorb({&completion, 1});
    if (waiters_ > 0) changed_.NotifyAll();
  }
}

void FileSwap::Cut(IoRequest* request, std::vector<AioTransfer>* parts) {
  RS_CHECK(reinterpret_cast<uintptr_t>(request->buffer) % kSwapGranule == 0, "buffer %p of slot %llx is not aligned",
           request->buffer, static_cast<unsigned long long>(request->slot.bits));
  const size_t before = parts->size();
  // Direct transfers need whole blocks; the caller's buffer reaches to the granule's end.
  char* buffer = static_cast<char*>(request->buffer);
  space_.AnyExtentOf(request->slot, direct_ ? RoundUpToGranule(request->bytes) : request->bytes, [&](const Extent& extent) RS_NO_THREAD_SAFETY_ANALYSIS {
    const uint64_t part_bytes = aio_ != nullptr ? kPartBytes : extent.bytes;
    for (uint64_t at = 0; at < extent.bytes; at += part_bytes) {
      const size_t bytes = std::min(part_bytes, extent.bytes - at);
      const int fd = files_[extent.region]->file.fd();
      parts->push_back({fd, request->is_write, buffer, extent.offset + at, bytes, request});
      buffer += bytes;
    }
    return false;
  });
  request->result = StatusCode::kOk;
  request->bytes_done = 0;
  request->parts_left = static_cast<uint32_t>(parts->size() - before);
}

void FileSwap::StartAll(std::span<const AioTransfer> parts) {
  while (!parts.empty()) {
    parts = parts.subspan(aio_->Start(parts));
    if (parts.empty()) return;
    MutexLock lock(mutex_);
    CollectEvents(kSlice);  // makes room in the queue, or waits for the thread that does
  }
}

void FileSwap::Absorb(std::span<const AioCompletion> completions) {
  for (const AioCompletion& completion : completions) {
    auto* request = static_cast<IoRequest*>(completion.cookie);
    request->bytes_done += completion.bytes;
    if (completion.error != 0) {
      if (request->result == StatusCode::kOk) request->result = CodeFor(completion.error);
      if (first_error_ == 0) first_error_ = completion.error;
    }
    RS_CHECK(request->parts_left > 0, "slot %llx completed twice", static_cast<unsigned long long>(request->slot.bits));
    if (--request->parts_left == 0) Finish(request);
  }
  if (first_error_ != 0 && !warned_) WarnOfFirstError();
}

void FileSwap::Finish(IoRequest* request) {
  const bool ok = request->result == StatusCode::kOk;
  request->bytes_done = std::min(request->bytes_done, request->bytes);  // less the padding of direct transfers
  RS_CHECK(!ok || request->bytes_done == request->bytes, "slot %llx: %zu of %zu bytes",
           static_cast<unsigned long long>(request->slot.bits), request->bytes_done, request->bytes);
  if (!ok) ++stats_.errors;
  if (ok) {
    ++(request->is_write ? stats_.writes : stats_.reads);
    (request->is_write ? stats_.bytes_written : stats_.bytes_read) += request->bytes;
  }
  if (request->is_write && request->result == StatusCode::kResourceExhausted) CloseRegionsOf(*request);
  request->next = nullptr;
  (done_tail_ != nullptr ? done_tail_->next : done_head_) = request;
  done_tail_ = request;
  --in_flight_;
}

// The disk had less than the files' sizes promised: no new slots there; what was written can still be read.
void FileSwap::CloseRegionsOf(const IoRequest& request) {
  space_.AnyExtentOf(request.slot, request.bytes, [this](const Extent& extent) RS_NO_THREAD_SAFETY_ANALYSIS {
    space_.CloseRegion(extent.region);
    return false;
  });
  has_closed_regions_ = true;
  open_again_ = std::chrono::steady_clock::now() + closed_for_;
}

// A quota or a disk may be full for a moment only, and closed files count in the limit. Where it is full still, the next write closes them again.
void FileSwap::OpenRegionsAgain() {
  if (!has_closed_regions_ || std::chrono::steady_clock::now() < open_again_) return;
  has_closed_regions_ = false;
  for (uint32_t r = 0; r < files_.size(); ++r) {
    if (files_[r]) space_.OpenRegion(r);
  }
}

void FileSwap::WarnOfFirstError() {
  warned_ = true;
  const int error = first_error_;
  const bool full = CodeFor(error) == StatusCode::kResourceExhausted;
  const std::string folder = WithinHeap([this] { return maker_.folder(); }, std::string("swapfiles"));
  mutex_.unlock();
  LogWarning("a swap file in %s failed: %s%s", folder.c_str(), std::strerror(error),
             full             ? "; make room there or set swapfiles to another disk"
             : error == EBADF ? "; the program has closed its descriptor (closefrom, or a loop over all), and what it held is lost: close before the first managedPtr, or what is yours only"
                              : "");
  mutex_.lock();
}

// One thread at a time waits in the kernel, and hands out what it finds through the done list; the others wait for it
// to come back. So nobody sleeps on after its last request was collected by another thread.
void FileSwap::CollectEvents(microseconds wait) {
  wait = std::min(wait, kSlice);
  if (aio_ == nullptr || collecting_) {
    if (wait.count() == 0) return;
    ++waiters_;
    changed_.WaitFor(mutex_, wait);
    --waiters_;
    return;
  }
  collecting_ = true;
  mutex_.unlock();
  std::array<AioCompletion, 64> found;
  // No spinning first: 20 us of it gained nothing on an idle machine and cost throughput on a busy one.
  const size_t count = aio_->Reap(found, wait);
  mutex_.lock();
  collecting_ = false;
  Absorb({found.data(), count});
  if (waiters_ > 0) changed_.NotifyAll();
}

size_t FileSwap::TakeDone(std::span<IoRequest*> done) {
  size_t count = 0;
  while (count < done.size() && done_head_ != nullptr) {
    done[count++] = done_head_;
    done_head_ = done_head_->next;
  }
  if (done_head_ == nullptr) done_tail_ = nullptr;
  return count;
}

size_t FileSwap::Poll(std::span<IoRequest*> done, microseconds wait) {
  if (done.empty()) return 0;
  const auto deadline = std::chrono::steady_clock::now() + std::min(wait, kWaitMax);
  MutexLock lock(mutex_);
  for (bool last = false;;) {
    if (const size_t count = TakeDone(done)) return count;
    if (in_flight_ == 0 || last) return 0;
    const auto left = std::chrono::duration_cast<microseconds>(deadline - std::chrono::steady_clock::now());
    last = left.count() <= 0;
    CollectEvents(std::max(left, microseconds{0}));
  }
}

TierStats FileSwap::stats() const noexcept {
  MutexLock lock(mutex_);
  TierStats stats = stats_;
  stats.slot_bytes_used = space_.used_bytes();
  stats.slot_bytes_capacity = space_.capacity_bytes();
  stats.metadata_bytes = MetadataBytes();
  return stats;
}

uint64_t FileSwap::metadata_bytes() const noexcept {
  MutexLock lock(mutex_);
  return MetadataBytes();
}

uint64_t FileSwap::MetadataBytes() const {
  return sizeof(*this) + space_.metadata_bytes() + files_.capacity() * sizeof(files_[0]) + (aio_ != nullptr ? aio_->metadata_bytes() : 0);
}

}  // namespace ramspan
