// CachePolicy: who leaves, who is fetched ahead. The port behind which policies are replaced; policy_factory.h has them.
//
// Of each chunk a policy hears: its making and end; a miss; the first touch after it was fetched ahead; and, if it is
// interested, the first touch of a chunk in memory in each epoch. A touch is a pin that finds kReferenced clear. An epoch
// begins when the policy asks for it, and clears that bit of all chunks, so the next pin of each goes through PinSlow
// once; the other pins are as fast as ever. A miss is a touch, too, and is not reported as one besides. A policy that
// clears the bit of a chunk by itself hears of the chunk's next pin likewise.
//
// Thread-safety: every call but Consult is made under the engine's mutex; a policy keeps its order in the chunks' prev/next
// and must not block, allocate memory per call, or change a chunk's state but for clearing kReferenced.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "client/chunk/chunk.h"
#include "client/policy/tier_costs.h"
#include "common/mutex.h"

namespace ramspan {

// Threads are numbered from 0 as they first pin; a thread that has ended leaves its number to the next new one.
inline constexpr uint32_t kNoThread = UINT32_MAX;  // it has never pinned
inline constexpr uint32_t kEpochMax = (uint32_t{1} << 31) - 1;  // epochs count from 1 and begin again behind it

struct Touch {
  uint32_t chunk;   // its id
  uint32_t thread;
  uint32_t epoch;   // in which it was touched; may be an earlier one than that of the call
  bool write;       // of that pin; a later one of the epoch that writes is not heard
};

class CachePolicy {
 public:
  virtual ~CachePolicy() = default;

  // What it wants beside misses. Constant. What is not wanted costs nothing.
  struct Interests {
    bool touches = false;
    bool costs = false;
    bool references = false;  // it looks at kReferenced by itself
  };
  virtual Interests interests() const { return {}; }
  // Before all other calls. `costs` outlives the policy; it stays empty without the interest.
  virtual void SetCosts(const TierCosts* /*costs*/) {}
  // What it allocates, for the budget. Constant but for FitLimit and FitChunks. What is allocated for a chunk is so when Reserve returns, for as many as a slab of ChunkTable has.
  struct Memory {
    uint64_t fixed = 0;
    uint32_t per_chunk = 0;
  };
  virtual Memory memory() const { return {}; }
  // The limit is lowered or raised: what is fixed becomes smaller or larger with it, as far as that can be done. Until SettleLimit the old limit may come again.
  virtual void FitLimit(uint64_t /*memory_bytes*/) noexcept {}
  virtual void SettleLimit() noexcept {}
  // What would be fixed with that limit.
  virtual uint64_t FixedWith(uint64_t /*memory_bytes*/) const { return memory().fixed; }
  // The same where there are chunks with ids below this, and it may have memory for them: what is fixed becomes larger with their number. 0: as small as
  // without any, since somebody would be refused otherwise.
  virtual void FitChunks(uint32_t /*ids*/) noexcept {}
  virtual uint64_t FixedBeside(uint32_t /*ids*/) const { return memory().fixed; }
  // Room for chunks with ids below this, before OnCreate of any such. May throw std::bad_alloc.
  virtual void Reserve(uint32_t /*ids*/) {}
  // Whether a new epoch should begin; asked by the mover. OnEpoch says that it has begun: the first touches of `epoch`
  // come from now on, those of a chunk when the mover has come to it (4096 chunks a step).
  virtual bool WantsEpoch() const { return false; }
  virtual void OnEpoch(uint32_t /*epoch*/) {}
  // The chunk exists but may have left memory since. The touches of one thread come in its order, before its next miss.
  // Touches get lost, and are counted, where a thread makes more than TouchRing::kCapacity while others keep the mutex.
  virtual void OnTouch(Chunk* /*chunk*/, const Touch& /*touch*/) {}

  virtual void OnCreate(Chunk* chunk) = 0;
  virtual void OnFree(Chunk* chunk) = 0;
  // Thread `thread` came for a chunk that was not resident, or a hint of its said that it will.
  virtual void OnMiss(Chunk* chunk, uint32_t thread) = 0;
  // The program touched a chunk that had been fetched ahead, for the first time. It is no longer pre-emptive.
  virtual void OnPrefetchHit(Chunk* chunk) = 0;
  // A chunk that was fetched ahead left untouched, or was freed, or could not be read. It is no longer pre-emptive.
  virtual void OnPrefetchWasted(Chunk* chunk) = 0;
  virtual void OnPrefetchIssued(Chunk* chunk) = 0;
  virtual void SetLimits(uint64_t memory_bytes, uint64_t swapped_bytes) = 0;

  static constexpr size_t kVictimsMax = 64;  // are asked for at a time
  // A search for victims begins: what has been named before may be named anew.
  virtual void BeginSearch() {}
  // Fills out with Resident chunks in the order in which they should leave, until their bytes reach `bytes` or out is
  // full; returns how many. Called again for more: continues behind those it named, also where chunks are used in the meantime.
  virtual size_t PickVictims(uint64_t bytes, std::span<Chunk*> out) = 0;
  // A chunk that was named stays, because a thread pins it.
  virtual void OnPinned(Chunk* /*chunk*/) {}
  // The program has said that it is done with a chunk in memory, for now: it leaves before others.
  virtual void OnDone(Chunk* /*chunk*/) {}
  // How much may leave before it has to, so that many leave together: what comes back before its room was needed has been moved in vain.
  virtual uint64_t SpareBytes() const { return UINT64_MAX; }
  // Whether there is enough to fetch ahead to wake a thread for it: a wake-up costs as much as some chunks do.
  virtual bool WantsReadAhead() const = 0;
  // Fills out with chunks that MayReadAhead to be fetched ahead now; returns how many.
  virtual size_t PickReadAhead(std::span<Chunk*> out) = 0;

  // A policy that is the program's own code decides in Consult, which is called WITHOUT the engine's mutex, right before the
  // call that takes what it decided. The turn that it returns keeps other threads from asking before that call is made. All
  // others decide in the Pick calls.
  using Turn = std::unique_lock<Mutex>;
  enum class Ask { kNothing, kVictims, kReadAhead };
  virtual bool decides_in_consult() const { return false; }
  virtual Turn Consult(Ask /*ask*/, uint64_t /*bytes*/, size_t /*places*/) { return {}; }
  uint32_t consulting = 0;  // threads in Consult or with its turn; the engine's, under its mutex

  // For people and tests; these may allocate.
  virtual uint64_t preemptive_bytes() const { return 0; }  // fetched ahead, not yet touched
  virtual std::string Describe() const { return ""; }       // the order, a line a chunk
  virtual bool IsValid() const { return true; }             // its own structure is sound
};

}  // namespace ramspan
