// Slot: a place in swap that no chunk has taken over yet. Goes back to the tier when it is destroyed. Move-only.
// Thread-safety: a plain value; gives back by SwapTier::Free, which may be called from any thread.
#pragma once

#include <utility>

#include "client/swap/swap_tier.h"

namespace ramspan {

class Slot {
 public:
  Slot() = default;
  // Owns `ref`, which `tier` has given for `bytes`.
  Slot(SwapTier* tier, SlotRef ref, size_t bytes) : tier_(tier), ref_(ref), bytes_(bytes) {}
  Slot(Slot&& other) noexcept : tier_(other.tier_), ref_(std::exchange(other.ref_, SlotRef{})), bytes_(other.bytes_) {}
  Slot& operator=(Slot&& other) noexcept {
    std::swap(tier_, other.tier_);
    std::swap(ref_, other.ref_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Slot() {
    if (ref_) tier_->Free(ref_, bytes_);
  }

  explicit operator bool() const { return static_cast<bool>(ref_); }
  size_t bytes() const { return ref_ ? bytes_ : 0; }
  // The caller owns it from now on.
  SlotRef release() { return std::exchange(ref_, SlotRef{}); }

 private:
  SwapTier* tier_ = nullptr;
  SlotRef ref_;
  size_t bytes_ = 0;
};

}  // namespace ramspan
