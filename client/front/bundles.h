// Bundles: objects smaller than a page, many of about one size to a chunk, so that they are swapped together. Each costs
// 8 bytes of a table (include/ramspan/detail/object.h) that counts in the budget as metadata.
//
// Objects that a thread makes one after the other lie together. A bundle belongs to the shard of the thread that made
// it, for good; whoever frees an object takes that shard's mutex. A bundle that was full takes objects again when a
// quarter is free, so that single gaps do not bring swapped bundles back. One empty bundle a size and shard is kept, as long as
// all that are kept are a small share of the limit: with many sizes and threads they would fill memory and swap without one object.
//
// Thread-safety: any thread. New may block (as Engine::Create and ChargeMetadata, and while a bundle is read from swap that has
// room); the rest does not.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "client/engine/engine.h"
#include "client/front/table_memory.h"
#include "common/mutex.h"
#include "ramspan/detail/object.h"

namespace ramspan {

class Bundles {
 public:
  explicit Bundles(Engine* engine) : engine_(engine), tables_(engine) {}
  // REQUIRES: no object is left in use.
  ~Bundles();
  Bundles(const Bundles&) = delete;
  Bundles& operator=(const Bundles&) = delete;

  // 0 < bytes < kSmallBytesEnd; alignment a power of two of at most a page. One reference.
  Result<detail::Object> New(uint64_t bytes, uint64_t alignment);
  // The same if that needs no more than a place in a bundle whose bytes are at hand; else null. Most objects are made by this alone: a
  // Status, and the registers for the rest of New, cost as much as the place. Does not block. For bundles.cc, as the inline ones below.
  inline detail::Object TryNew(uint64_t bytes, uint64_t alignment);
  void Free(detail::Object object) noexcept;  // REQUIRES: no reference, no pin
  // Frees the bundles that are kept without an object. For who is about to find data in its way: they are none.
  void FreeEmpty() noexcept;

  uint64_t objects() const;  // that exist
  // Counts agree with the lists. For tests, with no thread inside.
  bool IsValid() const;

  // Bytes of a place for an object; the bundle's chunk for a limit: large ones travel well, small ones pin less.
  static uint32_t PlaceBytes(uint64_t bytes, uint64_t alignment);
  static uint64_t ChunkBytesFor(uint64_t limit);

 private:
  struct Bundle;
  static constexpr size_t kShards = 16;
  static constexpr size_t kClasses = 30;
  struct alignas(64) Shard {
    mutable Mutex mutex{LockRank::kBundles};
    std::array<Bundle*, kClasses> open RS_GUARDED_BY(mutex){};  // those with room, in circles; the first is filled
    uint64_t objects RS_GUARDED_BY(mutex) = 0;
  };

  // What is inline is defined and called in bundles.cc alone. GCC takes other members of a shared library for replaceable by the program,
  // and never compiles them into what calls them.
  inline static size_t ClassOf(uint64_t bytes, uint64_t alignment);
  inline static Bundle* BundleOf(detail::Object object);
  static void Link(Bundle** list, Bundle* bundle);
  static void Unlink(Bundle** list, Bundle* bundle);
  inline detail::Object TakePlace(Shard* shard, Bundle* bundle, uint64_t bytes) RS_REQUIRES(shard->mutex);
  inline static bool IsAway(const detail::ChunkHead* chunk);
  Status BringHome(detail::Object object);
  Result<Bundle*> Make(size_t size_class, Shard* shard);
  void Destroy(Bundle* bundle);
  bool MayKeep(Bundle* bundle);
  void UseKept(Bundle* bundle);
  Bundle* TakeKept(Shard* shard, size_t size_class);

  Engine* const engine_;
  TableMemory tables_;
  std::array<Shard, kShards> shards_;
  std::atomic<uint64_t> empty_bytes_{0};  // of bundles that are kept; a count that publishes nothing
};

}  // namespace ramspan
