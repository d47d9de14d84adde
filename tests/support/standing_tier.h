// StandingTier: a FakeTier one slot of which is at a server that stands still, as far as anybody asks.
// Thread-safety: `still` changes while nobody else uses the tier.
#pragma once

#include "tests/support/fake_tier.h"

namespace ramspan {

class StandingTier final : public FakeTier {
 public:
  using FakeTier::FakeTier;
  bool StandsStill(SlotRef slot, size_t) noexcept override { return slot && slot == still; }
  SlotRef still;  // none: nothing stands still
};

}  // namespace ramspan
