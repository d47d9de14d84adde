// DeafPolicy: hears nothing and reads nothing ahead; a test says who leaves.
// Thread-safety: as CachePolicy says. Ownership: borrows the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "client/chunk/chunk_table.h"
#include "client/policy/policy.h"

namespace ramspan {

class DeafPolicy : public CachePolicy {
 public:
  explicit DeafPolicy(const ChunkTable* chunks) : chunks_(chunks) {}
  void OnCreate(Chunk*) override {}
  void OnFree(Chunk*) override {}
  void OnMiss(Chunk*, uint32_t) override {}
  void OnPrefetchHit(Chunk*) override {}
  void OnPrefetchWasted(Chunk*) override {}
  void OnPrefetchIssued(Chunk*) override {}
  void SetLimits(uint64_t, uint64_t) override {}
  bool WantsReadAhead() const override { return false; }
  size_t PickReadAhead(std::span<Chunk*>) override { return 0; }

 protected:
  const ChunkTable* const chunks_;
};

}  // namespace ramspan
