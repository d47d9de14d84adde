#include "client/swap/store_swap.h"

#include <algorithm>
#include <cstdio>
#include <exception>

#include "common/log.h"
#include "common/program_code.h"
#include "common/units.h"

namespace ramspan {

namespace {
// Slots that can be freed between two calls that tell the store, without an allocation: 16 KiB. The list grows beyond that
// where a program frees more in the few milliseconds between two Upkeeps.
constexpr size_t kFreedAtStart = 1024;
}  // namespace

StoreSwap::StoreSwap(SwapStore* store) : store_(store), name_(store->Name()) {
  freed_.reserve(kFreedAtStart);
  AskCapacity();
}

StoreSwap::~StoreSwap() { EraseFreed(); }

SwapTier::Capabilities StoreSwap::capabilities() const noexcept {
  Capabilities c;
  c.name = name_.c_str();
  c.synchronous = true;
  return c;
}

// The wall between Ramspan and the program's code: what a call throws becomes a text. No call of the store stands outside
// of it, because an exception would pass through the engine, which is in the middle of an eviction.
template <typename F>
std::optional<StoreSwap::Words> StoreSwap::Thrown(const F& call) noexcept {
  Words words;
  const ProgramCode running(ProgramCode::Of::kStore);
  try {
    call();
    return std::nullopt;
  } catch (const std::exception& e) {
    std::snprintf(words.text, sizeof words.text, "%s", e.what());
  } catch (...) {
    std::snprintf(words.text, sizeof words.text, "an exception that is no std::exception");
  }
  return words;
}

// A store that asks for its own use in Capacity gets what it has said last.
// Several threads may ask at once. An answer to a question that was put before another one's is not taken after that one's: it
// may be from before an Extend.
void StoreSwap::AskCapacity() {
  static thread_local bool asking = false;
  if (asking) return;
  uint64_t now = 0, question = 0;
  {
    MutexLock lock(mutex_);
    question = ++questions_;
  }
  asking = true;
  const bool thrown = Thrown([&] { now = store_->Capacity(); }).has_value();
  asking = false;
  if (thrown) return;
  MutexLock lock(mutex_);
  if (question < answered_) return;
  answered_ = question;
  capacity_ = now;
}

// Each slot by itself, so that several threads share a long list.
void StoreSwap::EraseFreed() {
  MutexLock lock(mutex_);
  while (!freed_.empty()) {
    const Freed slot = freed_.back();
    freed_.pop_back();
    ++erasing_;
    {
      MutexUnlock unlocked(mutex_);
      const ProgramCode running(ProgramCode::Of::kStore);
      store_->Erase(slot.slot, slot.bytes);
    }
    if (--erasing_ == 0) erased_.NotifyAll();
  }
}

void StoreSwap::Upkeep() {
  EraseFreed();
  AskCapacity();
}

Result<SlotRef> StoreSwap::TryReserve(size_t bytes) {
  MutexLock lock(mutex_);
  if (used_bytes_ + bytes > capacity_) return Status(StatusCode::kMustAsk, StaticText("the store may be extended"));
  return Take(bytes);
}

Result<SlotRef> StoreSwap::Reserve(size_t bytes) {
  for (;;) {
    Result<SlotRef> slot = TryReserve(bytes);
    if (slot.ok()) return slot;
    if (Status status = MakeRoom(bytes, Patience::kWait); !status.ok()) return status;  // else room is there, unless another thread takes it
  }
}

bool StoreSwap::HasRoom(size_t bytes) const {
  MutexLock lock(mutex_);
  return used_bytes_ + bytes <= capacity_;
}

Status StoreSwap::MakeRoom(size_t bytes, Patience) {
  EraseFreed();
  AskCapacity();
  if (HasRoom(bytes)) return Status();
  bool extended = false;
  const std::optional<Words> thrown = Thrown([&] { extended = store_->Extend(bytes); });
  AskCapacity();
  if (extended && HasRoom(bytes)) return Status();
  MutexLock lock(mutex_);
  return ResourceExhausted(name_ + " swap is full: " + FormatBytes(used_bytes_) + " of " + FormatBytes(capacity_) +
                           " are used and " + FormatBytes(bytes) + " more are needed; make it larger, or free objects" +
                           (thrown ? " (its Extend has failed: " + std::string(thrown->text) + ")" : ""));
}

SlotRef StoreSwap::TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) {
  MutexLock lock(mutex_);
  uint64_t used = used_bytes_ + bytes;
  size_t n = 0;
  while (used > capacity_ && n < given.size()) used -= given[n++].bytes;
  if (used > capacity_) return {};
  PrepareFree(1);
  for (const HeldSlot& one : given.first(n)) FreeLocked(one.slot, one.bytes);
  *taken = n;
  return Take(bytes);
}

void StoreSwap::PrepareFree(size_t more) {
  const size_t places = freed_.size() + slots_held_ + more;
  if (places > freed_.capacity()) freed_.reserve(std::max(places, 2 * freed_.capacity()));
}

SlotRef StoreSwap::Take(size_t bytes) {
  PrepareFree(1);
  ++slots_held_;
  used_bytes_ += bytes;
  stats_.slot_bytes_used += RoundUpToGranule(bytes);
  return SlotRef{next_slot_++};
}

void StoreSwap::Free(SlotRef slot, size_t bytes) noexcept {
  MutexLock lock(mutex_);
  FreeLocked(slot, bytes);
}

void StoreSwap::FreeLocked(SlotRef slot, size_t bytes) {
  freed_.push_back({slot.bits, bytes});  // PrepareFree has made the place
  --slots_held_;
  used_bytes_ -= bytes;
  stats_.slot_bytes_used -= RoundUpToGranule(bytes);
}

bool StoreSwap::Move(IoRequest* request, bool is_write) noexcept {
  bool moved = false;
  const std::optional<Words> thrown = Thrown([&] {
    moved = is_write ? store_->Write(request->slot.bits, request->buffer, request->bytes)
                     : store_->Read(request->slot.bits, request->buffer, request->bytes);
  });
  // What cannot be written is tried again and again: the first failure in a row is told.
  const bool failed_before = failing_[is_write].exchange(thrown.has_value(), std::memory_order_relaxed);
  if (!thrown) return moved;
  if (!failed_before) LogWarning("%s swap: %s of %zu bytes: %s", name_.c_str(), is_write ? "write" : "read", request->bytes, thrown->text);
  return false;
}

void StoreSwap::Submit(std::span<IoRequest* const> batch, bool is_write) {
  if (is_write) {
    Upkeep();
    MutexLock lock(mutex_);
    while (erasing_ > 0) erased_.WaitFor(mutex_, std::chrono::milliseconds(1));  // by other threads
  }
  for (IoRequest* request : batch) {
    const bool ok = Move(request, is_write);
    request->result = ok ? StatusCode::kOk : StatusCode::kUnavailable;
    request->bytes_done = ok ? request->bytes : 0;
    MutexLock lock(mutex_);
    ++(is_write ? stats_.writes : stats_.reads);
    (is_write ? stats_.bytes_written : stats_.bytes_read) += request->bytes_done;
    if (!ok) ++stats_.errors;
    request->next = done_;
    done_ = request;
  }
}

size_t StoreSwap::Poll(std::span<IoRequest*> done, std::chrono::microseconds) {
  MutexLock lock(mutex_);
  size_t n = 0;
  for (; done_ != nullptr && n < done.size(); done_ = done_->next) done[n++] = done_;
  return n;
}

TierStats StoreSwap::stats() const noexcept {
  MutexLock lock(mutex_);
  TierStats stats = stats_;
  stats.slot_bytes_capacity = capacity_;
  stats.metadata_bytes = sizeof(*this) + freed_.capacity() * sizeof(Freed);
  return stats;
}

}  // namespace ramspan
