#include "client/policy/custom.h"

#include <algorithm>
#include <array>

namespace ramspan {

void CustomPolicy::OnMiss(Chunk* chunk, uint32_t /*thread*/) {
  wants_ahead_ = true;
  policy_->Missed(*this, chunk->id);
}

void CustomPolicy::OnPrefetchHit(Chunk* chunk) {
  OnPrefetchWasted(chunk);
  wants_ahead_ = true;
  policy_->AheadUsed(*this, chunk->id);
}

void CustomPolicy::OnPrefetchWasted(Chunk* chunk) {
  preemptive_bytes_ -= std::min<uint64_t>(preemptive_bytes_, chunk->bytes);
}

bool CustomPolicy::TestAndClearUsed(uint32_t id) const {
  Chunk* c = chunks_->At(id);
  if (!Has(c, kReferenced)) return false;
  ClearBits(c, kReferenced);
  return true;
}

size_t CustomPolicy::PickVictims(uint64_t bytes, std::span<Chunk*> out) {
  std::array<uint32_t, 64> named;
  const size_t room = std::min(out.size(), named.size());
  const size_t count = std::min(policy_->Victims(*this, bytes, std::span(named.data(), room)), room);
  uint64_t sum = 0;
  size_t n = 0;
  const auto add = [&](uint32_t id) {
    Chunk* c = chunks_->At(id);
    if (std::find(out.begin(), out.begin() + static_cast<ptrdiff_t>(n), c) != out.begin() + static_cast<ptrdiff_t>(n)) return;
    out[n++] = c;
    sum += c->bytes;
  };
  // Who fills all places with the same as before names what is pinned. (With fewer, the engine asks for more bytes.)
  const bool again = count == room && named[0] == last_first_;
  last_first_ = count > 0 ? named[0] : UINT32_MAX;
  for (size_t i = 0; i < (again ? std::min(count, (room + 1) / 2) : count); ++i) {
    if (MayLeave(named[i])) add(named[i]);
  }
  const uint32_t ids = chunks_->ids();
  for (uint32_t steps = 0; steps < ids && n < out.size() && (n == 0 || again || sum < bytes); ++steps) {
    if (sweep_ >= ids) sweep_ = 0;
    const uint32_t id = sweep_++;
    if (MayLeave(id)) add(id);
  }
  return n;
}

size_t CustomPolicy::PickReadAhead(std::span<Chunk*> out) {
  if (preemptive_bytes_ >= ahead_bytes_max_) return 0;
  std::array<uint32_t, 64> named;
  const size_t room = std::min(out.size(), named.size());
  uint64_t left = ahead_bytes_max_ - preemptive_bytes_;
  const size_t count = std::min(policy_->ReadAhead(*this, left, std::span(named.data(), room)), room);
  size_t n = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!Known(named[i]) || !InSwap(named[i]) || Has(chunks_->At(named[i]), kDoomed | kMapped)) continue;
    Chunk* c = chunks_->At(named[i]);
    if (std::find(out.begin(), out.begin() + static_cast<ptrdiff_t>(n), c) != out.begin() + static_cast<ptrdiff_t>(n)) continue;
    if (c->bytes > left) break;
    left -= c->bytes;
    out[n++] = c;
  }
  wants_ahead_ = n > 0;
  return n;
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
