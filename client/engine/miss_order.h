// MissOrder: whether a thread's misses follow each other as in a sweep, for the statistics: by equal small steps, to and fro, also through several
// arrays in turns. What jumps all over the data does not.
// Thread-safety: none; guarded by the engine's mutex.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace ramspan {

class MissOrder {
 public:
  // So many arrays may be swept through in turns. With twice as many, misses in no order would look like one twice as often: of N chunks
  // that are missed at random, kTurnsMost / N do.
  static constexpr uint32_t kTurnsMost = 8;
  // Chunks. Threads that take every k-th chunk of a sweep make steps of k. A bound is needed because jumps, too, may be equal: pseudo-random
  // numbers of neighbouring seeds often differ by a constant (examples/irregular/lookup.cc).
  static constexpr uint32_t kStepMost = 16;
  // Equal steps that go before one in order. Objects that were made in turns are neighbours: what is read of several of them at one random place are some equal steps.
  static constexpr uint32_t kStepsBefore = 4;
  // Threads; what more of them share a place looks like no order. Each takes 328 bytes.
  static constexpr size_t kThreads = 64;

  // Whether this miss goes on by the same step (in ids, which follow the order of making) as some turn of the misses before it.
  bool Note(uint32_t thread, uint32_t id) {
    Recent& recent = threads_[thread % kThreads];
    bool is_near = false;  // mostly none is
    for (uint32_t turn = 1; turn <= kTurnsMost; ++turn) is_near |= IsNear(id - recent.Before(turn));
    bool in_order = false;
    for (uint32_t turn = 1; is_near && turn <= kTurnsMost && (kStepsBefore + 1) * turn <= recent.count && !in_order; ++turn) {
      const uint32_t step = id - recent.Before(turn);
      in_order = IsNear(step);
      for (uint32_t k = 1; in_order && k <= kStepsBefore; ++k) in_order = step == recent.Before(k * turn) - recent.Before((k + 1) * turn);
    }
    recent.Add(id);
    return in_order;
  }

 private:
  static bool IsNear(uint32_t step) { return step + kStepMost <= 2 * kStepMost; }  // modulo 2^32: a step back is a step, too
  static constexpr uint32_t kKept = (kStepsBefore + 1) * kTurnsMost;
  // The latest ones lie one behind the other: they move to the front when they have come to the end.
  struct Recent {
    uint32_t Before(uint32_t misses) const { return ids[end - misses]; }
    void Add(uint32_t id) {
      if (end == ids.size()) {
        std::copy(ids.end() - kKept, ids.end(), ids.begin());
        end = kKept;
      }
      ids[end++] = id;
      count = std::min(count + 1, kKept);
    }
    std::array<uint32_t, 2 * kKept> ids{};
    uint32_t end = kKept;
    uint32_t count = 0;  // of them
  };
  std::array<Recent, kThreads> threads_;
};

}  // namespace ramspan
