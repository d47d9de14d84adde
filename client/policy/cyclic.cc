#include "client/policy/cyclic.h"

#include <algorithm>
#include <cmath>

namespace ramspan {

void CyclicPolicy::InsertAfter(Chunk* place, Chunk* chunk) {
  chunk->prev = place->id;
  chunk->next = place->next;
  Next(place)->prev = chunk->id;
  place->next = chunk->id;
}

void CyclicPolicy::Remove(Chunk* chunk) {
  if (hand_ == chunk->id) hand_ = chunk->next;
  if (active_ == chunk->id) active_ = chunk->prev;
  At(chunk->prev)->next = chunk->next;
  At(chunk->next)->prev = chunk->prev;
  chunk->prev = chunk->next = chunk->id;
}

void CyclicPolicy::OnCreate(Chunk* chunk) {
  if (count_++ == 0) {
    chunk->prev = chunk->next = chunk->id;
    active_ = hand_ = chunk->id;
    return;
  }
  InsertAfter(At(active_), chunk);
  active_ = chunk->id;
}

void CyclicPolicy::OnFree(Chunk* chunk) {
  Remove(chunk);
  if (--count_ == 0) active_ = hand_ = kNone;
}

// The probability that an access to any chunk at random finds one of the window.
double CyclicPolicy::Chance() const {
  return static_cast<double>(window_bytes_) / static_cast<double>(std::max<uint64_t>(1, memory_bytes_ + swapped_bytes_));
}

// Whether the hits since the last miss are more than chance: Chance() to the power of their number is below kChanceMax. In
// logarithms, because the power underflows after many hits, which sets errno and a flag in the program's thread.
bool CyclicPolicy::IsOrdered() const {
  if (window_bytes_ == 0) return hits_since_miss_ > 0;
  return static_cast<double>(hits_since_miss_) * std::log(Chance()) < std::log(kChanceMax);
}

// Where the mover is slower than the program, an ordered access has misses, too, and no long row of hits between two.
// Then the hits of a whole run of misses are compared with those that chance would have made in it.
bool CyclicPolicy::IsOrderedAllTheSame() const {
  return static_cast<double>(hits_in_run_) >= kHitsOfOrder + kHitsOverChance * Chance() * static_cast<double>(misses_in_run_);
}

void CyclicPolicy::BeginRun(bool ordered) {
  ordered_ = ordered;
  misses_in_run_ = hits_in_run_ = 0;
}

void CyclicPolicy::OnMiss(Chunk* chunk, uint32_t /*thread*/) {
  if (IsOrdered()) {
    BeginRun(true);
    Decay();
  } else if (!HasReadOnlySlot(chunk)) {  // those are never fetched ahead, so they say nothing
    Narrow(chunk->bytes);
  }
  hits_since_miss_ = 0;
  if (chunk->id == active_) return;
  if (chunk->id != At(active_)->next) MoveRunToActive(chunk);
  active_ = chunk->id;
}

void CyclicPolicy::Decay() {
  const uint64_t free = window_bytes_ > preemptive_bytes_ ? window_bytes_ - preemptive_bytes_ : 0;
  decay_bytes_ = std::min(preemptive_bytes_, std::max<uint64_t>(1, 2 * free));
}

// Down to a chunk. That one is then replaced from time to time, to find out whether there is an order again.
void CyclicPolicy::Narrow(uint64_t chunk_bytes) {
  const uint64_t probe_after = std::clamp<uint64_t>(count_ / kProbeAfterPart, kProbeAfterMin, kProbeAfterMax);
  if (++misses_in_run_ < (window_bytes_ > chunk_bytes ? kNarrowAfter : probe_after)) return;
  const bool ordered = IsOrderedAllTheSame();
  BeginRun(ordered);
  if (ordered) return;
  if (window_bytes_ <= chunk_bytes) {
    decay_bytes_ = preemptive_bytes_;
    window_bytes_ = std::min(2 * window_bytes_, preemptive_bytes_max_);  // the next guess need not wait for the last to leave
    return;
  }
  window_bytes_ = std::max(window_bytes_ / 2, chunk_bytes);
  if (preemptive_bytes_ > window_bytes_) decay_bytes_ = preemptive_bytes_ - window_bytes_;
}

// Takes the chunk and those behind it that will be fetched ahead with it out of their place and puts them behind the
// active one, in the same order.
void CyclicPolicy::MoveRunToActive(Chunk* chunk) {
  uint64_t ahead = preemptive_bytes_;
  Chunk* place = At(active_);
  for (size_t moved = ahead_count_; moved <= kMaxAhead; ++moved) {
    Chunk* following = Next(chunk);
    if (hand_ == chunk->id) hand_ = chunk->next;
    Remove(chunk);
    InsertAfter(place, chunk);
    place = chunk;
    if (PhaseOf(following) != Phase::kSwapped || !following->slot || following->id == active_) return;
    ahead += following->bytes;
    if (ahead > window_bytes_) return;
    chunk = following;
  }
}

void CyclicPolicy::OnPrefetchIssued(Chunk* chunk) {
  preemptive_bytes_ += chunk->bytes;
  RS_CHECK(ahead_count_ < kMaxAhead, "%zu chunks fetched ahead", ahead_count_);
  ahead_[(ahead_begin_ + ahead_count_++) % kMaxAhead] = chunk->id;
}

void CyclicPolicy::OnPrefetchHit(Chunk* chunk) {
  LeaveWindow(chunk);
  ++hits_since_miss_;
  ++hits_in_run_;
  if (IsOrdered()) BeginRun(true);
  if (ordered_) window_bytes_ = std::min(window_bytes_ + std::max(chunk->bytes, window_bytes_ / kWidenPart), preemptive_bytes_max_);
  if (chunk->id == active_) return;
  if (chunk->id != At(active_)->next) {
    Remove(chunk);
    InsertAfter(At(active_), chunk);
  }
  active_ = chunk->id;
}

void CyclicPolicy::OnPrefetchWasted(Chunk* chunk) { LeaveWindow(chunk); }

// The chunk is no longer pre-emptive: it was touched, or left untouched.
void CyclicPolicy::LeaveWindow(Chunk* chunk) {
  RS_CHECK(preemptive_bytes_ >= chunk->bytes, "chunk %u leaves the pre-emptive budget twice", chunk->id);
  preemptive_bytes_ -= chunk->bytes;
  decay_bytes_ -= std::min(decay_bytes_, chunk->bytes);
  // Order of hits is mostly the order of issue, so this finds it at the front.
  for (size_t i = 0; i < ahead_count_; ++i) {
    if (ahead_[(ahead_begin_ + i) % kMaxAhead] != chunk->id) continue;
    for (; i > 0; --i) ahead_[(ahead_begin_ + i) % kMaxAhead] = ahead_[(ahead_begin_ + i - 1) % kMaxAhead];
    ahead_begin_ = (ahead_begin_ + 1) % kMaxAhead;
    --ahead_count_;
    return;
  }
}

void CyclicPolicy::SetLimits(uint64_t memory_bytes, uint64_t swapped_bytes) {
  memory_bytes_ = memory_bytes;
  swapped_bytes_ = swapped_bytes;
  const bool was_off = preemptive_bytes_max_ == 0;
  preemptive_bytes_max_ = memory_bytes / kWindowPart;
  window_bytes_ = was_off ? preemptive_bytes_max_ : std::min(window_bytes_, preemptive_bytes_max_);
}

size_t CyclicPolicy::PickPrefetched(uint64_t bytes, std::span<Chunk*> out) {
  uint64_t sum = 0;
  size_t n = 0;
  for (size_t i = 0; i < ahead_count_ && n < out.size() && sum < bytes; ++i) {
    Chunk* c = At(ahead_[(ahead_begin_ + i) % kMaxAhead]);
    if (PhaseOf(c) != Phase::kResident) continue;  // still loading
    out[n++] = c;
    sum += c->bytes;
  }
  return n;
}

// The hand comes to it next.
void CyclicPolicy::OnDone(Chunk* chunk) {
  if (count_ == 1) return;
  Remove(chunk);
  InsertAfter(At(At(hand_)->prev), chunk);
  hand_ = chunk->id;
}

size_t CyclicPolicy::PickVictims(uint64_t bytes, std::span<Chunk*> out) {
  if (count_ == 0 || out.empty()) return 0;
  size_t n = decay_bytes_ > 0 ? PickPrefetched(std::min(decay_bytes_, bytes), out) : 0;
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) sum += out[i]->bytes;
  for (uint64_t steps = 0; steps < count_ && n < out.size() && sum < bytes; ++steps) {
    Chunk* c = At(hand_);
    hand_ = c->next;
    const uint64_t word = c->state.load(std::memory_order_acquire);
    if (PhaseOf(word) != Phase::kResident || (word & kPrefetched)) continue;
    out[n++] = c;
    sum += c->bytes;
  }
  if (n == 0) n = PickPrefetched(bytes, out);  // nothing else is left
  return n;
}

// A part of the window is free: enough for a batch, and one chunk where it holds few.
bool CyclicPolicy::WantsReadAhead() const {
  return preemptive_bytes_ <= window_bytes_ - window_bytes_ / kRoomPart && ahead_count_ <= kMaxAhead - kMaxAhead / kRoomPart;
}

size_t CyclicPolicy::PickReadAhead(std::span<Chunk*> out) {
  if (count_ == 0 || ahead_count_ >= kMaxAhead) return 0;
  size_t n = 0;
  uint64_t ahead = 0;  // bytes between the active chunk and c: as many as the window has
  uint64_t picked = preemptive_bytes_;
  Chunk* c = Next(At(active_));
  for (size_t steps = 0; steps < kMaxAhead && c->id != active_ && n < out.size(); ++steps, c = Next(c)) {
    ahead += c->bytes;
    if (ahead > window_bytes_) break;
    if (!MayReadAhead(c)) continue;
    picked += c->bytes;
    if (picked > window_bytes_ || ahead_count_ + n >= kMaxAhead) break;
    out[n++] = c;
  }
  return n;
}

bool CyclicPolicy::IsValid() const {
  if (count_ == 0) return active_ == kNone && hand_ == kNone;
  uint64_t n = 0;
  const Chunk* c = At(active_);
  bool hand_seen = false;
  do {
    hand_seen |= c->id == hand_;
    if (Next(c)->prev != c->id) return false;
    c = Next(c);
    ++n;
  } while (c->id != active_ && n <= count_);
  return n == count_ && hand_seen;
}

std::string CyclicPolicy::Describe() const {
  if (count_ == 0) return "no objects\n";
  constexpr const char* kPhases[] = {"freed", "swapped", "loading", "resident", "writing", "lost"};
  std::string text;
  const Chunk* c = At(active_);
  do {
    text += std::to_string(c->id) + " " + kPhases[static_cast<int>(PhaseOf(c))] + " " + std::to_string(c->bytes) + " B";
    if (Has(c, kPrefetched)) text += " pre-emptive";
    if (c->id == active_) text += " <- active";
    if (c->id == hand_) text += " <- counteractive";
    text += "\n";
    c = Next(c);
  } while (c->id != active_);
  return text;
}

}  // namespace ramspan
