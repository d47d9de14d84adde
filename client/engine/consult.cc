// The policy that is in force: it is asked, told, and replaced by another one.
#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "client/engine/engine.h"

namespace ramspan {

using std::chrono::microseconds;

namespace {
constexpr auto kConsultingNap = microseconds(100);  // between looks whether a policy that goes is still being asked
}  // namespace

std::unique_ptr<CachePolicy> Engine::ReplacePolicy(const MakePolicy& make_policy) {
  std::unique_ptr<CachePolicy> next;
  {
    MutexLock lock(mutex_);
    next = ReplacePolicyLocked(make_policy);
    static_cast<void>(Consult(CachePolicy::Ask::kNothing, 0, 0));  // what there is already
    while (next->consulting > 0) {  // the program may destroy its own policy when this returns
      MutexUnlock unlocked(mutex_);
      std::this_thread::sleep_for(kConsultingNap);
    }
  }
  static_cast<void>(next->Consult(CachePolicy::Ask::kNothing, 0, 0));  // tells it the rest
  return next;
}

std::unique_ptr<CachePolicy> Engine::ReplacePolicyLocked(const MakePolicy& make_policy) {
  std::unique_ptr<CachePolicy> next = make_policy(&chunks_);
  next->Reserve(chunks_.ids());
  feed_.Drain();
  feed_.SetPolicy(next.get());
  next->SetLimits(load_ahead() ? budget_.limit() : 0, room_.swapped_bytes());
  for (uint32_t id = 0; id < chunks_.ids(); ++id) {
    Chunk* c = chunks_.At(id);
    if (PhaseOf(c) == Phase::kFreed || Has(c, kDoomed)) continue;
    // What the old policy fetched ahead is nobody's guess any more. Such a chunk is closed; its first pin opens it.
    if (Has(c, kPrefetched) || (c->op != nullptr && std::exchange(c->op->prefetch, false))) {
      policy_->OnPrefetchWasted(c);
      ++counters_.prefetch_wasted;
      ClearBits(c, kPrefetched);
    }
    policy_->OnFree(c);
    next->OnCreate(c);
  }
  std::swap(policy_, next);
  policies_fit_ = budget_.limit();
  ChargePolicy();
  return next;
}

// And for the one that is kept for later. A policy that needs more than those before it takes that from the frames with the next eviction.
void Engine::ChargePolicy() {
  const CachePolicy::Memory memory = policy_->memory(), kept = reserved_policy_ == nullptr ? CachePolicy::Memory() : reserved_policy_->memory();
  chunks_.SetBytesBeside(memory.per_chunk + kept.per_chunk);
  const uint64_t fixed = memory.fixed + kept.fixed;
  budget_.ChargeMetadata(fixed - std::exchange(policy_bytes_, fixed));
}

// Lets the program's own policy decide, without the mutex. Where another thread has replaced it meanwhile, the new one is asked:
// what a policy has named may be picked with its own turn only. The mutex is held when a turn ends, so who waits for
// `consulting` to be 0 can destroy the policy.
CachePolicy::Turn Engine::Consult(CachePolicy::Ask ask, uint64_t bytes, size_t places) {
  while (policy_->decides_in_consult()) {
    CachePolicy* const policy = policy_.get();
    CachePolicy::Turn turn;
    ++policy->consulting;
    {
      MutexUnlock unlocked(mutex_);
      turn = policy->Consult(ask, bytes, places);
    }
    --policy->consulting;
    if (policy == policy_.get()) return turn;
  }
  return {};
}

void Engine::TellTouches() {
  if (!mutex_.try_lock()) return;
  feed_.Drain();
  mutex_.unlock();
}

std::string Engine::DescribePolicy() const {
  MutexLock lock(mutex_);
  return policy_->Describe();
}

bool Engine::CheckPolicy() const {
  MutexLock lock(mutex_);
  return policy_->IsValid();
}

}  // namespace ramspan
