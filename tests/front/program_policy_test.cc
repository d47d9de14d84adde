// A program's own EvictionPolicy runs without Ramspan's mutex.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "ramspan/adhere_to.h"
#include "ramspan/extend.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/mapped_file.h"
#include "ramspan/runtime.h"

namespace {

using ramspan::adhereTo;
using ramspan::managedPtr;

constexpr size_t kMibBytes = size_t{1} << 20;

// Names nobody; what it does when it is asked is the test's.
class NamesNobody : public ramspan::EvictionPolicy {
 public:
  void Created(const Objects&, uint32_t) override { ++created; }
  void Freed(const Objects&, uint32_t) override { ++freed; }
  void Missed(const Objects&, uint32_t) override {}
  std::atomic<int> created{0}, freed{0};
};

void SweepTwice() {
  std::vector<managedPtr<char>> all;
  for (int i = 0; i < 24; ++i) all.emplace_back(kMibBytes, static_cast<char>(i));
  for (int i = 0; i < 48; ++i) {
    const adhereTo<char> glue(all[static_cast<size_t>(i % 24)]);
    const char* data = glue;
    ASSERT_EQ(data[4096], static_cast<char>(i % 24));
  }
}

TEST(ProgramPolicy, OtherThreadsUseRamspanWhileItThinks) {
  struct Thinks final : NamesNobody {
    size_t Victims(const Objects&, uint64_t, Ids) override {
      if (!asked.exchange(true)) {
        const auto begin = std::chrono::steady_clock::now();
        while (!answered && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) std::this_thread::yield();
        in_time = answered.load();
      }
      return 0;
    }
    std::atomic<bool> asked{false}, answered{false}, in_time{false};
  } policy;
  ramspan::SetEvictionPolicy(&policy);
  std::thread other([&policy] {
    while (!policy.asked) std::this_thread::yield();
    { const managedPtr<char> made(64 << 10); }  // needs the engine, but no memory
    policy.answered = true;
  });
  SweepTwice();
  other.join();
  ramspan::SetEvictionPolicy(nullptr);
  EXPECT_TRUE(policy.in_time);
}

// A batch of more objects than it could name at once was filled from the table, with what it keeps.
TEST(ProgramPolicy, WhatItNeverNamesStaysHoweverManySmallObjectsLeaveAtOnce) {
  constexpr uint32_t kKept = 256;
  struct Keeps final : NamesNobody {
    void Missed(const Objects&, uint32_t id) override { missed_kept += id < kKept ? 1 : 0; }
    size_t Victims(const Objects& objects, uint64_t bytes, Ids out) override {
      const auto all = static_cast<uint32_t>(created.load());
      size_t n = 0;
      uint64_t sum = 0;
      for (uint32_t looks = 0; looks < all && n < out.size() && sum < bytes; ++looks) {
        at = at + 1 < all ? at + 1 : kKept;
        if (!objects.InMemory(at)) continue;
        out[n++] = at;
        sum += objects.Bytes(at);
      }
      cut += sum < bytes ? 1 : 0;
      return n;
    }
    uint32_t at = kKept;
    std::atomic<int> missed_kept{0}, cut{0};  // the mover asks, too
  } policy;
  ramspan::SetEvictionPolicy(&policy);
  {
    constexpr size_t kObject = 4096, kObjects = 48 * kMibBytes / kObject;
    std::vector<managedPtr<char>> all;
    for (size_t i = 0; i < kObjects; ++i) all.emplace_back(kObject, static_cast<char>(i));
    policy.missed_kept = 0;
    policy.cut = 0;
    for (size_t k = 0; k < 20'000; ++k) {
      for (const size_t i : {kKept + k * 7919 % (kObjects - kKept), k % kKept}) {
        const adhereTo<char> glue(all[i]);
        const char* data = glue;
        ASSERT_EQ(data[1], static_cast<char>(i));
      }
    }
    EXPECT_EQ(policy.missed_kept, 0);
    EXPECT_EQ(policy.cut, 0) << "there was no room for what it was asked to name";
  }
  ramspan::SetEvictionPolicy(nullptr);
}

// Who finds no victim while its policy thinks, and then memory that has become free, looks whether it is still for want of this object: another thread
// had brought it, and the program ended ("check failed: NextPhase").
void TwoThreadsPullOneObject() {
  enum class Who { kOther, kFirst, kSecond };
  static thread_local Who who = Who::kOther;
  struct Gate {
    void Pass() {  // once
      if (arrived.exchange(true)) return;
      while (!open) std::this_thread::yield();
    }
    void AwaitArrival() const {  // or another order of the threads, which shows nothing
      const auto begin = std::chrono::steady_clock::now();
      while (!arrived && std::chrono::steady_clock::now() - begin < std::chrono::seconds(5)) std::this_thread::yield();
    }
    std::atomic<bool> arrived{false}, open{false};
  };
  struct Thinks final : NamesNobody {
    size_t Victims(const Objects&, uint64_t, Ids) override {
      if (who == Who::kFirst) first.Pass();
      if (who == Who::kSecond) second.Pass();
      return 0;
    }
    Gate first, second;
  } policy;
  managedPtr<char> wanted(kMibBytes, 'w');
  std::vector<std::unique_ptr<managedPtr<char>>> others;
  for (int i = 0; i < 40; ++i) others.push_back(std::make_unique<managedPtr<char>>(kMibBytes, 'o'));  // it leaves
  std::deque<adhereTo<char>> pins;
  try {
    for (const auto& other : others) static_cast<void>(static_cast<char*>(pins.emplace_back(*other)));
  } catch (const ramspan::OutOfMemory&) {  // all of memory is pinned
    pins.pop_back();
  }
  const auto free_some = [&] {
    pins.pop_back();
    others[pins.size()].reset();
  };
  ramspan::SetEvictionPolicy(&policy);
  const auto pull = [&](Who self) {
    who = self;
    const adhereTo<char> glue(wanted);
    const char* const data = glue;
    EXPECT_EQ(data[kMibBytes - 1], 'w');
  };
  std::thread second(pull, Who::kSecond);
  policy.second.AwaitArrival();
  // The first one waits for its turn with the policy.
  std::thread first(pull, Who::kFirst);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  free_some();
  policy.second.open = true;
  policy.first.AwaitArrival();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the second one has it, unless it asks the policy once more
  free_some();
  policy.first.open = true;
  first.join();
  second.join();
  pins.clear();
  ramspan::SetEvictionPolicy(nullptr);
}

TEST(ProgramPolicy, AnObjectThatAnotherThreadBringsWhileItThinksIsBroughtOnce) {
  for (int round = 0; round < 5; ++round) TwoThreadsPullOneObject();  // not each order of threads shows it
}

TEST(ProgramPolicy, HearsOfAllUntilItIsReplacedAndOfNothingAfterwards) {
  struct Counts final : NamesNobody {
    size_t Victims(const Objects&, uint64_t, Ids) override { return 0; }
  } policy;
  ramspan::SetEvictionPolicy(&policy);
  const int before = policy.created;
  { SweepTwice(); }
  ramspan::SetEvictionPolicy(nullptr);
  EXPECT_GE(policy.created - before, 24);
  EXPECT_EQ(policy.created, policy.freed) << "a policy that goes sees its objects go";
  const int at_the_end = policy.created;
  { SweepTwice(); }
  EXPECT_EQ(policy.created, at_the_end);
}

// It became two, which were asked at once, and of which the one that went told it in the end that all objects had gone.
TEST(ProgramPolicy, IsTheSameWhenItIsSetAgain) {
  struct Knows final : NamesNobody {
    size_t Victims(const Objects&, uint64_t, Ids) override { return 0; }
  } policy;
  const managedPtr<char> one(64 << 10), two(64 << 10);
  ramspan::SetEvictionPolicy(&policy);
  const int created = policy.created;
  EXPECT_GT(created, 0);
  ramspan::SetEvictionPolicy(&policy);
  EXPECT_EQ(policy.created, created);
  EXPECT_EQ(policy.freed, 0);
  ramspan::SetEvictionPolicy(nullptr);
  EXPECT_EQ(policy.created, policy.freed);
}

// The message named adhereTos only, where a third of the limit was descriptors. In a process of its own: they stay.
TEST(MemoryLimitDeathTest, WhatDescriptorsTakeOfItIsSaidWherePinsFillTheRest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fill = [] {
    std::vector<managedPtr<char>> many;
    while (ramspan::GetStatistics().overhead < ramspan::MemoryLimit() / 3) many.emplace_back(4096, ramspan::uninitialized);
    std::deque<managedPtr<char>> tiles;
    std::deque<adhereTo<char>> pins;
    for (;;) {
      tiles.emplace_back(1 << 20, ramspan::uninitialized);
      pins.emplace_back(tiles.back());
      static_cast<void>(static_cast<char*>(pins.back()));
    }
  };
  EXPECT_EXIT(
      try { fill(); } catch (const ramspan::OutOfMemory& error) {
        std::fprintf(stderr, "%s\n", error.what());
        _exit(3);
      },
      testing::ExitedWithCode(3), "of which descriptors of objects and tables take");
}

// The one that waited was told that its limit holds, because the other one had raised it.
TEST(MemoryLimit, OfTwoThreadsIsSetOneAfterTheOther) {
  const uint64_t before = ramspan::MemoryLimit(), lower = 2 * kMibBytes, between = 12 * kMibBytes;
  std::vector<managedPtr<char>> all;
  for (int i = 0; i < 4; ++i) all.emplace_back(kMibBytes);
  {
    std::vector<adhereTo<char>> pins(all.begin(), all.end());
    for (adhereTo<char>& pin : pins) static_cast<char*>(pin)[0] = 1;
    std::atomic<bool> ended{false};
    std::thread lowers([&] {
      EXPECT_THROW(ramspan::SetMemoryLimit(lower), ramspan::Error) << "4 MiB are pinned";
      ended = true;
    });
    while (ramspan::MemoryLimit() != lower && !ended) std::this_thread::yield();
    std::thread([&] { ramspan::SetMemoryLimit(between); }).join();
    lowers.join();
    EXPECT_EQ(ramspan::MemoryLimit(), between);
  }
  ramspan::SetMemoryLimit(before);
}

TEST(ProgramPolicy, OneThatThrowsNamesNobody) {
  struct Throws final : NamesNobody {
    size_t Victims(const Objects&, uint64_t, Ids) override { throw std::runtime_error("no idea"); }
    size_t ReadAhead(const Objects&, uint64_t, Ids) override { throw 7; }
  } policy;
  ramspan::SetEvictionPolicy(&policy);
  SweepTwice();
  ramspan::SetEvictionPolicy(nullptr);
}

// A pull waited for the policy's own turn, for ever.
TEST(ProgramPolicy, IsRefusedWhatWaitsForItsCall) {
  struct Calls final : NamesNobody {
    std::vector<managedPtr<char>> objects;
    std::map<std::string, std::function<void()>> calls = {
        {"a pull", [this] {
          for (const managedPtr<char>& one : objects) {
            const adhereTo<char> glue(one);
            static_cast<void>(static_cast<const char*>(glue));
          }
        }},
        {"a managedPtr", [] { const managedPtr<char> made(kMibBytes); }},
        {"a mappedFile", [] { static_cast<void>(ramspan::detail::MapChunk(ramspan::detail::OpenMapped("/proc/self/exe"), 0, 4096)); }},
        {"a mappedFile that is written back", [] { ramspan::detail::WriteBackChunks({}, {}, 0, 0); }},
        {"LISTOFINGREDIENTS", [] { const ramspan::detail::IngredientsScope scope; }},
        {"SetMemoryLimit", [] { ramspan::SetMemoryLimit(kMibBytes); }},
        {"SetEvictionPolicy", [] { ramspan::SetEvictionPolicy(nullptr); }},
        {"CloseSwap", [] { ramspan::CloseSwap(); }},
        {"SwapInUse", [] { static_cast<void>(ramspan::SwapInUse()); }},
        {"GetSwapUse", [] { static_cast<void>(ramspan::GetSwapUse(ramspan::SwapId::kConfigured)); }},
        {"UseSwap", [] { ramspan::UseSwap(ramspan::SwapId::kConfigured); }},
    };
    std::map<std::string, std::string> told;
    uint64_t limit = 0;
    size_t Victims(const Objects&, uint64_t, Ids) override {
      if (!told.empty() || objects.size() < 24) return 0;
      limit = ramspan::MemoryLimit();
      static_cast<void>(ramspan::GetStatistics());
      for (const auto& [name, call] : calls) {
        told[name] = "nothing";
        try {
          call();
        } catch (const ramspan::Error& e) {
          told[name] = e.what();
        }
      }
      return 0;
    }
  } policy;
  for (int i = 0; i < 24; ++i) policy.objects.emplace_back(kMibBytes, static_cast<char>(i));
  ramspan::SetEvictionPolicy(&policy);
  SweepTwice();
  ramspan::SetEvictionPolicy(nullptr);
  EXPECT_EQ(policy.limit, ramspan::MemoryLimit());
  EXPECT_EQ(policy.told.size(), policy.calls.size());
  for (const auto& [name, words] : policy.told) EXPECT_THAT(words, testing::HasSubstr("within a call of an EvictionPolicy")) << name;
}

}  // namespace
