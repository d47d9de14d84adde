// IoOp: one transfer of a chunk that is under way. OpPool has those that are not in use: a miss and an eviction take theirs there
// and allocate nothing, but when more are under way at once than ever before. All are charged to the budget, for good.
//
// Thread-safety: none of its own; guarded by the engine's mutex.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/arena/budget.h"
#include "client/chunk/chunk.h"
#include "client/swap/swap_tier.h"
#include "common/status.h"

namespace ramspan {

struct Sleeper;

// Owned by the engine; `io` is the tier's between Submit and Poll.
struct IoOp {
  IoRequest io;
  Chunk* chunk = nullptr;
  uint32_t waiters = 0;
  bool prefetch = false;
  bool done = false;  // written under the mutex, looked at without it (Engine::SpinFor)
  std::chrono::steady_clock::time_point ended;  // when its end was taken from the tier
  uint32_t rereads = 0;       // of a read that brought other bytes than were written
  uint32_t round = 0;         // of failed writes when this one began
  uint32_t spell = 0;         // of a write: WritesUnderWay's
  bool rewrite = false;       // a write whose chunk had other bytes in swap before, as far as is known
  uint64_t old_checksum = 0;  // of those
  uint64_t in_slot = 0;       // of a write: the checksum of what its slot holds now; 0: nothing that is known
  bool skipped = false;       // a write of what is there already, which the tier has not been asked for
  Status status;
  Sleeper* sleepers = nullptr;  // who waits for it while another thread polls
  IoOp* next_free = nullptr;    // the pool's
};

class OpPool {
 public:
  // With one slab. The budget must outlive it.
  explicit OpPool(Budget* budget) : budget_(*budget) { Grow(); }
  // REQUIRES: all are back.
  ~OpPool() = default;
  OpPool(const OpPool&) = delete;
  OpPool& operator=(const OpPool&) = delete;

  // A fresh one; null: the heap has no more.
  IoOp* TryTake() {
    if (free_ == nullptr && !WithinHeap([this] { return Grow(), true; }, false)) return nullptr;
    IoOp* const op = free_;
    free_ = op->next_free;
    *op = IoOp{};
    return op;
  }
  void Put(IoOp* op) {
    op->next_free = free_;
    free_ = op;
  }
  // How many are in use. For tests: counts them.
  size_t in_use() const {
    size_t free = 0;
    for (const IoOp* op = free_; op != nullptr; op = op->next_free) ++free;
    return slabs_.size() * kSlab - free;
  }

 private:
  // About 26 KiB. More are under way only with many threads at once (a thread has one, the mover up to twice the engine's batch), and in front
  // of a server that stands still, where writes wait in a line of the tier: those stay charged.
  static constexpr size_t kSlab = 128;

  void Grow() {
    slabs_.push_back(std::make_unique<IoOp[]>(kSlab));
    budget_.ChargeMetadata(kSlab * sizeof(IoOp));
    for (size_t i = 0; i < kSlab; ++i) Put(&slabs_.back()[i]);
  }

  Budget& budget_;
  IoOp* free_ = nullptr;
  std::vector<std::unique_ptr<IoOp[]>> slabs_;
};

}  // namespace ramspan
