#include "client/chunk/chunk_table.h"

#include <sys/mman.h>

#include <new>

namespace ramspan {

ChunkTable::~ChunkTable() {
  for (uint64_t i = 0; i < slabs_made_; ++i) munmap(slabs_[i], kSlab * sizeof(Chunk));
}

void ChunkTable::SetBytesBeside(uint32_t bytes) {
  const uint64_t before = slabs_made_ * SlabCharge();
  bytes_beside_ = bytes;
  budget_->ChargeMetadata(slabs_made_ * SlabCharge() - before);
}

Chunk* ChunkTable::New(uint64_t bytes) {
  uint32_t id = free_head_;
  if (id != UINT32_MAX) {
    free_head_ = At(id)->next;
  } else {
    if (used_ == slabs_made_ * kSlab) {
      if (!slabs_.Grow(slabs_made_ + 1)) throw std::bad_alloc();
      void* const slab = mmap(nullptr, kSlab * sizeof(Chunk), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (slab == MAP_FAILED) throw std::bad_alloc();
      slabs_[slabs_made_++] = static_cast<Chunk*>(slab);
      budget_->ChargeMetadata(SlabCharge());
    }
    id = used_++;
    At(id)->state.store(0, std::memory_order_relaxed);
  }
  Chunk* chunk = At(id);
  chunk->frame = nullptr;
  chunk->bytes = bytes;
  chunk->refs.store(1, std::memory_order_relaxed);
  chunk->id = id;
  chunk->slot = SlotRef{};
  chunk->checksum = 0;
  chunk->op = nullptr;
  chunk->prev = chunk->next = id;
  Transition(chunk, Event::kCreate);
  ++live_;
  return chunk;
}

void ChunkTable::Delete(Chunk* chunk) {
  RS_CHECK(PhaseOf(chunk) == Phase::kFreed, "chunk %u deleted in phase %d", chunk->id,
           static_cast<int>(PhaseOf(chunk)));
  chunk->next = free_head_;
  free_head_ = chunk->id;
  --live_;
}

}  // namespace ramspan
