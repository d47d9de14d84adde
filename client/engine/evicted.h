// Evicted: what came of looking for chunks that can leave memory. A plain value.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "common/status.h"

namespace ramspan {

struct Evicted {
  uint64_t freed = 0;        // bytes of frames that came back at once
  uint64_t started = 0;      // bytes now being written
  uint64_t no_slot_yet = 0;  // bytes of the smallest dirty victim for whose slot the tier has to be waited for
  uint64_t no_slot = 0;      // bytes of the smallest dirty victim that found no slot
  bool room_made = false;    // it has been waited for: look again
  bool may_ask = true;       // set by the caller: room is asked for where there is none, which takes as long as a server or a file system does
  bool may_take_kept = true; // the same: what the program advised to keep leaves where nothing else can
  bool may_wait = false;     // the same: who must fail otherwise waits for room that others make (SwapTier::Patience), in vain once only
  Status status;             // why a dirty victim could not start

  // Sizes for which nobody gives a slot. A larger victim may find one nevertheless: who gives up a slot that is larger than the victim
  // leaves less room in memory than before. When so many have been tried in vain, what is larger than one of them is not tried any more:
  // there may be a million victims of as many sizes, and each try looks at 64 chunks.
  static constexpr size_t kExchangesMax = 16;
  std::array<uint64_t, kExchangesMax> no_exchange{};
  size_t exchanges_failed = 0;
  bool MayExchange(uint64_t bytes) const {
    const auto tried = no_exchange.begin() + static_cast<ptrdiff_t>(exchanges_failed);
    if (exchanges_failed < kExchangesMax) return std::find(no_exchange.begin(), tried, bytes) == tried;
    return bytes < *std::min_element(no_exchange.begin(), no_exchange.end());
  }
  // REQUIRES: MayExchange.
  void NoteNoExchange(uint64_t bytes) { no_exchange[exchanges_failed < kExchangesMax ? exchanges_failed++ : 0] = bytes; }

  bool leaves() const { return freed + started > 0; }
  // Others were leaving, and had to do so first: it is worth while to look again.
  bool others_first() const { return status.code() == StatusCode::kAborted; }
};

}  // namespace ramspan
