// MissOrder: whether a thread's misses follow each other in an order that could be foreseen, for the statistics. What jumps all over the data
// does not; a sweep does, also one through every k-th chunk, or through several arrays in turns.
// Thread-safety: none; guarded by the engine's mutex.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ramspan {

class MissOrder {
 public:
  // So many arrays may be swept through in turns. With twice as many, misses in no order would look like one twice as often: of N chunks
  // that are missed at random, kTurnsMost / N do.
  static constexpr size_t kTurnsMost = 8;
  // Threads; what more of them share a place looks like no order. Each takes 68 bytes.
  static constexpr size_t kThreads = 64;

  // Whether this miss goes on by the same step (in ids, which follow the order of making) as some turn of the misses before it.
  bool Note(uint32_t thread, uint32_t id) {
    Recent& recent = threads_[thread % kThreads];
    bool in_order = false;
    for (uint32_t turn = 1; turn <= kTurnsMost && 2 * turn <= recent.count; ++turn) {
      // Modulo 2^32: a step back is a step, too.
      in_order |= id - recent.Before(turn) == recent.Before(turn) - recent.Before(2 * turn);
    }
    recent.ids[recent.count++ % kKept] = id;
    return in_order;
  }

 private:
  static constexpr size_t kKept = 2 * kTurnsMost;
  struct Recent {
    uint32_t Before(uint32_t misses) const { return ids[(count - misses) % kKept]; }
    std::array<uint32_t, kKept> ids{};
    uint32_t count = 0;
  };
  std::array<Recent, kThreads> threads_;
};

}  // namespace ramspan
