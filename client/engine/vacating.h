// Vacating: Vacate's state, as far as those look at it that wait for memory meanwhile (vacate.cc).
// Thread-safety: a plain value; guarded by the engine's mutex.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>

#include "client/chunk/chunk.h"
#include "client/engine/pin_wait.h"
#include "common/slot_ref.h"

namespace ramspan {

struct Vacating {
  using Leaving = std::function<bool(SlotRef slot, size_t bytes)>;
  static constexpr PinClock::Time kForEver = PinClock::Time::max();
  static constexpr std::chrono::milliseconds kSearchCounted{100};
  // Of who comes again and again.
  struct Part {
    std::function<bool()> enough;  // asked now and then, without the mutex
    uint32_t next = 0;             // the chunk with which the next call begins; 0: all have been looked at
  };

  const Leaving* leaving = nullptr;  // null: no Vacate is under way
  Chunk* chunk = nullptr;            // it is being brought home
  PinClock::Time patience{};         // for pins of other threads, while nothing comes home
  PinClock::Time waited{};           // of it, before the wait that is under way
  bool no_memory = false;            // the chunk found no frame
  size_t too_large = SIZE_MAX;       // what is as large as a chunk that found no other place finds none either: it would be read for nothing
  uint32_t looks_left = 0;           // until other threads get the mutex
  uint64_t ended = 0;                // how many have been

  // A search for what makes way takes long where much is in memory, and is done for each look at the pins, which alone the clock counts. Of one
  // search no more than kSearchCounted counts: the process may have been stopped in it.
  void NoteSearchInVain(PinClock::Time took) { waited += std::min<PinClock::Time>(took, kSearchCounted); }
  bool IsOutOfPatience(PinClock::Time now) const { return patience != kForEver && waited + now >= patience; }
  // Whoever brings data home can do without. Other threads that cannot go on either wait until it has ended.
  bool GivesUp() const { return leaving != nullptr && patience != kForEver; }
};

}  // namespace ramspan
