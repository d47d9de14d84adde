#include "client/swap/retirable_tier.h"

#include <string>
#include <thread>

namespace ramspan {

RetirableTier::RetirableTier(std::unique_ptr<SwapTier> tier)
    : tier_(std::move(tier)), capabilities_(tier_->capabilities()) {}

void RetirableTier::Retire() {
  Close();
  last_ = tier_->stats();
  last_.slot_bytes_used = last_.slot_bytes_capacity = last_.metadata_bytes = 0;
  retired_.store(true);
  while (users_.load() > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  tier_.reset();
}

SwapTier::Capabilities RetirableTier::CapabilitiesOf(SlotRef slot) const {
  Use use(this);
  return use ? use->CapabilitiesOf(slot) : capabilities_;
}

bool RetirableTier::IsLost(SlotRef slot, size_t bytes) const {
  Use use(this);
  return use && use->IsLost(slot, bytes);
}

Result<SlotRef> RetirableTier::Reserve(size_t bytes) {
  Use use(this);
  if (!use || closed_.load(std::memory_order_relaxed)) {
    return Unavailable(std::string(capabilities_.name) + " swap ended with MPI_Finalize");
  }
  return use->Reserve(bytes);
}

Result<SlotRef> RetirableTier::TryReserve(size_t bytes) {
  Use use(this);
  if (!use || closed_.load(std::memory_order_relaxed)) {
    return Unavailable(std::string(capabilities_.name) + " swap ended with MPI_Finalize");
  }
  return use->TryReserve(bytes);
}

void RetirableTier::Free(SlotRef slot, size_t bytes) {
  if (Use use(this); use) use->Free(slot, bytes);
}

void RetirableTier::Refuse(std::span<IoRequest* const> batch, StatusCode code) {
  MutexLock lock(mutex_);
  for (IoRequest* request : batch) {
    request->result = code;
    request->bytes_done = 0;
    request->next = refused_;
    refused_ = request;
  }
}

void RetirableTier::SubmitWrite(std::span<IoRequest* const> batch) {
  Use use(this);
  if (!use) return Refuse(batch, StatusCode::kUnavailable);
  use->SubmitWrite(batch);
}

void RetirableTier::SubmitRead(std::span<IoRequest* const> batch) {
  Use use(this);
  if (!use) return Refuse(batch, StatusCode::kDataLoss);
  use->SubmitRead(batch);
}

size_t RetirableTier::Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) {
  if (Use use(this); use) return use->Poll(done, wait);
  MutexLock lock(mutex_);
  size_t n = 0;
  for (; refused_ != nullptr && n < done.size(); refused_ = refused_->next) done[n++] = refused_;
  return n;
}

void RetirableTier::Upkeep() {
  if (Use use(this); use && !closed_.load(std::memory_order_relaxed)) use->Upkeep();
}

TierStats RetirableTier::stats() const {
  Use use(this);
  return use ? use->stats() : last_;
}

}  // namespace ramspan
