#include "client/swap/tiered_swap.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "common/check.h"

namespace ramspan {
namespace {

using slot_bits::WithoutTier;
using slot_bits::WithTier;
using std::chrono::microseconds;

// How long one tier may be waited for while others have requests too, and while it is alone (another thread may then
// start something elsewhere).
constexpr microseconds kSharedSlice{50};
constexpr microseconds kLoneSlice{2000};

// So many slots are taken or left elsewhere, if there is room, after a write to a tier has failed; then it is tried again. A tier
// that fails for good costs one failed batch in so many writes.
constexpr uint32_t kRestSlots = 256;

// So long what MakeRoom has found full counts as full where there is room of last choice: for who looks for a victim after it.
constexpr int64_t kFullForNs = 10'000'000;

// Of the bytes that leave memory and have a slot in a slower tier, one in so many goes to a faster one.
constexpr int64_t kMovesUpOneIn = 4;

int64_t NowNs() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The index of a slot's tier.
size_t TierOf(SlotRef slot, size_t tier_count) {
  const uint64_t index_and_one = slot_bits::TierPlusOne(slot);
  RS_CHECK(index_and_one > 0 && index_and_one <= tier_count, "slot %llx names no tier",
           static_cast<unsigned long long>(slot.bits));
  return static_cast<size_t>(index_and_one - 1);
}

// Whether the tier is one of the order (TieredSwap::order_).
bool IsIn(uint64_t order, size_t tier) {
  while (order != 0 && (order & 15) - 1 != tier) order >>= 4;
  return order != 0;
}

bool IsFullOrGone(StatusCode code) {
  return code == StatusCode::kResourceExhausted || code == StatusCode::kUnavailable;
}

}  // namespace

TieredSwap::TieredSwap(std::vector<std::unique_ptr<SwapTier>> tiers, std::chrono::milliseconds room_lasts) : room_lasts_(room_lasts) {
  RS_CHECK(!tiers.empty() && tiers.size() <= kTiersMax, "%zu tiers", tiers.size());
  owned_.reserve(tiers.size());
  std::vector<size_t> order;
  for (auto& tier : tiers) order.push_back(Add(std::move(tier)));
  SetOrder(order);
}

TieredSwap::~TieredSwap() {
  for (size_t i = 0; i < tier_count(); ++i) {
    RS_CHECK(in_flight_[i].load(std::memory_order_relaxed) == 0, "tier %s ends with requests in flight",
             At(i)->capabilities().name);
  }
}

size_t TieredSwap::Add(std::unique_ptr<SwapTier> tier, size_t reuse) {
  const size_t count = count_.load(std::memory_order_relaxed);
  const size_t i = reuse < count ? reuse : count;
  if (i == kTiersMax) return kTiersMax;
  if (owned_.size() == owned_.capacity()) owned_.reserve(2 * owned_.size() + 1);  // may throw; from here on nothing does
  if (i < count) {
    const TierStats old = At(i)->stats();
    past_.bytes_written.fetch_add(old.bytes_written, std::memory_order_relaxed);
    past_.bytes_read.fetch_add(old.bytes_read, std::memory_order_relaxed);
    past_.writes.fetch_add(old.writes, std::memory_order_relaxed);
    past_.reads.fetch_add(old.reads, std::memory_order_relaxed);
    past_.errors.fetch_add(old.errors, std::memory_order_relaxed);
  }
  owned_.push_back(std::move(tier));
  rest_[i].store(0, std::memory_order_relaxed);  // failed writes were the old tier's
  tiers_[i].store(owned_.back().get(), std::memory_order_release);
  NoteFree(i);
  if (i == count) count_.store(count + 1, std::memory_order_release);
  return i;
}

void TieredSwap::SetOrder(std::span<const size_t> order) {
  uint64_t word = 0;
  for (size_t k = order.size(); k-- > 0;) word = word << 4 | (order[k] + 1);
  order_.store(word, std::memory_order_release);
}

std::vector<size_t> TieredSwap::order() const {
  std::vector<size_t> order;
  for (uint64_t word = order_.load(std::memory_order_acquire); word != 0; word >>= 4) order.push_back((word & 15) - 1);
  return order;
}

SwapTier::Capabilities TieredSwap::capabilities() const noexcept {
  Capabilities all = At(0)->capabilities();
  for (size_t i = 1; i < tier_count(); ++i) {
    const Capabilities one = At(i)->capabilities();
    all.synchronous = all.synchronous && one.synchronous;
    all.checksums = all.checksums && one.checksums;
    all.read_only = all.read_only && one.read_only;
    all.max_in_flight = std::min(all.max_in_flight, one.max_in_flight);
  }
  all.name = "tiered";
  return all;
}

SwapTier::Capabilities TieredSwap::CapabilitiesOf(SlotRef slot) const noexcept {
  return At(TierOf(slot, tier_count()))->CapabilitiesOf(WithoutTier(slot));
}

Result<SlotRef> TieredSwap::Reserve(size_t bytes) {
  std::string words;
  return ReserveInTurn(&words, bytes, [bytes](SwapTier& tier) { return tier.Reserve(bytes); });
}

// Also kMustAsk ends it: a faster tier that may still have room comes before a slower one that has some. Not where MakeRoom has just asked
// and found room only where something stands still: who is full may say so again and again (files do).
Result<SlotRef> TieredSwap::TryReserve(size_t bytes) {
  return ReserveInTurn(nullptr, bytes, [bytes](SwapTier& tier) { return tier.TryReserve(bytes); });
}

// What stands still in one tier keeps nobody from the room of another.
Status TieredSwap::MakeRoom(size_t bytes, Patience patience) {
  std::string words;
  return AskInTurn(&words, 0, [this, bytes, patience](size_t i, bool again) {
    Status status = At(i)->MakeRoom(bytes, again ? patience : Patience::kBrief);
    if (again && status.ok()) others_full_until_ns_.store(NowNs() + kFullForNs, std::memory_order_relaxed);
    return status;
  });
}

template <typename F>
Result<SlotRef> TieredSwap::ReserveInTurn(std::string* words, size_t bytes, const F& reserve) {
  SlotRef found;
  uint32_t last = 0;
  for (uint64_t word = order_.load(std::memory_order_acquire); word != 0; word >>= 4) {
    last |= uint32_t{At((word & 15) - 1)->StandsStill(SlotRef{}, bytes)} << (word & 15);
  }
  const Status status = AskInTurn(words, last, [&](size_t i, bool) {
    SwapTier& tier = *At(i);
    const Result<SlotRef> slot = reserve(tier);
    const bool goes_on = last != 0 && (last >> (i + 1) & 1) == 0 && slot.status().code() == StatusCode::kMustAsk && NowNs() < others_full_until_ns_.load(std::memory_order_relaxed);
    if (goes_on) return Status(StatusCode::kResourceExhausted, StaticText("it has been asked"));
    if (!slot.ok()) return slot.status();
    RS_CHECK(slot.value() && slot.value() == slot_bits::WithoutTier(slot.value()), "tier %s made slot %llx",
             tier.capabilities().name, static_cast<unsigned long long>(slot.value().bits));
    found = slot_bits::WithTier(slot.value(), i);
    free_[i].fetch_sub(static_cast<int64_t>(RoundUpToGranule(bytes)), std::memory_order_relaxed);
    return Status();
  });
  if (!status.ok()) return status;
  return found;
}

template <typename F>
Status TieredSwap::AskInTurn(std::string* words, uint32_t last, const F& ask) {
  StatusCode code = StatusCode::kUnavailable;
  const uint64_t order = order_.load(std::memory_order_acquire);
  uint32_t resting = last;  // also where writes have failed
  for (uint64_t word = order; word != 0; word >>= 4) resting |= uint32_t{TakeRest((word & 15) - 1)} << (word & 15);
  uint32_t again = 0;
  enum class Round { kAll, kResting, kAgain };
  for (const Round round : {Round::kAll, Round::kResting, Round::kAgain}) {
    for (uint64_t word = order; word != 0; word >>= 4) {
      const uint32_t bit = uint32_t{1} << (word & 15);
      if (round == Round::kAgain ? (again & bit) == 0 : ((resting & bit) != 0) != (round == Round::kResting)) continue;
      const size_t i = (word & 15) - 1;
      const Status status = ask(i, round == Round::kAgain);
      if (round != Round::kAgain && status.code() == StatusCode::kAborted) {
        again |= bit;
        continue;
      }
      if (!IsFullOrGone(status.code())) return status;
      if (status.code() == StatusCode::kResourceExhausted) code = StatusCode::kResourceExhausted;
      if (words == nullptr) continue;
      *words += (words->empty() ? "" : " | ") + std::string(At(i)->capabilities().name) + ": " + status.message();
    }
  }
  if (order == 0) return {code, StaticText("swap is closed, so no object can leave memory; raise the memory limit or open a swap")};
  if (words == nullptr) return {code, StaticText("no swap has room")};
  return Status(code, std::move(*words));
}

// Whether the tier rests now; one slot less that it does.
bool TieredSwap::TakeRest(size_t i) const {
  uint32_t left = rest_[i].load(std::memory_order_relaxed);
  while (left > 0 && !rest_[i].compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
  }
  return left > 0;
}

bool TieredSwap::IsLost(SlotRef slot, size_t bytes) const noexcept {
  return At(TierOf(slot, tier_count()))->IsLost(WithoutTier(slot), bytes);
}

uint32_t TieredSwap::LostWith(SlotRef slot, size_t bytes) const {
  const size_t own = TierOf(slot, tier_count());
  uint32_t server = At(own)->LostWith(WithoutTier(slot), bytes);
  for (size_t i = 0; i < own && server != kNoServer; ++i) server += static_cast<uint32_t>(At(i)->servers().size());
  return server;
}

bool TieredSwap::StandsStill(SlotRef slot, size_t bytes) noexcept {
  if (slot) return At(TierOf(slot, tier_count()))->StandsStill(WithoutTier(slot), bytes);
  for (uint64_t word = order_.load(std::memory_order_acquire); word != 0; word >>= 4) {
    if (!At((word & 15) - 1)->StandsStill(slot, bytes)) return false;
  }
  return true;
}

bool TieredSwap::HasLeaving() const noexcept {
  for (size_t i = 0; i < tier_count(); ++i) {
    if (At(i)->HasLeaving()) return true;
  }
  return false;
}

bool TieredSwap::MayCut(SlotRef slot, size_t bytes) const noexcept {
  return !is_closed() && At(TierOf(slot, tier_count()))->MayCut(WithoutTier(slot), bytes);
}

bool TieredSwap::IsLeaving(SlotRef slot, size_t bytes) const noexcept {
  return At(TierOf(slot, tier_count()))->IsLeaving(WithoutTier(slot), bytes);
}

SlotRef TieredSwap::TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) {
  if (given.empty()) return {};
  RS_CHECK(given.size() <= kExchangeMax, "%zu slots for one", given.size());
  const size_t i = TierOf(given[0].slot, tier_count());
  if (!IsIn(order_.load(std::memory_order_acquire), i)) return {};
  std::array<HeldSlot, kExchangeMax> own;
  for (size_t k = 0; k < given.size(); ++k) own[k] = {WithoutTier(given[k].slot), given[k].bytes};
  const SlotRef slot = At(i)->TryExchange(std::span(own.data(), given.size()), bytes, taken);
  if (!slot) return {};
  int64_t more = -static_cast<int64_t>(RoundUpToGranule(bytes));
  for (const HeldSlot& one : given.first(*taken)) more += static_cast<int64_t>(RoundUpToGranule(one.bytes));
  free_[i].fetch_add(more, std::memory_order_relaxed);
  return WithTier(slot, i);
}

void TieredSwap::Free(SlotRef slot, size_t bytes) noexcept {
  const size_t i = TierOf(slot, tier_count());
  At(i)->Free(WithoutTier(slot), bytes);
  free_[i].fetch_add(static_cast<int64_t>(RoundUpToGranule(bytes)), std::memory_order_relaxed);
}

// Runs of requests for one tier stay one batch: the caller's span is passed on in pieces, nothing is copied.
void TieredSwap::Submit(std::span<IoRequest* const> batch, bool is_write) {
  while (!batch.empty()) {
    const size_t i = TierOf(batch[0]->slot, tier_count());
    size_t run = 1;
    while (run < batch.size() && TierOf(batch[run]->slot, tier_count()) == i) ++run;
    const std::span<IoRequest* const> piece = batch.first(run);
    for (IoRequest* request : piece) request->slot = WithoutTier(request->slot);
    in_flight_[i].fetch_add(run, std::memory_order_relaxed);
    is_write ? At(i)->SubmitWrite(piece) : At(i)->SubmitRead(piece);
    batch = batch.subspan(run);
  }
}

size_t TieredSwap::PollTier(size_t i, std::span<IoRequest*> done, microseconds wait) {
  const size_t count = At(i)->Poll(done, wait);
  for (size_t k = 0; k < count; ++k) {
    done[k]->slot = WithTier(done[k]->slot, i);
    // A write for which the heap had no more says nothing of the tier.
    if (done[k]->is_write && done[k]->result != StatusCode::kOk && done[k]->result != StatusCode::kFailedPrecondition) {
      rest_[i].store(kRestSlots, std::memory_order_relaxed);
    }
  }
  in_flight_[i].fetch_sub(count, std::memory_order_relaxed);
  return count;
}

// What is complete now on any tier. Each call begins with another tier, so that a small `done` starves none. A tier that finds no heap
// must not take along what another one has handed over.
size_t TieredSwap::PollAll(std::span<IoRequest*> done) {
  const size_t first = turn_.fetch_add(1, std::memory_order_relaxed);
  size_t count = 0;
  for (size_t k = 0; k < tier_count() && count < done.size(); ++k) {
    const size_t i = (first + k) % tier_count();
    if (in_flight_[i].load(std::memory_order_relaxed) > 0) {
      count += WithinHeap([&] { return PollTier(i, done.subspan(count), microseconds{0}); }, size_t{0});
    }
  }
  return count;
}

// Waits a slice of `wait` on one tier that has requests; false when none has.
bool TieredSwap::WaitTurn(std::span<IoRequest*> done, microseconds wait, size_t* count) {
  const size_t first = turn_.fetch_add(1, std::memory_order_relaxed);
  size_t chosen = tier_count();
  size_t busy = 0;
  for (size_t k = 0; k < tier_count(); ++k) {
    const size_t i = (first + k) % tier_count();
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

SlotRef TieredSwap::SlotIn(size_t tier, SlotRef slot) { return WithTier(slot, tier); }

size_t TieredSwap::TierIndexOf(SlotRef slot) const { return TierOf(slot, tier_count()); }

void TieredSwap::ForgetMemory(std::span<std::byte> memory) noexcept {
  for (size_t i = 0; i < tier_count(); ++i) At(i)->ForgetMemory(memory);
}

void TieredSwap::Upkeep() {
  for (size_t i = 0; i < tier_count(); ++i) {
    At(i)->Upkeep();
    NoteFree(i);
    const bool has_room = free_[i].load(std::memory_order_relaxed) > 0 && !At(i)->HasLeaving();
    if (!has_room) room_since_ns_[i].store(0, std::memory_order_relaxed);
    else if (room_since_ns_[i].load(std::memory_order_relaxed) == 0) room_since_ns_[i].store(NowNs(), std::memory_order_relaxed);
  }
}

void TieredSwap::NoteFree(size_t i) {
  constexpr uint64_t kNoLimit = INT64_MAX / 2;  // what is given back later adds to it, and must not wrap
  const TierStats stats = At(i)->stats();
  const uint64_t capacity = std::min(stats.slot_bytes_capacity, kNoLimit);
  free_[i].store(static_cast<int64_t>(capacity) - static_cast<int64_t>(stats.slot_bytes_used), std::memory_order_relaxed);
}

TierStats TieredSwap::stats() const noexcept {
  TierStats sum;
  sum.bytes_written = past_.bytes_written.load(std::memory_order_relaxed);
  sum.bytes_read = past_.bytes_read.load(std::memory_order_relaxed);
  sum.writes = past_.writes.load(std::memory_order_relaxed);
  sum.reads = past_.reads.load(std::memory_order_relaxed);
  sum.errors = past_.errors.load(std::memory_order_relaxed);
  for (size_t i = 0; i < tier_count(); ++i) {
    sum += At(i)->stats();
  }
  sum.metadata_bytes += sizeof(*this);
  return sum;
}

uint64_t TieredSwap::metadata_bytes() const noexcept {
  uint64_t sum = sizeof(*this);
  for (size_t i = 0; i < tier_count(); ++i) sum += At(i)->metadata_bytes();
  return sum;
}

std::vector<ServerStats> TieredSwap::servers() const {
  std::vector<ServerStats> all;
  for (size_t i = 0; i < tier_count(); ++i) {
    for (ServerStats& one : At(i)->servers()) all.push_back(std::move(one));
  }
  return all;
}

// Counts bytes that leave for a slower tier, or stay there; whether one in four of them has been saved up for this chunk. Not more than that is
// saved up: where there was no room for long, the first chunks that find some do not all move at once.
bool TieredSwap::SavesUp(int64_t size) const {
  const int64_t left = std::min(left_below_.load(std::memory_order_relaxed) + size, kMovesUpOneIn * size);
  left_below_.store(left, std::memory_order_relaxed);
  return left >= kMovesUpOneIn * size;
}

bool TieredSwap::HasLastingRoom(size_t i, int64_t size) const {
  if (free_[i].load(std::memory_order_relaxed) < size) return false;
  const int64_t since = room_since_ns_[i].load(std::memory_order_relaxed);
  return since != 0 && NowNs() - since >= room_lasts_.count();
}

SlotRef TieredSwap::TryMoveUp(SlotRef slot, size_t bytes) {
  const size_t own = TierOf(slot, tier_count());
  const uint64_t order = order_.load(std::memory_order_acquire);
  if ((order & 15) - 1 == own || !IsIn(order, own)) return {};
  const int64_t size = static_cast<int64_t>(RoundUpToGranule(bytes));
  if (!SavesUp(size)) return {};
  for (uint64_t word = order; (word & 15) - 1 != own; word >>= 4) {
    const size_t i = (word & 15) - 1;
    if (!HasLastingRoom(i, size) || TakeRest(i) || At(i)->StandsStill(SlotRef{}, bytes)) continue;
    const Result<SlotRef> taken = At(i)->TryReserve(bytes);
    if (!taken.ok()) continue;
    free_[i].fetch_sub(size, std::memory_order_relaxed);
    left_below_.store(0, std::memory_order_relaxed);
    return WithTier(taken.value(), i);
  }
  return {};
}

bool TieredSwap::ShouldMove(SlotRef slot, size_t bytes) const noexcept {
  const size_t own = TierOf(slot, tier_count());
  const uint64_t order = order_.load(std::memory_order_acquire);
  if (!IsIn(order, own)) return false;  // it keeps what it has
  if (rest_[own].load(std::memory_order_relaxed) > 0 || At(own)->StandsStill(WithoutTier(slot), bytes)) return true;
  if ((order & 15) - 1 == own) return false;
  const int64_t size = static_cast<int64_t>(RoundUpToGranule(bytes));
  const bool saved_up = SavesUp(size);
  for (uint64_t word = order; (word & 15) - 1 != own; word >>= 4) {
    const size_t i = (word & 15) - 1;
    if (TakeRest(i) || !saved_up || !HasLastingRoom(i, size)) continue;
    left_below_.store(0, std::memory_order_relaxed);
    return true;
  }
  return false;
}

}  // namespace ramspan
