// Threads that remove, close and abandon swaps at the same time, while one of them holds what another one waits for.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/managedDummySwap.h"
#include "ramspan/extend.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/runtime.h"
#include "tests/support/ends_or_else.h"
#include "tests/support/map_store.h"

using ramspan::adhereTo;
using ramspan::managedPtr;
using ramspan::SwapId;

namespace {

constexpr size_t kBytes = 1 << 20;

char* Pull(adhereTo<char>& glue) { return glue; }

std::vector<managedPtr<char>> Filled(size_t n) {
  std::vector<managedPtr<char>> objects;
  for (size_t i = 0; i < n; ++i) {
    objects.emplace_back(kBytes);
    adhereTo<char> glue(objects.back());
    Pull(glue)[kBytes - 1] = static_cast<char>(i);
  }
  return objects;
}

void Expect(const std::vector<managedPtr<char>>& objects) {
  for (size_t i = 0; i < objects.size(); ++i) {
    const adhereTo<char> glue(objects[i]);
    EXPECT_EQ(static_cast<const char*>(glue)[kBytes - 1], static_cast<char>(i));
  }
}

// Holds three of four MiB, and waits until another thread, which needs them, removes `leaving`. Then it calls `second`, whose turn comes after that.
void HoldWhileAnotherRemoves(SwapId leaving, const std::vector<managedPtr<char>>& held, const std::function<void()>& second) {
  std::string told;
  std::atomic<bool> ended{false};
  std::thread other;
  {
    std::deque<adhereTo<char>> pins;
    for (const auto& one : held) Pull(pins.emplace_back(one))[0] = 1;
    other = std::thread([&] {
      try {
        ramspan::RemoveSwap(leaving);
      } catch (const ramspan::OutOfMemory& e) {
        told = e.what();
      }
      ended = true;
    });
    const auto is_leaving_or_was = [&] {
      try {
        ramspan::UseSwap(leaving);
        return ended.load();
      } catch (const ramspan::ConfigError&) {
        return true;
      }
    };
    EndsOrElse(is_leaving_or_was);
    second();
  }
  other.join();
  EXPECT_NE(told.find("pin"), std::string::npos) << "the first one needs what the second one holds: \"" << told << "\"";
}

// They stood still for ever: one waited for pins, and their owner for its turn, which nobody knew. (That it is known: unit TurnQueue.)
TEST(SwapTurns, WhoHoldsPinsWhileItWaitsForItsTurnHoldsUpNobody) {
  std::atomic<bool> ended{false};
  std::thread watch([&] { EndsOrElse([&] { return ended.load(); }); });
  ramspan::SetMemoryLimit(4 * kBytes - kBytes / 8);  // room for three
  const std::vector<std::pair<const char*, std::function<void(SwapId)>>> calls = {
      {"RemoveSwap", [](SwapId id) { ramspan::RemoveSwap(id); }},
      {"AbandonSwap", [](SwapId id) { ramspan::AbandonSwap(id); }},
      {"CloseSwap",
       [](SwapId id) {
         EXPECT_THROW(ramspan::CloseSwap(), ramspan::OutOfMemory) << "six objects in memory for four";
         ramspan::RemoveSwap(id);
       }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    MapStore first(64 * kBytes), second(64 * kBytes);
    const SwapId leaving = ramspan::AddSwap(&first), next = ramspan::AddSwap(&second);
    ramspan::UseSwap(leaving);
    const auto objects = Filled(3);
    const auto held = Filled(3);  // the others are in `leaving`
    HoldWhileAnotherRemoves(leaving, held, [&, call = call] { call(next); });
    ramspan::UseSwap(SwapId::kConfigured);
    ramspan::RemoveSwap(leaving);
    Expect(objects);
  }
  ended = true;
  watch.join();
}

// Leaves the choice to Ramspan, after a nap, some times for each search for what could leave. Who can do without is out of patience when its
// searches have taken a second, of each of which no more than ten naps count (Vacating). So the number of asks tells, however slow the
// machine is, when a manager's end that can do without would have given up, although it tries again for two seconds (TryForAWhile).
struct SlowToName final : ramspan::EvictionPolicy {
  static constexpr std::chrono::milliseconds kNap{10}, kPatience{1000}, kTryFor{2000};
  static constexpr int kAsksOfSearch = 10;  // at most; five, as it is
  static constexpr int kAsksEnough = (kTryFor + kPatience) / kNap + 2 * kAsksOfSearch;
  void Created(const Objects&, uint32_t) override {}
  void Freed(const Objects&, uint32_t) override {}
  void Missed(const Objects&, uint32_t) override {}
  size_t Victims(const Objects&, uint64_t, Ids) override {
    std::this_thread::sleep_for(kNap);
    ++asked;
    return 0;
  }
  std::atomic<int> asked{0};
};

// It gave up after a second, and what was in its swap was lost although there was room elsewhere as soon as the pins went.
TEST(SwapTurns, AManagersEndWaitsForPinsAsLongAsTheirThreadGoesOn) {
  rambrain::managedDummySwap outer_swap(64 * kBytes);
  rambrain::cyclicManagedMemory outer(&outer_swap, 4 * kBytes + kBytes / 8);
  rambrain::managedDummySwap swap(64 * kBytes);
  auto inner = std::make_unique<rambrain::cyclicManagedMemory>(&swap, 4 * kBytes + kBytes / 8);  // room for four
  const auto objects = Filled(12);
  SlowToName slow;
  std::atomic<bool> has_pins{false}, ended{false};
  std::thread computes([&] {
    std::deque<adhereTo<char>> pins;
    for (int i = 0; i < 4; ++i) Pull(pins.emplace_back(objects[i]))[0] = 0;
    ramspan::SetEvictionPolicy(&slow);
    has_pins = true;
    EndsOrElse([&] { return ended || slow.asked >= SlowToName::kAsksEnough; });
    EXPECT_FALSE(ended) << "it gave up after " << slow.asked << " asks";
    ramspan::SetEvictionPolicy(nullptr);
  });
  EndsOrElse([&] { return has_pins.load(); });
  inner.reset();
  ended = true;
  computes.join();
  Expect(objects);
}

}  // namespace
