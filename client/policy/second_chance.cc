#include "client/policy/second_chance.h"

namespace ramspan {

void SecondChancePolicy::Link(Chunk* chunk) {
  if (count_++ == 0) {
    chunk->prev = chunk->next = chunk->id;
    hand_ = chunk->id;
    return;
  }
  Chunk* first = At(hand_);
  chunk->prev = first->prev;
  chunk->next = hand_;
  At(first->prev)->next = chunk->id;
  first->prev = chunk->id;
}

void SecondChancePolicy::Unlink(Chunk* chunk) {
  if (hand_ == chunk->id) hand_ = chunk->next;
  At(chunk->prev)->next = chunk->next;
  At(chunk->next)->prev = chunk->prev;
  chunk->prev = kNone;
  if (--count_ == 0) hand_ = kNone;
}

// A new chunk has no frame yet; one that is there when this policy takes over may have one.
void SecondChancePolicy::OnCreate(Chunk* chunk) {
  chunk->prev = kNone;
  if (PhaseOf(chunk) != Phase::kSwapped) Link(chunk);
}

void SecondChancePolicy::OnFree(Chunk* chunk) {
  if (chunk->prev != kNone) Unlink(chunk);
}

void SecondChancePolicy::OnMiss(Chunk* chunk, uint32_t /*thread*/) {
  if (chunk->prev != kNone) Unlink(chunk);  // it had left and the hand has not come by since
  Link(chunk);
}

// The hand comes to it next, and it has no second chance.
void SecondChancePolicy::OnDone(Chunk* chunk) {
  if (chunk->prev != kNone) Unlink(chunk);
  Link(chunk);
  hand_ = chunk->id;
  ClearBits(chunk, kReferenced);
}

size_t SecondChancePolicy::PickVictims(uint64_t bytes, std::span<Chunk*> out) {
  uint64_t sum = 0;
  size_t n = 0;
  // In the first round every chunk may have a second chance, in the next round nobody has one but for new pins.
  uint64_t steps = 2 * count_;
  for (; steps > 0 && count_ > 0 && n < out.size() && sum < bytes; --steps) {
    Chunk* c = At(hand_);
    if (n > 0 && c == out[0]) break;  // once round: the others have been named, too
    const uint64_t word = c->state.load(std::memory_order_acquire);
    if (PhaseOf(word) == Phase::kSwapped || PhaseOf(word) == Phase::kLost) {
      Unlink(c);  // moves the hand on
      continue;
    }
    hand_ = c->next;
    if (PhaseOf(word) != Phase::kResident) continue;  // on its way in or out
    if (word & kReferenced) {
      ClearBits(c, kReferenced);
      continue;
    }
    out[n++] = c;
    sum += c->bytes;
  }
  return n;
}

bool SecondChancePolicy::IsValid() const {
  if (count_ == 0) return hand_ == kNone;
  const Chunk* c = At(hand_);
  for (uint64_t n = 0; n < count_; ++n) {
    const Chunk* next = At(c->next);
    if (next->prev != c->id) return false;
    c = next;
  }
  if (c->id != hand_) return false;
  for (uint32_t id = 0; id < chunks_->ids(); ++id) {  // what may have to leave can be found
    if (PhaseOf(At(id)) == Phase::kResident && !Has(At(id), kDoomed) && At(id)->prev == kNone) return false;
  }
  return true;
}

std::string SecondChancePolicy::Describe() const {
  if (count_ == 0) return "no objects\n";
  std::string text;
  const Chunk* c = At(hand_);
  do {
    text += std::to_string(c->id) + (PhaseOf(c) == Phase::kResident ? " resident " : " elsewhere ") + std::to_string(c->bytes) +
            " B" + (Has(c, kReferenced) ? " referenced" : "") + (c->id == hand_ ? " <- hand" : "") + "\n";
    c = At(c->next);
  } while (c->id != hand_);
  return text;
}

}  // namespace ramspan
