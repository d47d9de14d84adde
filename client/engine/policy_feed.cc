#include "client/engine/policy_feed.h"

#include <algorithm>

#include "client/engine/engine.h"

namespace ramspan {

void PolicyFeed::SetPolicy(CachePolicy* policy) {
  policy_ = nullptr;
  Drain();  // to nobody
  policy_ = policy;
  const CachePolicy::Interests interests = policy->interests();
  wants_costs_ = interests.costs;
  policy->SetCosts(&costs_);
  clear_next_ = clear_end_ = 0;
  last_epoch_ = last_epoch_ % kEpochMax + 1;
  epoch_.store(interests.touches ? last_epoch_ : 0, std::memory_order_relaxed);
}

void PolicyFeed::Touch(Chunk* chunk, uint64_t bits, bool write) {
  const uint64_t before = chunk->state.fetch_or(bits | kReferenced, std::memory_order_acq_rel);
  if ((before & kReferenced) || epoch() == 0) return;
  Drain();  // what this thread noted came before
  policy_->OnTouch(chunk, {.chunk = chunk->id, .thread = pins_->ThisThread(), .epoch = epoch(), .write = write});
}

void PolicyFeed::Drain() {
  if (policy_ != nullptr && epoch() == 0) return;
  pins_->TakeTouches([this](std::span<const ramspan::Touch> touches) {
    if (policy_ == nullptr) return;
    for (const ramspan::Touch& touch : touches) policy_->OnTouch(chunks_->At(touch.chunk), touch);
  });
}

bool PolicyFeed::StepEpoch() {
  if (epoch() == 0) return false;
  if (clear_next_ == clear_end_) {
    if (!policy_->WantsEpoch()) return false;
    Drain();
    last_epoch_ = last_epoch_ % kEpochMax + 1;
    epoch_.store(last_epoch_, std::memory_order_relaxed);  // the clearing below publishes it
    policy_->OnEpoch(last_epoch_);
    clear_next_ = 0;
    clear_end_ = chunks_->ids();
  }
  for (const uint32_t end = clear_next_ + std::min(kChunksAStep, clear_end_ - clear_next_); clear_next_ < end; ++clear_next_) {
    Chunk* chunk = chunks_->At(clear_next_);
    if (Has(chunk, kReferenced)) ClearBits(chunk, kReferenced);
  }
  return true;
}

}  // namespace ramspan
