#include "tests/support/fault_tier.h"

#include <cstring>
#include <vector>

#include "common/checksum.h"

namespace ramspan {

Result<SlotRef> FaultTier::Reserve(size_t bytes) {
  if (faults_.ForReserve()) return ResourceExhausted("full by plan");
  return real_->Reserve(bytes);
}

Result<SlotRef> FaultTier::TryReserve(size_t bytes) {
  if (faults_.ForReserve()) return ResourceExhausted("full by plan");
  return real_->TryReserve(bytes);
}

Status FaultTier::MakeRoom(size_t bytes, Patience patience) {
  if (faults_.ForReserve()) return ResourceExhausted("full by plan");
  return real_->MakeRoom(bytes, patience);
}

SlotRef FaultTier::TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) {
  const SlotRef slot = real_->TryExchange(given, bytes, taken);
  std::lock_guard lock(mutex_);
  if (slot) {
    for (const HeldSlot& one : given.first(*taken)) wrong_slots_.erase(one.slot.bits);
  }
  return slot;
}

void FaultTier::Free(SlotRef slot, size_t bytes) noexcept {
  {
    std::lock_guard lock(mutex_);
    wrong_slots_.erase(slot.bits);
  }
  real_->Free(slot, bytes);
}

void FaultTier::Submit(std::span<IoRequest* const> batch, bool is_write) {
  std::vector<IoRequest*> forwarded;
  {
    std::lock_guard lock(mutex_);
    for (IoRequest* request : batch) {
      Fault fault = is_write ? faults_.ForWrite() : faults_.ForRead();
      if (fault == Fault::kFails || fault == Fault::kFull) {
        request->is_write = is_write;
        request->bytes_done = 0;
        request->result = fault == Fault::kFull ? StatusCode::kResourceExhausted : StatusCode::kUnavailable;
        failed_.push_back(request);
        ++errors_;
        continue;
      }
      if (is_write) wrong_slots_.erase(request->slot.bits);
      if (is_write && fault == Fault::kFlippedByte) wrong_slots_.insert(request->slot.bits);
      if (!is_write && fault == Fault::kNone && wrong_slots_.count(request->slot.bits) > 0) fault = Fault::kFlippedByte;
      if (fault == Fault::kShort || (!is_write && fault == Fault::kFlippedByte)) to_spoil_[request] = fault;
      forwarded.push_back(request);
    }
  }
  is_write ? real_->SubmitWrite(forwarded) : real_->SubmitRead(forwarded);
}

size_t FaultTier::TakeFailed(std::span<IoRequest*> done) {
  std::lock_guard lock(mutex_);
  size_t count = 0;
  for (; count < done.size() && !failed_.empty(); failed_.pop_front()) done[count++] = failed_.front();
  return count;
}

size_t FaultTier::Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) {
  if (done.empty()) return 0;
  const size_t failed = TakeFailed(done);
  if (failed > 0) wait = std::chrono::microseconds{0};
  const size_t count = failed + real_->Poll(done.subspan(failed), wait);
  for (size_t i = failed; i < count; ++i) Spoil(done[i]);
  return count;
}

void FaultTier::Spoil(IoRequest* request) {
  Fault fault = Fault::kNone;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = to_spoil_.find(request); found != to_spoil_.end()) {
      fault = found->second;
      to_spoil_.erase(found);
    }
  }
  if (fault == Fault::kNone || request->result != StatusCode::kOk) return;
  auto* bytes = static_cast<std::byte*>(request->buffer);
  if (fault == Fault::kShort) request->bytes_done = request->bytes / 2;
  if (fault == Fault::kShort && !request->is_write) {
    std::memset(bytes + request->bytes_done, 0xdb, request->bytes - request->bytes_done);
  }
  if (fault == Fault::kFlippedByte) bytes[request->bytes / 2] ^= std::byte{0x40};
  // A tier that computes checksums would have computed it of the bytes as they came.
  if (!request->is_write) request->checksum = Checksum(bytes, request->bytes);
}

TierStats FaultTier::stats() const noexcept {
  TierStats stats = real_->stats();
  std::lock_guard lock(mutex_);
  stats.errors += errors_;
  return stats;
}

}  // namespace ramspan
