#include "client/swap/retirable_tier.h"

#include <string>
#include <thread>
#include <utility>

namespace ramspan {

RetirableTier::RetirableTier(std::unique_ptr<SwapTier> tier, std::string ended)
    : tier_(std::move(tier)), name_(tier_->capabilities().name), capabilities_(tier_->capabilities()), ended_(std::move(ended)) {
  capabilities_.name = name_.c_str();
}

void RetirableTier::WaitForUsers() const {
  while (users_.load() > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void RetirableTier::Retire() {
  Close();
  retired_.store(true);
  WaitForUsers();
  // What threads that still run had under way: they get it from here.
  while (in_flight_.load() > 0) {
    IoRequest* done[32];
    const size_t n = WithinHeap([&] { return tier_->Poll(done, std::chrono::microseconds(1000)); }, size_t{0});
    if (n == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    in_flight_ -= n;
    MutexLock lock(mutex_);
    for (IoRequest* request : std::span(done, n)) {
      if (request->is_write) request->result = StatusCode::kUnavailable;  // a promise that ends with the tier
      Keep(request);
    }
  }
  // Sums over the tiers must not fall: only now is all counted that was moved.
  last_ = tier_->stats();
  last_.slot_bytes_used = last_.slot_bytes_capacity = last_.slot_bytes_leaving = last_.metadata_bytes = 0;
  last_servers_ = WithinHeap([this] { return tier_->servers(); }, std::vector<ServerStats>());  // without heap: what they did is forgotten
  for (ServerStats& server : last_servers_) server.leased_bytes = server.slot_bytes_used = 0;
  counted_.store(true);
  WaitForUsers();
  tier_.reset();
}

void RetirableTier::Keep(IoRequest* request) {
  request->next = kept_;
  kept_ = request;
}

SwapTier::Capabilities RetirableTier::CapabilitiesOf(SlotRef slot) const noexcept {
  Use use(this);
  return use ? use->CapabilitiesOf(slot) : capabilities_;
}

bool RetirableTier::ShouldMove(SlotRef slot, size_t bytes) const noexcept {
  Use use(this);
  return use && use->ShouldMove(slot, bytes);
}

SlotRef RetirableTier::TryMoveUp(SlotRef slot, size_t bytes) {
  Use use(this);
  if (!use || closed_.load(std::memory_order_relaxed)) return {};
  return use->TryMoveUp(slot, bytes);
}

// Retired, it has lost everything: who drops a clean frame because the slot has the bytes, too, would drop the only copy.
bool RetirableTier::IsLost(SlotRef slot, size_t bytes) const noexcept {
  Use use(this);
  return !use || use->IsLost(slot, bytes);
}

uint32_t RetirableTier::LostWith(SlotRef slot, size_t bytes) const {
  Use use(this);
  return use ? use->LostWith(slot, bytes) : kNoServer;
}

bool RetirableTier::StandsStill(SlotRef slot, size_t bytes) noexcept {
  Use use(this);
  return use && use->StandsStill(slot, bytes);
}

bool RetirableTier::HasLeaving() const noexcept {
  Use use(this);
  return use && use->HasLeaving();
}

bool RetirableTier::IsLeaving(SlotRef slot, size_t bytes) const noexcept {
  Use use(this);
  return use && use->IsLeaving(slot, bytes);
}

Status RetirableTier::Ended() const { return Unavailable(name_ + " swap " + ended_); }

Result<SlotRef> RetirableTier::Reserve(size_t bytes) {
  Use use(this);
  if (!use || closed_.load(std::memory_order_relaxed)) return Ended();
  return use->Reserve(bytes);
}

Result<SlotRef> RetirableTier::TryReserve(size_t bytes) {
  Use use(this);
  if (!use || closed_.load(std::memory_order_relaxed)) return Status(StatusCode::kUnavailable, StaticText("this swap has ended"));
  return use->TryReserve(bytes);
}

// The room is looked for and let go under one Use: it cannot be given back to whatever comes after this tier.
Status RetirableTier::MakeRoom(size_t bytes, Patience patience) {
  Use use(this);
  if (!use || closed_.load(std::memory_order_relaxed)) return Ended();
  return use->MakeRoom(bytes, patience);
}

SlotRef RetirableTier::TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) {
  Use use(this);
  if (!use || closed_.load(std::memory_order_relaxed)) return {};
  return use->TryExchange(given, bytes, taken);
}

// Closed, it gets no more slots: who brings home what is in it looks at each only once.
bool RetirableTier::MayCut(SlotRef slot, size_t bytes) const noexcept {
  Use use(this);
  return use && !closed_.load(std::memory_order_relaxed) && use->MayCut(slot, bytes);
}

void RetirableTier::Free(SlotRef slot, size_t bytes) noexcept {
  if (Use use(this); use) use->Free(slot, bytes);
}

void RetirableTier::Refuse(std::span<IoRequest* const> batch, StatusCode code) {
  MutexLock lock(mutex_);
  for (IoRequest* request : batch) {
    request->result = code;
    request->bytes_done = 0;
    Keep(request);
  }
}

void RetirableTier::SubmitWrite(std::span<IoRequest* const> batch) noexcept {
  Use use(this);
  if (!use) return Refuse(batch, StatusCode::kUnavailable);
  in_flight_ += batch.size();
  use->SubmitWrite(batch);
}

void RetirableTier::SubmitRead(std::span<IoRequest* const> batch) noexcept {
  Use use(this);
  if (!use) return Refuse(batch, StatusCode::kDataLoss);
  in_flight_ += batch.size();
  use->SubmitRead(batch);
}

size_t RetirableTier::Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) {
  if (Use use(this); use) {
    const size_t n = use->Poll(done, wait);
    in_flight_ -= n;
    return n;
  }
  MutexLock lock(mutex_);
  size_t n = 0;
  for (; kept_ != nullptr && n < done.size(); kept_ = kept_->next) done[n++] = kept_;
  return n;
}

void RetirableTier::ForgetMemory(std::span<std::byte> memory) noexcept {
  if (Use use(this); use) use->ForgetMemory(memory);
}

void RetirableTier::Upkeep() {
  if (Use use(this); use) use->Upkeep();
}

TierStats RetirableTier::stats() const noexcept {
  Use use(this, counted_);
  if (!use) return last_;
  TierStats stats = use->stats();
  // Closed, it takes nothing more: whoever compares the two must find no room.
  if (closed_.load(std::memory_order_relaxed)) stats.slot_bytes_capacity = stats.slot_bytes_used;
  return stats;
}

uint64_t RetirableTier::metadata_bytes() const noexcept {
  Use use(this, counted_);
  return use ? use->metadata_bytes() : 0;
}

std::vector<ServerStats> RetirableTier::servers() const {
  Use use(this, counted_);
  return use ? use->servers() : last_servers_;
}

}  // namespace ramspan
