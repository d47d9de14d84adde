#include "client/swap/tiered_swap.h"

#include <algorithm>
#include <string>
#include <thread>

#include "common/check.h"

namespace ramspan {
namespace {

using std::chrono::microseconds;

constexpr int kTierShift = 60;
constexpr uint64_t kSlotMask = (uint64_t{1} << kTierShift) - 1;

// How long one tier may be waited for while others have requests too, and while it is alone (another thread may then
// start something elsewhere).
constexpr microseconds kSharedSlice{50};
constexpr microseconds kLoneSlice{2000};

SlotRef WithTier(size_t tier, SlotRef slot) { return {slot.bits | (uint64_t{tier} + 1) << kTierShift}; }
SlotRef WithoutTier(SlotRef slot) { return {slot.bits & kSlotMask}; }

// The index of a slot's tier.
size_t TierOf(SlotRef slot, size_t tier_count) {
  const uint64_t index_and_one = slot.bits >> kTierShift;
  RS_CHECK(index_and_one > 0 && index_and_one <= tier_count, "slot %llx names no tier",
           static_cast<unsigned long long>(slot.bits));
  return static_cast<size_t>(index_and_one - 1);
}

bool IsFullOrGone(StatusCode code) {
  return code == StatusCode::kResourceExhausted || code == StatusCode::kUnavailable;
}

}  // namespace

TieredSwap::TieredSwap(std::vector<std::unique_ptr<SwapTier>> tiers) : tiers_(std::move(tiers)) {
  RS_CHECK(!tiers_.empty() && tiers_.size() <= kTiersMax, "%zu tiers", tiers_.size());
}

TieredSwap::~TieredSwap() {
  for (size_t i = 0; i < tiers_.size(); ++i) {
    RS_CHECK(in_flight_[i].load(std::memory_order_relaxed) == 0, "tier %s ends with requests in flight",
             tiers_[i]->capabilities().name);
  }
}

SwapTier::Capabilities TieredSwap::capabilities() const {
  Capabilities all = tiers_[0]->capabilities();
  for (const auto& tier : tiers_) {
    const Capabilities one = tier->capabilities();
    all.synchronous = all.synchronous && one.synchronous;
    all.checksums = all.checksums && one.checksums;
    all.max_in_flight = std::min(all.max_in_flight, one.max_in_flight);
  }
  all.name = "tiered";
  return all;
}

SwapTier::Capabilities TieredSwap::CapabilitiesOf(SlotRef slot) const {
  return tiers_[TierOf(slot, tiers_.size())]->CapabilitiesOf(WithoutTier(slot));
}

Result<SlotRef> TieredSwap::Reserve(size_t bytes) {
  return ReserveInTurn([bytes](SwapTier& tier) { return tier.Reserve(bytes); });
}

// Also kAborted ends it: a faster tier that may still have room comes before a slower one that has some.
Result<SlotRef> TieredSwap::TryReserve(size_t bytes) {
  return ReserveInTurn([bytes](SwapTier& tier) { return tier.TryReserve(bytes); });
}

template <typename F>
Result<SlotRef> TieredSwap::ReserveInTurn(const F& reserve) {
  StatusCode code = StatusCode::kUnavailable;
  std::string message;
  for (size_t i = 0; i < tiers_.size(); ++i) {
    const Result<SlotRef> slot = reserve(*tiers_[i]);
    if (slot.ok()) {
      RS_CHECK(slot.value() && slot.value() == WithoutTier(slot.value()), "tier %s made slot %llx",
               tiers_[i]->capabilities().name, static_cast<unsigned long long>(slot.value().bits));
      return WithTier(i, slot.value());
    }
    if (!IsFullOrGone(slot.status().code())) return slot.status();
    if (slot.status().code() == StatusCode::kResourceExhausted) code = StatusCode::kResourceExhausted;
    message += (i > 0 ? " | " : "") + std::string(tiers_[i]->capabilities().name) + ": " + slot.status().message();
  }
  return Status(code, std::move(message));
}

bool TieredSwap::IsLost(SlotRef slot, size_t bytes) const {
  return tiers_[TierOf(slot, tiers_.size())]->IsLost(WithoutTier(slot), bytes);
}

void TieredSwap::Free(SlotRef slot, size_t bytes) {
  tiers_[TierOf(slot, tiers_.size())]->Free(WithoutTier(slot), bytes);
}

// Runs of requests for one tier stay one batch: the caller's span is passed on in pieces, nothing is copied.
void TieredSwap::Submit(std::span<IoRequest* const> batch, bool is_write) {
  while (!batch.empty()) {
    const size_t i = TierOf(batch[0]->slot, tiers_.size());
    size_t run = 1;
    while (run < batch.size() && TierOf(batch[run]->slot, tiers_.size()) == i) ++run;
    const std::span<IoRequest* const> piece = batch.first(run);
    for (IoRequest* request : piece) request->slot = WithoutTier(request->slot);
    in_flight_[i].fetch_add(run, std::memory_order_relaxed);
    is_write ? tiers_[i]->SubmitWrite(piece) : tiers_[i]->SubmitRead(piece);
    batch = batch.subspan(run);
  }
}

size_t TieredSwap::PollTier(size_t i, std::span<IoRequest*> done, microseconds wait) {
  const size_t count = tiers_[i]->Poll(done, wait);
  for (size_t k = 0; k < count; ++k) done[k]->slot = WithTier(i, done[k]->slot);
  in_flight_[i].fetch_sub(count, std::memory_order_relaxed);
  return count;
}

// What is complete now on any tier. Each call begins with another tier, so that a small `done` starves none.
size_t TieredSwap::PollAll(std::span<IoRequest*> done) {
  const size_t first = turn_.fetch_add(1, std::memory_order_relaxed);
  size_t count = 0;
  for (size_t k = 0; k < tiers_.size() && count < done.size(); ++k) {
    const size_t i = (first + k) % tiers_.size();
    if (in_flight_[i].load(std::memory_order_relaxed) > 0) {
      count += PollTier(i, done.subspan(count), microseconds{0});
    }
  }
  return count;
}

// Waits a slice of `wait` on one tier that has requests; false when none has.
bool TieredSwap::WaitTurn(std::span<IoRequest*> done, microseconds wait, size_t* count) {
  const size_t first = turn_.fetch_add(1, std::memory_order_relaxed);
  size_t chosen = tiers_.size();
  size_t busy = 0;
  for (size_t k = 0; k < tiers_.size(); ++k) {
    const size_t i = (first + k) % tiers_.size();
    if (in_flight_[i].load(std::memory_order_relaxed) == 0) continue;
    if (busy++ == 0) chosen = i;
  }
  if (busy == 0) return false;
  const auto begin = std::chrono::steady_clock::now();
  const microseconds slice = std::min(wait, busy == 1 ? kLoneSlice : kSharedSlice);
  *count = PollTier(chosen, done, slice);
  // The tier was empty after all: another thread holds its last requests and has not counted them yet.
  if (*count == 0 && std::chrono::steady_clock::now() - begin < slice / 2) std::this_thread::yield();
  return true;
}

size_t TieredSwap::Poll(std::span<IoRequest*> done, microseconds wait) {
  if (done.empty()) return 0;
  if (const size_t count = PollAll(done)) return count;
  const auto begin = std::chrono::steady_clock::now();
  for (auto left = wait; left.count() > 0;) {
    size_t count = 0;
    if (!WaitTurn(done, left, &count)) return 0;
    if (count > 0) return count;
    left = wait - std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - begin);
  }
  return 0;
}

size_t TieredSwap::TierIndexOf(SlotRef slot) const { return TierOf(slot, tiers_.size()); }

void TieredSwap::Upkeep() {
  for (const auto& tier : tiers_) tier->Upkeep();
}

TierStats TieredSwap::stats() const {
  TierStats sum;
  for (const auto& tier : tiers_) {
    const TierStats one = tier->stats();
    sum.bytes_written += one.bytes_written;
    sum.bytes_read += one.bytes_read;
    sum.writes += one.writes;
    sum.reads += one.reads;
    sum.errors += one.errors;
    sum.slot_bytes_used += one.slot_bytes_used;
    sum.slot_bytes_capacity += one.slot_bytes_capacity;
    sum.metadata_bytes += one.metadata_bytes;
  }
  sum.metadata_bytes += sizeof(*this) + tiers_.capacity() * sizeof(tiers_[0]);
  return sum;
}

bool TieredSwap::HasRoomAbove(SlotRef slot, size_t bytes) const {
  const size_t own = TierOf(slot, tiers_.size());
  for (size_t i = 0; i < own; ++i) {
    const TierStats stats = tiers_[i]->stats();
    const uint64_t taken = stats.slot_bytes_used + RoundUpToGranule(bytes);
    if (taken <= stats.slot_bytes_capacity) return true;
  }
  return false;
}

}  // namespace ramspan
