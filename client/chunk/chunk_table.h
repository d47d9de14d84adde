// ChunkTable: chunk descriptors by id, in slabs that never move and are reused. A freed descriptor stays readable (a
// stale pin may still look at its state word for an instant).
// Thread-safety: none of its own; guarded by the engine's mutex, At() too: the list of slabs moves as it grows, only they do not.
#pragma once

#include <cstdint>

#include "client/arena/budget.h"
#include "client/chunk/chunk.h"
#include "common/zero_array.h"

namespace ramspan {

class ChunkTable {
 public:
  explicit ChunkTable(Budget* budget) : budget_(budget) {}
  ~ChunkTable();
  ChunkTable(const ChunkTable&) = delete;
  ChunkTable& operator=(const ChunkTable&) = delete;

  Chunk* New(uint64_t bytes);  // phase Swapped, no slot, one reference
  uint64_t next_charge() const {  // bytes that the next New charges to the budget
    return free_head_ == UINT32_MAX && used_ == slabs_made_ * kSlab ? SlabCharge() : 0;
  }
  uint32_t ids_with_next_charge() const { return used_ + kSlab; }
  uint32_t next_id() const { return free_head_ != UINT32_MAX ? free_head_ : used_; }  // of the next New
  // What others keep for each chunk, in slabs like these: charged together with the descriptors from now on.
  void SetBytesBeside(uint32_t bytes);
  const Budget& budget() const { return *budget_; }
  void Delete(Chunk* chunk);   // REQUIRES: phase Freed
  Chunk* At(uint32_t id) const { return &slabs_[id / kSlab][id % kSlab]; }
  uint32_t ids() const { return used_; }  // ids are below this; some may be Freed
  uint64_t live() const { return live_; }

 private:
  static constexpr uint32_t kSlab = 1024;  // 64 KiB
  uint64_t SlabCharge() const { return kSlab * (sizeof(Chunk) + bytes_beside_); }
  Budget* const budget_;
  uint32_t bytes_beside_ = 0;
  ZeroArray<Chunk*> slabs_;  // not of the heap: a fault may make a chunk
  uint64_t slabs_made_ = 0;
  uint32_t used_ = 0;
  uint64_t live_ = 0;
  uint32_t free_head_ = UINT32_MAX;  // freed descriptors, linked by next
};

}  // namespace ramspan
