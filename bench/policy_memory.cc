#include "bench/policy_memory.h"

#include <algorithm>
#include <stdexcept>

#include "common/units.h"

namespace ramspan::bench {

PolicyTraffic PolicyTraffic::operator-(const PolicyTraffic& before) const {
  PolicyTraffic d = *this;
  d.touches -= before.touches;
  d.faults -= before.faults;
  d.misses -= before.misses;
  d.missed_bytes -= before.missed_bytes;
  d.ahead -= before.ahead;
  d.ahead_bytes -= before.ahead_bytes;
  d.hits -= before.hits;
  d.wasted -= before.wasted;
  d.wasted_bytes -= before.wasted_bytes;
  d.evictions -= before.evictions;
  d.bytes_in -= before.bytes_in;
  d.bytes_out -= before.bytes_out;
  return d;
}

void PolicyMemory::Pins::FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) {
  for (size_t i = 0; i < chunks.size(); ++i) pinned[i] = pinned[i] || std::find(held.begin(), held.end(), chunks[i]) != held.end();
}

PolicyMemory::PolicyMemory(const PolicySetting& setting, uint32_t threads, const MakePolicy& make_policy)
    : setting_(setting), budget_(setting.limit), chunks_(&budget_), pins_(threads), feed_(&chunks_, &pins_), policy_(make_policy(&chunks_)) {
  feed_.SetPolicy(policy_.get());
  TellLimits();
}

PolicyMemory::~PolicyMemory() = default;

void PolicyMemory::TellLimits() { policy_->SetLimits(setting_.bare ? 0 : setting_.limit, swapped_bytes_); }

Chunk* PolicyMemory::Create(uint64_t bytes) {
  if (chunks_.next_charge() > 0) policy_->FitChunks(chunks_.ids_with_next_charge());
  policy_->Reserve(chunks_.next_id() + 1);
  Chunk* const chunk = chunks_.New(bytes);
  policy_->OnCreate(chunk);
  live_bytes_ += RoundUpToGranule(bytes);
  return chunk;
}

void PolicyMemory::Free(Chunk* chunk) {
  std::replace(pins_.held.begin(), pins_.held.end(), chunk, static_cast<Chunk*>(nullptr));
  if (Has(chunk, kPrefetched)) Waste(chunk);
  policy_->OnFree(chunk);
  live_bytes_ -= RoundUpToGranule(chunk->bytes);
  if (PhaseOf(chunk) == Phase::kResident) used_ -= RoundUpToGranule(chunk->bytes);
  if (PhaseOf(chunk) == Phase::kSwapped && chunk->slot) swapped_bytes_ -= chunk->bytes;
  Transition(chunk, Event::kFree, 0, ~uint64_t{0});
  chunks_.Delete(chunk);
}

void PolicyMemory::Touch(Chunk* chunk, uint32_t thread, bool write) {
  pins_.current = thread;
  pins_.held[thread] = chunk;
  ++traffic_.touches;
  if (PhaseOf(chunk) == Phase::kSwapped) BringIn(chunk);
  if (Has(chunk, kPrefetched)) {
    ClearBits(chunk, kPrefetched);
    SetBits(chunk, kReferenced);  // the hit is the touch
    policy_->OnPrefetchHit(chunk);
    ++traffic_.hits;
    --untouched_;
  }
  feed_.Touch(chunk, OpenBits(chunk) | (write ? kDirty : 0), write);
  for (int turn = 0; turn < kMoverTurns && MoverTurn(); ++turn) {
  }
}

// Engine::TakeFrame and Load: room first, then the policy hears of the miss.
void PolicyMemory::BringIn(Chunk* chunk) {
  const uint64_t whole = RoundUpToGranule(chunk->bytes);
  typical_bytes_ = whole;
  while (available() < whole) {
    const uint64_t needed = whole - available();
    if (EvictSome(std::max(needed, BatchBytes(whole))) || EvictPrefetched(needed)) continue;
    throw std::runtime_error("a limit of " + FormatBytes(setting_.limit) + " is too little: what the threads hold leaves no room for another " +
                             FormatBytes(whole));
  }
  used_ += whole;
  ++traffic_.faults;
  policy_->OnMiss(chunk, pins_.ThisThread());
  SetBits(chunk, kReferenced);  // the miss is the touch
  if (!chunk->slot) {
    Transition(chunk, Event::kMaterialize);
    return;
  }
  ++traffic_.misses;
  traffic_.missed_bytes += chunk->bytes;
  traffic_.bytes_in += chunk->bytes;
  swapped_bytes_ -= chunk->bytes;
  Transition(chunk, Event::kBeginLoad);
  Transition(chunk, Event::kFinishLoad, OpenBits(chunk));
}

// Engine::BatchBytes.
uint64_t PolicyMemory::BatchBytes(uint64_t bytes) const { return std::min({kTogether * bytes, setting_.limit / 16, policy_->SpareBytes()}); }

// Engine::LookForVictims: ever more of them until one can leave, or all have been looked at.
bool PolicyMemory::EvictSome(uint64_t bytes) {
  policy_->BeginSearch();
  bool any = false;
  for (uint64_t seen = 0; seen < chunks_.live() && !any; bytes = std::min(2 * bytes, std::max(bytes, setting_.limit))) {
    Chunk* victims[kBatch];
    bool keep[kBatch] = {};
    const size_t n = policy_->PickVictims(bytes, victims);
    if (n == 0) break;
    seen += n;
    pins_.FindPinned(std::span(victims, n), std::span(keep, n));
    for (size_t i = 0; i < n; ++i) {
      if (keep[i]) {
        policy_->OnPinned(victims[i]);
        continue;
      }
      SendAway(victims[i]);
      any = true;
    }
  }
  return any;
}

// Engine::EvictPrefetched: where all else is held. Nobody holds what has not been touched.
bool PolicyMemory::EvictPrefetched(uint64_t bytes) {
  uint64_t freed = 0;
  for (uint32_t id = 0; id < chunks_.ids() && freed < bytes; ++id) {
    Chunk* const chunk = chunks_.At(id);
    if (PhaseOf(chunk) != Phase::kResident || !Has(chunk, kPrefetched)) continue;
    freed += RoundUpToGranule(chunk->bytes);
    SendAway(chunk);
  }
  return freed > 0;
}

// It goes without having been touched.
void PolicyMemory::Waste(Chunk* chunk) {
  ClearBits(chunk, kPrefetched);
  policy_->OnPrefetchWasted(chunk);
  ++traffic_.wasted;
  traffic_.wasted_bytes += chunk->bytes;
  --untouched_;
}

void PolicyMemory::SendAway(Chunk* chunk) {
  ClearBits(chunk, kReadable | kWritable);
  if (Has(chunk, kPrefetched)) Waste(chunk);
  constexpr uint64_t kGone = kReadable | kWritable | kReferenced | kDirty;
  if (Has(chunk, kDirty)) {
    chunk->slot = slot_bits::FromGranule(0, chunk->id);  // that there is one is all that anybody looks at
    SetBits(chunk, kHasSlot);
    traffic_.bytes_out += chunk->bytes;
    Transition(chunk, Event::kBeginWrite);
    Transition(chunk, Event::kFinishEvict, 0, kGone);
  } else {
    Transition(chunk, Event::kDrop, 0, kGone);
  }
  if (chunk->slot) swapped_bytes_ += chunk->bytes;
  used_ -= RoundUpToGranule(chunk->bytes);
  ++traffic_.evictions;
}

// Engine::MoverStep, without what takes time.
bool PolicyMemory::MoverTurn() {
  TellLimits();
  bool worked = !setting_.bare && RefillReserve();
  worked |= !setting_.bare && ReadAhead();
  worked |= feed_.StepEpoch();
  return worked;
}

// Engine::RefillReserve. Nothing is on its way out here: what has been sent away is gone.
bool PolicyMemory::RefillReserve() {
  constexpr uint64_t kReserveMin = 1 << 20;
  if (live_bytes_ <= setting_.limit || typical_bytes_ == 0) return false;
  const uint64_t reserve = BatchBytes(std::max(typical_bytes_, kReserveMin / kTogether));
  if (reserve < typical_bytes_ || available() > std::max(reserve / 2, typical_bytes_)) return false;
  return EvictSome(std::clamp(reserve - std::min(reserve, available()), typical_bytes_, kTogether * typical_bytes_));
}

bool PolicyMemory::ReadAhead() {
  Chunk* wanted[kAhead];
  const size_t n = policy_->PickReadAhead(wanted);
  size_t started = 0;
  for (; started < n && RoundUpToGranule(wanted[started]->bytes) <= available(); ++started) {
    Chunk* const chunk = wanted[started];
    used_ += RoundUpToGranule(chunk->bytes);
    swapped_bytes_ -= chunk->bytes;
    Transition(chunk, Event::kBeginLoad);
    policy_->OnPrefetchIssued(chunk);
    ++traffic_.ahead;
    traffic_.ahead_bytes += chunk->bytes;
    traffic_.bytes_in += chunk->bytes;
  }
  for (size_t i = 0; i < started; ++i) Transition(wanted[i], Event::kFinishLoad, kPrefetched);
  untouched_ += started;
  return started > 0;
}

bool PolicyMemory::IsValid() const {
  uint64_t used = 0, live = 0, swapped = 0, untouched = 0;
  for (uint32_t id = 0; id < chunks_.ids(); ++id) {
    const Chunk* const chunk = chunks_.At(id);
    if (PhaseOf(chunk) == Phase::kFreed) continue;
    const uint64_t whole = RoundUpToGranule(chunk->bytes);
    live += whole;
    used += PhaseOf(chunk) == Phase::kResident ? whole : 0;
    swapped += PhaseOf(chunk) == Phase::kSwapped && chunk->slot ? chunk->bytes : 0;
    untouched += Has(chunk, kPrefetched) ? 1 : 0;
  }
  const PolicyTraffic& t = traffic_;
  return used == used_ && used_ <= setting_.limit && live == live_bytes_ && swapped == swapped_bytes_ && untouched == untouched_ &&
         t.bytes_in == t.missed_bytes + t.ahead_bytes && t.ahead == t.hits + t.wasted + untouched_ && policy_->IsValid();
}

PolicyTraffic Replay(const PolicyTrace& trace, const PolicySetting& setting, const PolicyMemory::MakePolicy& make_policy, bool steady) {
  PolicyMemory memory(setting, trace.threads, make_policy);
  std::vector<Chunk*> chunks(trace.bytes.size(), nullptr);
  const uint64_t half = trace.touches() / 2;
  PolicyTraffic first;
  for (const PolicyTrace::Event& event : trace.events) {
    Chunk*& chunk = chunks[event.object];
    switch (event.kind) {
      case PolicyTrace::Kind::kCreate:
        chunk = memory.Create(trace.bytes[event.object]);
        break;
      case PolicyTrace::Kind::kFree:
        memory.Free(chunk);
        break;
      case PolicyTrace::Kind::kTouch:
        if (steady && memory.traffic().touches == half) first = memory.traffic();
        memory.Touch(chunk, event.thread, event.write);
        break;
    }
  }
  if (!memory.IsValid()) throw std::logic_error("the simulation of " + trace.name + " has lost count");
  return memory.traffic() - first;
}

}  // namespace ramspan::bench
