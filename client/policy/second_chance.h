// Second chance: the eviction of URSL (section on page eviction) and of many kernels. Chunks in memory stand in a ring in
// the order in which they came in. The hand goes round; a chunk that was pinned since the hand's last visit loses its
// kReferenced bit and stays for one more round, any other leaves. Clearing the bit sends the next pin of that chunk
// through PinSlow once; nothing else costs the program anything. This policy fetches nothing ahead.
//
// Better than `cyclic` where some chunks are used far more often than others; a sweep over more data than memory has
// neither order learned nor read-ahead, so it waits for every chunk.
//
// Thread-safety: as CachePolicy says.
#pragma once

#include "client/chunk/chunk_table.h"
#include "client/policy/policy.h"

namespace ramspan {

class SecondChancePolicy final : public CachePolicy {
 public:
  explicit SecondChancePolicy(const ChunkTable* chunks) : chunks_(chunks) {}

  Interests interests() const override { return {.references = true}; }
  void OnCreate(Chunk* chunk) override;
  void OnFree(Chunk* chunk) override;
  void OnMiss(Chunk* chunk, uint32_t thread) override;
  // Only what a policy named is fetched ahead, and this one names nothing.
  void OnPrefetchHit(Chunk*) override {}
  void OnPrefetchWasted(Chunk*) override {}
  void OnPrefetchIssued(Chunk*) override {}
  void SetLimits(uint64_t /*memory_bytes*/, uint64_t /*swapped_bytes*/) override {}
  void OnDone(Chunk* chunk) override;
  size_t PickVictims(uint64_t bytes, std::span<Chunk*> out) override;
  bool WantsReadAhead() const override { return false; }
  size_t PickReadAhead(std::span<Chunk*>) override { return 0; }

  bool IsValid() const override;
  std::string Describe() const override;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;  // as Chunk::prev: the chunk is not in the ring

  Chunk* At(uint32_t id) const { return chunks_->At(id); }
  void Link(Chunk* chunk);  // behind all others: the hand comes to it last
  void Unlink(Chunk* chunk);

  const ChunkTable* const chunks_;
  // The ring holds every chunk that came in, and some that have left since: the hand takes those out when it meets them,
  // so each chunk that left is looked at once and not once a round.
  uint32_t hand_ = kNone;
  uint64_t count_ = 0;
};

}  // namespace ramspan
