// Vacating: Vacate's state, as far as those look at it that wait for memory meanwhile (vacate.cc).
// Thread-safety: a plain value; guarded by the engine's mutex.
#pragma once

#include <cstddef>
#include <functional>

#include "client/chunk/chunk.h"
#include "client/engine/pin_wait.h"
#include "common/slot_ref.h"

namespace ramspan {

struct Vacating {
  using Leaving = std::function<bool(SlotRef slot, size_t bytes)>;
  static constexpr PinClock::Time kForEver = PinClock::Time::max();

  const Leaving* leaving = nullptr;  // null: no Vacate is under way
  Chunk* chunk = nullptr;            // it is being brought home
  PinClock::Time patience{};         // for pins of other threads, while nothing comes home
  PinClock::Time waited{};           // of it, before the wait that is under way
  bool no_memory = false;            // the chunk found no frame
  uint64_t ended = 0;                // how many have been

  bool IsOutOfPatience(PinClock::Time now) const { return patience != kForEver && waited + now >= patience; }
  // Whoever brings data home can do without. Other threads that cannot go on either wait until it has ended.
  bool GivesUp() const { return leaving != nullptr && patience != kForEver; }
};

}  // namespace ramspan
