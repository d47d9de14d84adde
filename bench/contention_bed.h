// A bed for the engine alone: real pins, policy and mover, over swap of contention_tiers.h, and threads that use its chunks. A process may
// make several, one after the other.
//
// Thread-safety: none; the main thread's, which starts the others and waits for their end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/contention_locks.h"
#include "bench/contention_tiers.h"
#include "client/engine/engine.h"

namespace ramspan::bench {

struct BedOptions {
  uint64_t chunk_bytes = 0;
  uint64_t chunks = 0;
  uint64_t frames_bytes = 0;  // of memory for chunks; what descriptors take is beside it
  uint32_t servers = 0;       // 0: swap that costs nothing
};

class Bed {
 public:
  // Makes the chunks, writes each and lets most of them go.
  explicit Bed(const BedOptions& options);
  ~Bed();
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;

  struct Misses {
    double seconds = 0, cpu_seconds = 0;
    uint64_t misses = 0;
    LockMeter::Times locks;
    double per_second() const { return static_cast<double>(misses) / seconds; }
  };
  // So many threads pin chunks at random, change them and let them go, for so long.
  Misses MissAtRandom(int threads, double seconds, bool count_locks);

  struct Pins {
    double usual_ns = 0;               // of a pin and its end, the mean of many that are not timed singly, while nobody misses
    double p999_ns = 0, max_ns = 0;    // of single ones, without what the clock itself takes
    uint64_t pins = 0, evictions = 0;  // meanwhile
  };
  // One thread pins chunks that another pin keeps in memory, each pin timed, while `threads` miss at random.
  Pins PinWhileOthersMiss(int threads, double seconds);

  struct Large {
    double p50_us = 0, max_us = 0;   // of a miss of a large chunk
    uint64_t misses = 0, past = 0;   // of it; frames that others took while the one waited that saw the most of them
  };
  // One thread misses chunks of `bytes`, while `threads` miss at random.
  Large MissLarge(int threads, uint64_t bytes, double seconds);

  double create_ns() const { return create_ns_; }  // each, of those that the constructor has made
  double DestroyAll();                             // ns each
  uint32_t servers_used() const;
  bool right() const { return right_.load(); }  // no chunk has come back as another one

 private:
  class Crowd;
  class Mover;
  Chunk* Make(uint64_t bytes);
  double PinAlone();
  void HoldFrames(uint64_t bytes);
  void Fill();
  void Touch(uint64_t index, bool is_new);

  const BedOptions options_;
  std::unique_ptr<ServersHere> servers_;
  std::unique_ptr<SwapTier> tier_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Mover> mover_;
  std::vector<Chunk*> chunks_;
  double create_ns_ = 0;
  std::atomic<bool> right_{true};
};

}  // namespace ramspan::bench
