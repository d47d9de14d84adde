// The miss path allocates nothing once it is warm: what counts that, over any tiers. Counts what operator new is asked for by the calling thread
// (heap_watch.h), aligned requests aside; what C libraries below (libfabric, MPI) take by malloc is theirs.
// Thread-safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/policy/policy_factory.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/heap_watch.h"

namespace ramspan {

// The fake tier keeps its slots in maps: what it does itself is not counted. Nor is what a tier does while it asks for room, which
// waits for a server or a file system, and what the mover does for nobody.
class Uncounted final : public ForwardingTier {
  template <typename F>
  auto Call(const F& call) {
    if (!all_) return call();
    const UnwatchedHeap unwatched;
    return call();
  }

 public:
  Uncounted(SwapTier* tier, bool all) : ForwardingTier(tier), all_(all) {}
  Result<SlotRef> TryReserve(size_t bytes) override { return Call([&] { return ForwardingTier::TryReserve(bytes); }); }
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override {
    return Call([&] { return ForwardingTier::TryExchange(given, bytes, taken); });
  }
  void Free(SlotRef slot, size_t bytes) noexcept override {
    Call([&] { ForwardingTier::Free(slot, bytes); });
  }
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override {
    Call([&] { ForwardingTier::SubmitWrite(batch); });
  }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override {
    Call([&] { ForwardingTier::SubmitRead(batch); });
  }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    return Call([&] { return ForwardingTier::Poll(done, wait); });
  }
  Status MakeRoom(size_t bytes, Patience patience) override {
    const UnwatchedHeap unwatched;
    return ForwardingTier::MakeRoom(bytes, patience);
  }
  void Upkeep() override {
    const UnwatchedHeap unwatched;
    ForwardingTier::Upkeep();
  }

 private:
  const bool all_;
};

// What is allocated by sweeps over thrice of memory, written and read, with the mover's work in between, after ten rounds of them: the least of ten
// looks, for a look may see more under way at once than ever before. `tiers`: the best first. `*upper_used`: bytes in use of the best one. `policy`: by
// its name; who leaves decides how slots are scattered.
int AllocationsOnceWarm(std::vector<std::unique_ptr<SwapTier>> tiers, uint64_t* upper_used = nullptr, const char* policy = PolicyNames()[0]);
int AllocationsOnceWarm(std::unique_ptr<SwapTier> tier);

}  // namespace ramspan
