// TableMemory: where the tables of bundles lie (client/front/bundles.h): addresses reserved once, cut into blocks of 1 to 64 KiB, each
// aligned to its size. Pages that were used once stay, and stay charged to the memory limit.
//
// Thread-safety: any thread. Take may block (as Engine::ChargeMetadata); Put does not. Ownership: of the addresses; borrows the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "common/buddy_allocator.h"
#include "common/mutex.h"
#include "common/status.h"

namespace ramspan {

class Engine;

class TableMemory {
 public:
  explicit TableMemory(Engine* engine);
  ~TableMemory();
  TableMemory(const TableMemory&) = delete;
  TableMemory& operator=(const TableMemory&) = delete;

  // `bytes` a power of two. kFailedPrecondition when the limit has no room for it; then what ChargeMetadata says.
  Result<void*> Take(uint64_t bytes);
  void Put(void* table, uint64_t bytes);

 private:
  static constexpr uint64_t kUnit = 1024;
  static constexpr uint64_t kStep = 64 << 10;  // in which charges grow

  Engine* const engine_;
  char* base_ = nullptr;
  uint64_t reserved_ = 0;
  // One thread takes at a time, also while room is made for its charge. Never taken with any other mutex held.
  std::mutex taking_;
  uint64_t charged_ = 0;  // guarded by taking_; of the addresses, those below it
  Mutex mutex_{LockRank::kMetadata};
  std::unique_ptr<BuddyAllocator> blocks_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
