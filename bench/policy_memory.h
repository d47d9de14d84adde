// PolicyMemory: memory and swap without bytes, run by one of the library's policies as the engine runs them
// (client/engine/fetch.cc, evict.cc, ahead.cc): the same phases of the same chunks, the same calls of the policy in the same order.
// What is left out is time: a transfer ends where it begins, and the mover has its turn after each touch. So two policies are
// compared by what they move, the same each time.
//
// Thread-safety: none. The policy is its own; the limit is constant.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bench/policy_trace.h"
#include "client/arena/budget.h"
#include "client/chunk/chunk_table.h"
#include "client/engine/pin_scanner.h"
#include "client/engine/policy_feed.h"
#include "client/policy/policy.h"

namespace ramspan::bench {

// What was moved, and for what. bytes_in == missed_bytes + ahead_bytes; ahead == hits + wasted + what is still untouched.
struct PolicyTraffic {
  uint64_t touches = 0;
  uint64_t faults = 0;        // touches that did not find their chunk in memory, the first ones of all included
  uint64_t misses = 0;        // of those, where it had to be read: what has never been written out costs nothing
  uint64_t missed_bytes = 0;  // of those
  uint64_t ahead = 0, ahead_bytes = 0;  // fetched ahead
  uint64_t hits = 0;
  uint64_t wasted = 0, wasted_bytes = 0;
  uint64_t evictions = 0;
  uint64_t bytes_in = 0, bytes_out = 0;

  PolicyTraffic operator-(const PolicyTraffic& before) const;
};

struct PolicySetting {
  uint64_t limit = 0;    // bytes
  bool bare = false;     // no read-ahead and no reserve: who leaves, and nothing else
};

class PolicyMemory {
 public:
  using MakePolicy = std::function<std::unique_ptr<CachePolicy>(const ChunkTable*)>;

  PolicyMemory(const PolicySetting& setting, uint32_t threads, const MakePolicy& make_policy);
  ~PolicyMemory();
  PolicyMemory(const PolicyMemory&) = delete;
  PolicyMemory& operator=(const PolicyMemory&) = delete;

  Chunk* Create(uint64_t bytes);
  void Free(Chunk* chunk);
  // The thread holds this chunk and no other one any more, then brings it in if it has to. Throws std::runtime_error where the
  // chunks that threads hold leave too little for it.
  void Touch(Chunk* chunk, uint32_t thread, bool write);

  const PolicyTraffic& traffic() const { return traffic_; }
  // Memory holds what it says and not more than its limit; the equations of the traffic; the policy's own structure.
  bool IsValid() const;

 private:
  // Whom the threads hold. Nobody leaves a touch in a ring: the policy is told at once.
  class Pins final : public PinScanner {
   public:
    explicit Pins(uint32_t threads) : held(threads, nullptr) {}
    std::vector<Chunk*> held;  // by thread
    uint32_t current = 0;      // whose turn it is

    void Barrier() override {}
    void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) override;
    void SetWaiting(Chunk*) override {}
    Verdict JudgeWaiters() override { return Verdict::kDeadlock; }
    uint32_t ThisThread() const override { return current; }
  };

  static constexpr size_t kBatch = 32;        // Engine::kBatch
  static constexpr uint64_t kTogether = 16;   // Engine::kTogether
  static constexpr size_t kAhead = 8;         // Engine::ReadAhead asks for so many at a time
  // Turns of the mover after a touch, at most: as if it had a core of its own. With one, a policy whose guesses fail wastes more
  // (cyclic, hot-sweep at 75 %: 40 % of what it fetches ahead instead of 2); with two or eight only fft3d changes, by 5 %.
  static constexpr int kMoverTurns = 4;

  void BringIn(Chunk* chunk);
  uint64_t BatchBytes(uint64_t bytes) const;
  bool EvictSome(uint64_t bytes);
  bool EvictPrefetched(uint64_t bytes);
  void Waste(Chunk* chunk);
  void SendAway(Chunk* chunk);
  bool MoverTurn();
  bool RefillReserve();
  bool ReadAhead();
  void TellLimits();
  uint64_t available() const { return setting_.limit - std::min(setting_.limit, used_); }

  const PolicySetting setting_;
  Budget budget_;
  ChunkTable chunks_;
  Pins pins_;
  PolicyFeed feed_;
  std::unique_ptr<CachePolicy> policy_;
  uint64_t used_ = 0;           // of memory, in granules
  uint64_t live_bytes_ = 0;     // of all chunks, likewise
  uint64_t swapped_bytes_ = 0;  // only in swap
  uint64_t typical_bytes_ = 0;  // of the last chunk that came in
  uint64_t untouched_ = 0;      // fetched ahead, and there
  PolicyTraffic traffic_;
};

// All of a trace. `steady`: what its second half moved, when the policy has seen the first one.
PolicyTraffic Replay(const PolicyTrace& trace, const PolicySetting& setting, const PolicyMemory::MakePolicy& make_policy, bool steady = false);

}  // namespace ramspan::bench
