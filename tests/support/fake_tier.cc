#include "tests/support/fake_tier.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/checksum.h"

namespace ramspan {
namespace {

unsigned long long Id(SlotRef slot) { return static_cast<unsigned long long>(slot.bits); }

}  // namespace

FakeTier::FakeTier(const FakeTierOptions& options)
    : options_(options),
      faults_(options.seed * 2 + 1, options.rates),
      random_(options.seed),
      capacity_bytes_(options.capacity_bytes) {}

FakeTier::~FakeTier() { RS_CHECK(pending_.empty(), "a tier ends with %zu requests in flight", pending_.size()); }

SwapTier::Capabilities FakeTier::capabilities() const noexcept {
  return {.name = options_.name,
          .synchronous = options_.synchronous,
          .checksums = options_.checksums,
          .read_only = options_.read_only,
          .max_in_flight = 1 << 20};
}

Result<SlotRef> FakeTier::Reserve(size_t bytes) {
  RS_CHECK(bytes > 0, "a slot of no bytes");
  const bool full_by_plan = faults_.ForReserve();
  std::lock_guard lock(mutex_);
  if (gone_) return Unavailable("fake tier is gone");
  const uint64_t take = RoundUpToGranule(bytes);
  if (full_by_plan || stats_.slot_bytes_used + take > capacity_bytes_) {
    return ResourceExhausted("fake tier is full: give it more capacity_bytes");
  }
  stats_.slot_bytes_used += take;
  slots_[next_slot_].bytes = bytes;
  return SlotRef{next_slot_++};
}

Result<SlotRef> FakeTier::TryReserve(size_t bytes) {
  if (options_.reserve_waits_rate > 0) {
    std::lock_guard lock(mutex_);
    if (std::bernoulli_distribution(options_.reserve_waits_rate)(random_)) return MustAsk("ask with Reserve");
  }
  Result<SlotRef> slot = Reserve(bytes);
  if (slot.ok()) return slot;
  if (options_.full_asks && slot.status().code() == StatusCode::kResourceExhausted) return MustAsk("ask with Reserve");
  return Status(slot.status().code(), StaticText("fake tier has no room"));
}

SlotRef FakeTier::TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) {
  std::lock_guard lock(mutex_);
  uint64_t used = stats_.slot_bytes_used + RoundUpToGranule(bytes);
  size_t n = 0;
  while (used > capacity_bytes_ && n < given.size()) used -= RoundUpToGranule(given[n++].bytes);
  if (gone_ || used > capacity_bytes_) return {};
  for (const HeldSlot& one : given.first(n)) FreeLocked(one.slot, one.bytes);
  *taken = n;
  stats_.slot_bytes_used += RoundUpToGranule(bytes);
  slots_[next_slot_].bytes = bytes;
  return SlotRef{next_slot_++};
}

void FakeTier::Free(SlotRef slot, size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  FreeLocked(slot, bytes);
}

void FakeTier::FreeLocked(SlotRef slot, size_t bytes) {
  const auto found = slots_.find(slot.bits);
  RS_CHECK(found != slots_.end(), "free of slot %llx, which is not reserved", Id(slot));
  RS_CHECK(found->second.bytes == bytes, "slot %llx of %zu bytes freed as %zu", Id(slot), found->second.bytes, bytes);
  RS_CHECK(!found->second.writer && found->second.readers == 0, "slot %llx freed with I/O in flight (I4)", Id(slot));
  stats_.slot_bytes_used -= RoundUpToGranule(bytes);
  slots_.erase(found);
}

FakeTier::Slot& FakeTier::SlotOf(const IoRequest& request) {
  const auto found = slots_.find(request.slot.bits);
  RS_CHECK(found != slots_.end(), "I/O on slot %llx, which is not reserved", Id(request.slot));
  RS_CHECK(found->second.bytes == request.bytes, "slot %llx of %zu bytes used as %zu", Id(request.slot),
           found->second.bytes, request.bytes);
  return found->second;
}

void FakeTier::Submit(std::span<IoRequest* const> batch, bool is_write) {
  for (IoRequest* request : batch) {
    const Fault fault = is_write ? faults_.ForWrite() : faults_.ForRead();
    std::lock_guard lock(mutex_);
    Slot& slot = SlotOf(*request);
    RS_CHECK(reinterpret_cast<uintptr_t>(request->buffer) % kSwapGranule == 0, "unaligned buffer %p", request->buffer);
    RS_CHECK(!slot.writer && (!is_write || slot.readers == 0), "slot %llx has I/O in flight", Id(request->slot));
    RS_CHECK(is_write || slot.written, "slot %llx is read before it was written", Id(request->slot));
    request->is_write = is_write;
    request->result = StatusCode::kOk;
    request->bytes_done = 0;
    is_write ? void(slot.writer = true) : void(++slot.readers);
    if (!is_write) Garble(static_cast<std::byte*>(request->buffer), RoundUpToGranule(request->bytes));
    const uint64_t delay = options_.synchronous ? 0 : 1 + random_() % options_.delay_steps_max;
    pending_.push_back({request, now_ + delay, fault, is_write ? Checksum(request->buffer, request->bytes) : 0});
  }
}

size_t FakeTier::Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) {
  std::lock_guard lock(mutex_);
  if (pending_.empty() || done.empty()) return 0;
  ++now_;
  if (std::uniform_real_distribution<double>(0, 1)(random_) < options_.empty_poll_rate) return 0;
  const auto by_due = [](const Pending& a, const Pending& b) { return a.due < b.due; };
  if (wait.count() > 0) now_ = std::max(now_, std::min_element(pending_.begin(), pending_.end(), by_due)->due);
  std::shuffle(pending_.begin(), pending_.end(), random_);
  size_t count = 0;
  for (size_t i = 0; i < pending_.size() && count < done.size();) {
    if (pending_[i].due > now_) {
      ++i;
      continue;
    }
    const Pending ready = pending_[i];
    pending_[i] = pending_.back();
    pending_.pop_back();
    Complete(ready);
    done[count++] = ready.request;
  }
  return count;
}

void FakeTier::Complete(const Pending& pending) {
  IoRequest& request = *pending.request;
  Slot& slot = SlotOf(request);
  if (gone_ || pending.fault == Fault::kFails) request.result = StatusCode::kUnavailable;
  if (!gone_ && pending.fault == Fault::kFull) request.result = StatusCode::kResourceExhausted;
  request.is_write ? CompleteWrite(pending, &slot) : CompleteRead(pending, &slot);
  const bool ok = request.result == StatusCode::kOk;
  if (!ok) ++stats_.errors;
  if (!ok) return;
  ++(request.is_write ? stats_.writes : stats_.reads);
  (request.is_write ? stats_.bytes_written : stats_.bytes_read) += request.bytes_done;
}

void FakeTier::CompleteWrite(const Pending& pending, Slot* slot) {
  IoRequest& request = *pending.request;
  const auto* from = static_cast<const std::byte*>(request.buffer);
  RS_CHECK(Checksum(from, request.bytes) == pending.written_checksum,
           "the buffer of slot %llx changed while it was written out (I3)", Id(request.slot));
  slot->writer = false;
  slot->written = true;
  slot->data.resize(request.bytes);
  Garble(slot->data.data(), request.bytes);
  if (request.result != StatusCode::kOk) return;
  request.bytes_done = pending.fault == Fault::kShort ? request.bytes / 2 : request.bytes;
  std::copy_n(from, request.bytes_done, slot->data.begin());
  if (pending.fault == Fault::kFlippedByte) slot->data[random_() % request.bytes] ^= std::byte{0x40};
  if (options_.checksums) request.checksum = pending.written_checksum;
}

void FakeTier::CompleteRead(const Pending& pending, Slot* slot) {
  IoRequest& request = *pending.request;
  auto* to = static_cast<std::byte*>(request.buffer);
  --slot->readers;
  Garble(to, request.bytes);
  if (request.result != StatusCode::kOk) return;
  request.bytes_done = pending.fault == Fault::kShort ? request.bytes / 2 : request.bytes;
  std::copy_n(slot->data.begin(), request.bytes_done, to);
  if (pending.fault == Fault::kFlippedByte) to[random_() % request.bytes] ^= std::byte{0x40};
  if (options_.checksums) request.checksum = Checksum(to, request.bytes);
}

void FakeTier::Garble(std::byte* at, size_t bytes) {
  std::memset(at, static_cast<int>(0x80 | (random_() & 0x7f)), bytes);
}

TierStats FakeTier::stats() const noexcept {
  std::lock_guard lock(mutex_);
  TierStats stats = stats_;
  stats.slot_bytes_capacity = capacity_bytes_;
  return stats;
}

void FakeTier::Step(uint64_t steps) {
  std::lock_guard lock(mutex_);
  now_ += steps;
}

void FakeTier::SetCapacity(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  capacity_bytes_ = bytes;
}

void FakeTier::SetGone(bool gone) {
  std::lock_guard lock(mutex_);
  gone_ = gone;
}

bool FakeTier::IsLost(SlotRef, size_t) const noexcept {
  std::lock_guard lock(mutex_);
  return gone_;
}

uint64_t FakeTier::now() const {
  std::lock_guard lock(mutex_);
  return now_;
}

size_t FakeTier::in_flight() const {
  std::lock_guard lock(mutex_);
  return pending_.size();
}

size_t FakeTier::slots() const {
  std::lock_guard lock(mutex_);
  return slots_.size();
}

}  // namespace ramspan
