// Evicted: what came of looking for chunks that can leave memory. A plain value.
#pragma once

#include <cstdint>

#include "common/status.h"

namespace ramspan {

struct Evicted {
  uint64_t freed = 0;        // bytes of frames that came back at once
  uint64_t started = 0;      // bytes now being written
  uint64_t no_slot_yet = 0;  // bytes of the smallest dirty victim for whose slot the tier has to be waited for
  uint64_t no_slot = 0;      // bytes of the smallest dirty victim that found no slot
  bool room_made = false;    // it has been waited for: look again
  Status status;             // why a dirty victim could not start
  uint64_t no_exchange = UINT64_MAX;  // victims of so many bytes find nobody who gives them a slot
  bool leaves() const { return freed + started > 0; }
};

}  // namespace ramspan
