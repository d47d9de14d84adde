// The real barrier of the real pin tables between two real threads: what no model can say is whether this machine's
// membarrier (or fence) does what the protocol of detail/resident.h asks of it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "client/front/pin_registry.h"

namespace ramspan {
namespace {

// Each round one thread pins while the other closes, issues the barrier, and scans. Without the barrier x86 lets the pin's load
// overtake its store, and the scan misses a pin that holds: within 100 to 10 000 rounds where both threads have a core.
TEST(PinBarrier, BetweenClosingAndScanningNoPinIsOverlooked) {
  constexpr uint32_t kRounds = 60000;
  constexpr auto kLongest = std::chrono::seconds(2);  // of a machine with other things to do
  Chunk chunk{};
  std::atomic<uint32_t> begun{0}, pinned{0}, scanned{0};  // rounds
  std::atomic<bool> holds{false}, stop{false};
  std::thread pinner([&] {
    detail::PinTable* table = PinRegistry::Get().Adopt();
    // As a pin in one of the table's own slots; with the fence of PinWithoutSlot where there is no membarrier.
    constexpr unsigned kSlot = detail::PinTable::kInlineSlots;
    for (uint32_t round = 1; !stop; ++round) {
      for (int spin = 0; begun.load(std::memory_order_acquire) < round && !stop; ++spin) {
        if (spin > 2000) std::this_thread::yield();
      }
      if (stop) break;
      if (PinRegistry::Get().pins_fence()) {
        table->slots[kSlot].store(&chunk, std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_seq_cst);
      } else {
        table->slots[kSlot].store(&chunk, std::memory_order_release);
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      holds.store(chunk.state.load(std::memory_order_acquire) & kReadable, std::memory_order_relaxed);
      pinned.store(round, std::memory_order_release);
      for (int spin = 0; scanned.load(std::memory_order_acquire) < round && !stop; ++spin) {
        if (spin > 2000) std::this_thread::yield();
      }
      table->slots[kSlot].store(nullptr, std::memory_order_release);
    }
    table->slots[kSlot].store(nullptr, std::memory_order_release);
  });
  const auto begin = std::chrono::steady_clock::now();
  uint32_t round = 1, overlooked = 0;
  for (; round <= kRounds && overlooked == 0; ++round) {
    if (std::chrono::steady_clock::now() - begin > kLongest) break;
    chunk.state.store(kReadable, std::memory_order_seq_cst);
    begun.store(round, std::memory_order_release);
    for (uint32_t i = 0; i < round % 61; ++i) __builtin_ia32_pause();  // meets the pin at different moments
    ClearBits(&chunk, kReadable | kWritable);
    PinRegistry::Get().Barrier();
    Chunk* const victims[1] = {&chunk};
    bool found[1] = {false};
    PinRegistry::Get().FindPinned(victims, found);
    for (int spin = 0; pinned.load(std::memory_order_acquire) < round; ++spin) {
      if (spin > 2000) std::this_thread::yield();
    }
    if (holds.load(std::memory_order_relaxed) && !found[0]) ++overlooked;
    scanned.store(round, std::memory_order_release);
  }
  stop = true;
  pinner.join();
  EXPECT_EQ(overlooked, 0u) << "in round " << round;
  RecordProperty("rounds", static_cast<int>(round));
}

// What the pinner did to the frame happened before whatever the evictor does with it. x86 orders this by itself; TSan says
// whether the code does.
TEST(PinBarrier, WhoFindsAPinGoneSeesWhatItsThreadDidToTheFrame) {
  Chunk chunk{};
  uint64_t frame = 0;
  chunk.frame = &frame;
  chunk.state = kReadable | kWritable | kReferenced | kDirty;
  std::atomic<bool> stored{false};
  std::thread pinner([&] {
    detail::PinTable* table = PinRegistry::Get().Adopt();
    unsigned slot = PinRegistry::Get().pins_fence() ? detail::PinTable::kInlineSlots : 0;
    auto* pinned = static_cast<uint64_t*>(detail::PinInSlot<true>(&chunk, table, slot));
    stored.store(true, std::memory_order_relaxed);  // must order nothing
    for (uint64_t i = 1; i <= 1000; ++i) *pinned = i;
    detail::Unpin(&chunk, table, slot);
  });
  while (!stored.load(std::memory_order_relaxed)) std::this_thread::yield();
  for (bool found[1] = {true}; found[0];) {
    found[0] = false;
    Chunk* const victims[1] = {&chunk};
    PinRegistry::Get().FindPinned(victims, found);
    std::this_thread::yield();
  }
  EXPECT_EQ(frame, 1000u);
  pinner.join();
}

}  // namespace
}  // namespace ramspan
