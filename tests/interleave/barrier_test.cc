// The real barrier of the real pin tables between two real threads: what no model can say is whether this machine's
// membarrier (or fence) does what the protocol of detail/resident.h asks of it.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "client/front/pin_registry.h"
#include "tests/support/refuse_system_call.h"

namespace ramspan {
namespace {

// A slot that is empty with and without membarrier, in the calling thread's table or beyond it.
unsigned EmptySlot(bool beyond) {
  auto* const table = static_cast<ThreadTable*>(PinRegistry::Get().Adopt());
  if (!beyond) return detail::PinTable::kInlineSlots;
  PinRegistry::Get().MakeMorePins(table);
  return detail::kFirstBeyond + table->more.load()->FindNext();
}

// Each round one thread pins while the other one closes the chunk, issues the barrier, and scans. Without the barrier x86 lets
// the pin's load overtake its store, and the scan misses a pin that holds. To make that likely the pin's store stands in the
// store buffer behind others, to cache lines that are with the evictor, while its load finds the state's line near. Even so
// a barrier that does nothing is found in one run of six only; the test below finds it each time.
void PinWhileOthersCloseAndScan(bool beyond) {
  constexpr uint32_t kRounds = 20000;
  constexpr auto kLongest = std::chrono::seconds(2);           // on a machine with other things to do
  Chunk chunk{};
  struct alignas(64) Line {
    uint64_t word = 0;
  };
  std::vector<Line> lines(8);  // written by turns
  bool holds = false;           // published by `pinned`
  uint64_t start = 0;           // of the round, in cycles of the clock; published by `begun`
  std::atomic<uint32_t> begun{0}, pinned{0}, scanned{0};  // rounds
  std::atomic<bool> stop{false};
  const auto await = [&stop](const std::atomic<uint32_t>& rounds, uint32_t round) {
    for (int spin = 0; rounds.load(std::memory_order_acquire) < round && !stop; ++spin) {
      if (spin > 2000) std::this_thread::yield();
    }
  };
  const auto await_cycle = [](uint64_t cycle) {
    while (__builtin_ia32_rdtsc() < cycle) {
    }
  };
  std::thread pinner([&] {
    const unsigned slot = EmptySlot(beyond);
    detail::PinTable* const table = detail::t_pins;
    for (uint32_t round = 1; !stop; ++round) {
      await(begun, round);
      static_cast<void>(chunk.state.load(std::memory_order_relaxed));
      await_cycle(start + 1000);
      for (Line& line : lines) line.word = round;
      holds = detail::StorePinAnywhere(&chunk, table, slot, false);
      pinned.store(round, std::memory_order_release);
      await(scanned, round);
      detail::Unpin(&chunk, table, slot);
    }
  });
  Chunk* const victims[1] = {&chunk};
  const auto begin = std::chrono::steady_clock::now();
  uint32_t round = 1, overlooked = 0;
  for (; round <= kRounds && overlooked == 0 && std::chrono::steady_clock::now() - begin < kLongest; ++round) {
    for (Line& line : lines) line.word = 0;
    chunk.state.store(kReadable | kReferenced, std::memory_order_seq_cst);
    start = __builtin_ia32_rdtsc() + 2000;
    begun.store(round, std::memory_order_release);
    await_cycle(start + 500 + round * 37 % 2000);  // meets the pin at different moments
    ClearBits(&chunk, kReadable | kWritable);
    PinRegistry::Get().Barrier();
    bool found[1] = {false};
    PinRegistry::Get().FindPinned(victims, found);
    await(pinned, round);
    overlooked += holds && !found[0];
    scanned.store(round, std::memory_order_release);
  }
  stop = true;
  pinner.join();
  EXPECT_EQ(overlooked, 0u) << "in round " << round;
}
TEST(PinBarrier, BetweenClosingAndScanningNoPinIsOverlooked) { PinWhileOthersCloseAndScan(false); }
TEST(PinBarrier, BetweenClosingAndScanningNoPinBeyondATableIsOverlooked) { PinWhileOthersCloseAndScan(true); }

// In a child process: the kernel refuses membarrier from here on, then the barrier is asked for.
void BarrierWithoutMembarrier() {
  if (!RefuseSystemCall(__NR_membarrier, ENOSYS)) {
    std::fputs("membarrier failed: not tried, there is no seccomp here\n", stderr);
    std::abort();
  }
  PinRegistry::Get().Barrier();
  std::fputs("the barrier was silent\n", stderr);
}

// Whether the barrier reaches the kernel at all.
TEST(PinBarrierDeathTest, WhereTheKernelRefusesItTheProgramDoesNotGoOn) {
  if (PinRegistry::Get().pins_fence()) GTEST_SKIP() << "no membarrier here: pins execute the fence";
  EXPECT_DEATH(BarrierWithoutMembarrier(), "membarrier failed");
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

// The same beyond the table. Where the owner ends the pin, the evictor does not come to its slot any more, but finds that it need not.
TEST(PinBarrier, WhoFindsAPinBeyondATableGoneSeesWhatItsThreadDidToTheFrame) {
  for (const bool by_owner : {true, false}) {
    Chunk chunk{};
    uint64_t frame = 0;
    chunk.frame = &frame;
    chunk.state = kReadable | kWritable | kReferenced | kDirty;
    std::atomic<bool> stored{false};
    std::thread pinner([&] {
      const unsigned slot = EmptySlot(true);
      detail::PinTable* const table = detail::t_pins;
      EXPECT_TRUE(detail::StorePinAnywhere(&chunk, table, slot, true));
      stored.store(true, std::memory_order_relaxed);  // must order nothing
      for (uint64_t i = 1; i <= 1000; ++i) frame = i;
      const auto end = [&] { detail::Unpin(&chunk, table, slot); };
      by_owner ? end() : std::thread(end).join();
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
}

// The same for a pin that is counted in the chunk because its thread's table was full.
TEST(PinBarrier, WhoFindsACountedPinGoneSeesWhatItsThreadDidToTheFrame) {
  Chunk chunk{};
  uint64_t frame = 0;
  chunk.state = kReadable | kWritable | kReferenced | kDirty | kOneCountedPin;
  std::thread pinner([&] {
    PinRegistry::Get().Adopt();
    PinRegistry::NoteCounted(1);  // what is ended below was taken: the sum of all threads is later tests', too
    for (uint64_t i = 1; i <= 1000; ++i) frame = i;
    detail::UnpinCounted(&chunk);
  });
  while (HasCountedPins(&chunk)) std::this_thread::yield();
  EXPECT_EQ(frame, 1000u);
  pinner.join();
}

// The other direction: who finds a chunk open may use its frame at once, without the engine's mutex. It is opened by the
// transition that ends a load, or afterwards, when somebody comes to a chunk that is there but closed.
TEST(PinBarrier, WhoFindsAChunkOpenSeesWhatWasLoadedIntoItsFrame) {
  detail::PinTable* table = detail::t_pins != nullptr ? detail::t_pins : PinRegistry::Get().Adopt();
  const unsigned slot = PinRegistry::Get().pins_fence() ? detail::PinTable::kInlineSlots : 0;
  for (const bool by_transition : {true, false}) {
    Chunk chunk{};
    uint64_t frame = 0;
    Transition(&chunk, Event::kCreate);
    if (!by_transition) Transition(&chunk, Event::kMaterialize);
    std::thread loader([&] {
      frame = 7;
      chunk.frame = &frame;
      if (by_transition) {
        Transition(&chunk, Event::kMaterialize, kReadable | kReferenced);
      } else {
        SetBits(&chunk, kReadable | kReferenced);
      }
    });
    while (!detail::StorePin<false>(&chunk, table, slot)) {
      detail::Unpin(&chunk, table, slot);
      std::this_thread::yield();
    }
    EXPECT_EQ(*static_cast<uint64_t*>(chunk.frame), 7u);
    detail::Unpin(&chunk, table, slot);
    loader.join();
  }
}

}  // namespace
}  // namespace ramspan
