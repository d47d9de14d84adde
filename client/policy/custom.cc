#include "client/policy/custom.h"

#include <algorithm>
#include <array>

namespace ramspan {

void CustomPolicy::OnMiss(Chunk* chunk, uint32_t /*thread*/) {
  wants_ahead_ = true;
  policy_->Missed(*this, chunk->id);
}

void CustomPolicy::OnPrefetchHit(Chunk* chunk) {
  LeaveWindow(chunk);
  wants_ahead_ = true;
  policy_->AheadUsed(*this, chunk->id);
}

void CustomPolicy::OnPrefetchWasted(Chunk* chunk) { LeaveWindow(chunk); }

void CustomPolicy::LeaveWindow(Chunk* chunk) {
  preemptive_bytes_ -= std::min<uint64_t>(preemptive_bytes_, chunk->bytes);
}

bool CustomPolicy::Chosen::Holds(const Chunk* chunk) const {
  const auto end = out.begin() + static_cast<ptrdiff_t>(n);
  return std::find(out.begin(), end, chunk) != end;
}

void CustomPolicy::Chosen::Add(Chunk* chunk) {
  if (full() || Holds(chunk)) return;
  out[n++] = chunk;
  bytes += chunk->bytes;
}

bool CustomPolicy::TestAndClearUsed(uint32_t id) const {
  Chunk* c = chunks_->At(id);
  if (!Has(c, kReferenced)) return false;
  ClearBits(c, kReferenced);
  return true;
}

size_t CustomPolicy::PickVictims(uint64_t bytes, std::span<Chunk*> out) {
  std::array<uint32_t, kNamedMax> named;
  const size_t room = std::min(out.size(), named.size());
  const size_t count = std::min(policy_->Victims(*this, bytes, std::span(named.data(), room)), room);
  // A policy that knows nothing of pins may name the same objects again although they are pinned, and so for ever. That is
  // noticed where its names fill all places (with fewer, the engine asks for more bytes): then half of the places are the
  // sweep's, which goes on to others.
  const bool repeats_itself = count == room && named[0] == last_first_;
  last_first_ = count > 0 ? named[0] : UINT32_MAX;
  Chosen chosen{out};
  for (size_t i = 0; i < (repeats_itself ? (room + 1) / 2 : count); ++i) {
    if (MayLeave(named[i])) chosen.Add(chunks_->At(named[i]));
  }
  FillBySweep(repeats_itself ? UINT64_MAX : bytes, &chosen);
  return chosen.n;
}

// The policy named too few: who comes next in the table leaves, until there are `bytes` or all places are taken.
void CustomPolicy::FillBySweep(uint64_t bytes, Chosen* chosen) {
  const uint32_t ids = chunks_->ids();
  for (uint32_t steps = 0; steps < ids && !chosen->full() && (chosen->n == 0 || chosen->bytes < bytes); ++steps) {
    if (sweep_ >= ids) sweep_ = 0;
    const uint32_t id = sweep_++;
    if (MayLeave(id)) chosen->Add(chunks_->At(id));
  }
}

size_t CustomPolicy::PickReadAhead(std::span<Chunk*> out) {
  if (preemptive_bytes_ >= ahead_bytes_max_) return 0;
  std::array<uint32_t, kNamedMax> named;
  const size_t room = std::min(out.size(), named.size());
  uint64_t left = ahead_bytes_max_ - preemptive_bytes_;
  const size_t count = std::min(policy_->ReadAhead(*this, left, std::span(named.data(), room)), room);
  Chosen chosen{out};
  for (size_t i = 0; i < count; ++i) {
    if (!Known(named[i]) || !MayReadAhead(chunks_->At(named[i]))) continue;
    Chunk* c = chunks_->At(named[i]);
    if (chosen.Holds(c)) continue;
    if (c->bytes > left) break;
    left -= c->bytes;
    chosen.Add(c);
  }
  wants_ahead_ = chosen.n > 0;
  return chosen.n;
}

std::string CustomPolicy::Describe() const {
  std::string text;
  for (uint32_t id = 0; id < chunks_->ids(); ++id) {
    if (!Known(id)) continue;
    text += std::to_string(id) + (InMemory(id) ? " resident " : " swapped ") + std::to_string(Bytes(id)) + " B\n";
  }
  return text;
}

}  // namespace ramspan
