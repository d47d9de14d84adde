// adhereAll under the same 16 MiB limit as front_test.cc.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "ramspan/adhere_all.h"
#include "ramspan/runtime.h"
#include "tests/support/ends_or_else.h"
#include "tests/support/send_signal.h"
#include "tests/support/shortest_of.h"

namespace {

using ramspan::adhereAll;
using ramspan::adhereTo;
using ramspan::managedPtr;

constexpr size_t kMibElements = (1 << 20) / sizeof(uint64_t);  // elements

std::vector<managedPtr<uint64_t>> Chunks(size_t n, size_t elements) {
  std::vector<managedPtr<uint64_t>> data;
  for (size_t i = 0; i < n; ++i) data.emplace_back(elements, uint64_t{0});
  return data;
}

// What the statistics say of pins by now: waits, total_us, refused.
uint64_t PinStatistic(const char* key) { return nlohmann::json::parse(ramspan::StatsJson())["pins"][key].get<uint64_t>(); }

TEST(AdhereAll, GivesPulledAdhereTosOfEachType) {
  managedPtr<double> a(1000, 1.5);
  managedPtr<int> b(10, 7);
  auto [x, y] = adhereAll(a, std::as_const(b));
  double* px = x;
  const int* py = y;
  px[999] = py[9];
  EXPECT_EQ(px[999], 7);
}

TEST(AdhereAll, TakesRangesAndSkipsNull) {
  std::vector<managedPtr<uint64_t>> data = Chunks(3, 100);
  data.emplace_back(0);
  {
    std::vector<adhereTo<uint64_t>> pins = adhereAll(data);
    ASSERT_EQ(pins.size(), 4u);
    for (size_t i = 0; i < 3; ++i) static_cast<uint64_t*>(pins[i])[5] = i;
    EXPECT_EQ(static_cast<uint64_t*>(pins[3]), nullptr);
  }
  const auto pins = adhereAll(std::as_const(data));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(static_cast<const uint64_t*>(pins[i])[5], i);
}

TEST(AdhereAll, ReadsOfConstWriteNothing) {
  std::vector<managedPtr<uint64_t>> data = Chunks(40, kMibElements);
  const auto bytes_out = [] {
    return nlohmann::json::parse(ramspan::StatsJson())["tiers"]["file"]["bytes_out"].get<uint64_t>();
  };
  const uint64_t limit = ramspan::GetStatistics().memory_limit;
  ramspan::SetMemoryLimit(4 << 20);  // so little that all that the constructors made leaves
  for (size_t i = 0; i + 1 < data.size(); i += 2) auto pins = adhereAll(std::as_const(data[i]), std::as_const(data[i + 1]));
  ramspan::SetMemoryLimit(limit);
  const uint64_t before = bytes_out();
  for (size_t i = 0; i + 1 < data.size(); i += 2) auto pins = adhereAll(std::as_const(data[i]), std::as_const(data[i + 1]));
  EXPECT_EQ(bytes_out(), before);
}

TEST(AdhereAll, OneManagedPtrTwiceIsTwoPins) {
  managedPtr<uint64_t> a(9 * kMibElements, uint64_t{3});  // twice this would not fit
  auto [x, y] = adhereAll(a, a);
  EXPECT_EQ(static_cast<uint64_t*>(x), static_cast<uint64_t*>(y));
}

TEST(AdhereAll, HundredsOfPinsArePinnedOrNone) {
  std::vector<managedPtr<uint64_t>> data = Chunks(300, 4096);  // 32 KiB: together 60 % of the limit
  const auto chunk = [](const managedPtr<uint64_t>& one) { return ramspan::detail::ObjectOf()(one).chunk(); };
  for (int round = 0; round < 3; ++round) {
    auto pins = adhereAll(data);
    std::vector<managedPtr<uint64_t>> push_out = Chunks(10, kMibElements);
    for (auto& one : push_out) one.write()[0] = 1;
    for (size_t i = 0; i < data.size(); ++i) {
      ASSERT_STREQ(ramspan::detail::DescribeChunk(chunk(data[i])), "in use") << i;
      ASSERT_EQ(static_cast<uint64_t*>(pins[i])[7]++, static_cast<uint64_t>(round));
    }
  }
  std::vector<managedPtr<uint64_t>> too_many = Chunks(600, 4096);
  EXPECT_THROW(static_cast<void>(adhereAll(too_many)), ramspan::OutOfMemory);
  for (const auto& one : too_many) EXPECT_STRNE(ramspan::detail::DescribeChunk(chunk(one)), "in use");
}

// What is said counts pins, and looked twice at one that its thread had released meanwhile: the process ended by SIGSEGV after some thousand refusals.
TEST(AdhereAll, IsRefusedWhileOthersUnpin) {
  std::vector<managedPtr<uint64_t>> half = Chunks(9, kMibElements), more = Chunks(9, kMibElements);
  managedPtr<uint64_t> own(1024);
  const auto pinned = adhereAll(half);
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    while (!stop) {
      adhereTo<uint64_t> glue(own);
      uint64_t* const x = glue;
      ++x[0];
    }
  });
  ramspan::SetWaitForPins(false);
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1); std::chrono::steady_clock::now() < end;) {
    EXPECT_THROW(static_cast<void>(adhereAll(more)), ramspan::OutOfMemory);
  }
  ramspan::SetWaitForPins(true);
  stop = true;
  worker.join();
}

// It spoke of a request that is too large.
TEST(AdhereAll, WhatPinsIsNamedWhereTheLimitCannotBeLowered) {
  const uint64_t limit = ramspan::MemoryLimit();
  std::vector<managedPtr<uint64_t>> half = Chunks(8, kMibElements);
  const auto pinned = adhereAll(half);
  try {
    ramspan::SetMemoryLimit(limit / 4);
    ADD_FAILURE() << "half of the limit is pinned, and a quarter of it became the limit";
  } catch (const ramspan::OutOfMemory& e) {
    EXPECT_NE(std::string(e.what()).find("adhereTos pin all of the memory limit"), std::string::npos) << e.what();
  }
  EXPECT_EQ(ramspan::MemoryLimit(), limit);
}

TEST(AdhereAll, MoreThanTheLimitIsRefusedAtOnceAndNothingStaysPinned) {
  std::vector<managedPtr<uint64_t>> data = Chunks(4, 6 * kMibElements);
  constexpr std::chrono::milliseconds kGrace{1000};  // the shortest wait for pins that may go
  const auto refused = [&] { EXPECT_THROW(static_cast<void>(adhereAll(data[0], data[1], data[2])), ramspan::OutOfMemory); };
  const uint64_t refused_before = PinStatistic("refused");
  EXPECT_LT(ShortestOf(kGrace, refused), kGrace);
  EXPECT_GT(PinStatistic("refused"), refused_before);
  auto [x, y] = adhereAll(data[2], data[3]);
  static_cast<uint64_t*>(x)[0] = static_cast<uint64_t*>(y)[0];
}

// Plain adhereTos of two or three chunks each would stop these threads half-way soon.
TEST(AdhereAll, ManyThreadsThatNeedSeveralChunksAllFinish) {
  constexpr size_t kThreads = 6, kChunks = 12;
  constexpr uint64_t kRounds = 20;
  std::vector<managedPtr<uint64_t>> data = Chunks(kChunks, 4 * kMibElements);  // three fit
  std::vector<std::mutex> owner(kChunks);
  std::vector<std::thread> team;
  for (size_t t = 0; t < kThreads; ++t) {
    team.emplace_back([&, t] {
      std::minstd_rand random(static_cast<unsigned>(t + 1));
      std::vector<size_t> order(kChunks);
      std::iota(order.begin(), order.end(), size_t{0});
      for (uint64_t k = 0; k < kRounds; ++k) {
        std::shuffle(order.begin(), order.end(), random);
        const size_t a = order[0], b = order[1], c = order[2];
        auto [x, y, z] = adhereAll(data[a], data[b], data[c]);
        std::scoped_lock lock(owner[a], owner[b], owner[c]);
        ++static_cast<uint64_t*>(x)[kMibElements];
        ++static_cast<uint64_t*>(y)[kMibElements];
        ++static_cast<uint64_t*>(z)[kMibElements];
      }
    });
  }
  for (std::thread& one : team) one.join();
  uint64_t sum = 0;
  for (const auto& one : data) {
    const adhereTo<uint64_t> glue(one);
    sum += static_cast<const uint64_t*>(glue)[kMibElements];
  }
  EXPECT_EQ(sum, 3 * kThreads * kRounds);
}

// Two chunks are pinned by another thread for a while, and \p pull can wait for nothing else: it is counted as one wait, of more than
// \p least_us. Looks are counted with their sleep only, and a busy machine may run nobody but the holder: then the holder takes longer.
template <typename Pull>
void ExpectOneCountedWait(std::chrono::milliseconds hold, uint64_t least_us, const std::vector<managedPtr<uint64_t>>& data, Pull pull) {
  uint64_t waits = 0, waited_us = 0;
  for (; (waits == 0 || waited_us <= least_us) && hold < std::chrono::seconds(20); hold *= 2) {
    std::atomic<bool> pinned{false};
    std::thread holder([&] {
      auto [x, y] = adhereAll(data[0], data[1]);
      pinned = true;
      std::this_thread::sleep_for(hold);
      static_cast<uint64_t*>(x)[0] = static_cast<uint64_t*>(y)[0] = 5;
    });
    while (!pinned) std::this_thread::yield();
    const uint64_t waits_before = PinStatistic("waits"), us_before = PinStatistic("total_us"), refused = PinStatistic("refused");
    EXPECT_NO_THROW(pull());
    holder.join();
    waits = PinStatistic("waits") - waits_before;
    waited_us = PinStatistic("total_us") - us_before;
    EXPECT_LE(waits, 1u);
    EXPECT_EQ(PinStatistic("refused"), refused);
  }
  EXPECT_EQ(waits, 1u);
  EXPECT_GT(waited_us, least_us);
}

// The holder computes for longer than any patience with waiters: who waits must not give up before.
TEST(AdhereAll, WaitsForAThreadThatStillComputes) {
  const std::vector<managedPtr<uint64_t>> data = Chunks(4, 6 * kMibElements);
  ExpectOneCountedWait(std::chrono::milliseconds(1500), 300'000, data, [&] { static_cast<void>(adhereAll(data[2], data[3])); });
}

TEST(AdhereAll, APullThatWaitsForPinsIsCountedToo) {
  const std::vector<managedPtr<uint64_t>> data = Chunks(3, 6 * kMibElements);
  ExpectOneCountedWait(std::chrono::milliseconds(300), 50'000, data, [&] {
    const adhereTo<uint64_t> glue(data[2]);
    EXPECT_EQ(static_cast<const uint64_t*>(glue)[0], 0u);
  });
}

// SetWaitForPins(false), also by exit(), ended the waits of adhereTo only: adhereAll in a static object's destructor waited for ever
// for a thread that would never run again. Here one thread waits in turn, one for its turn, and one comes later.
TEST(AdhereAll, NobodyWaitsAnyMoreWhereTheProgramSaysSo) {
  std::vector<managedPtr<uint64_t>> data = Chunks(4, 6 * kMibElements);
  std::atomic<bool> pinned{false};
  std::atomic<int> told{0};
  const auto pull = [&] {
    EXPECT_THROW(static_cast<void>(adhereAll(data[2], data[3])), ramspan::OutOfMemory);
    ++told;
  };
  std::thread holder([&] {
    auto [x, y] = adhereAll(data[0], data[1]);
    static_cast<uint64_t*>(x)[0] = static_cast<uint64_t*>(y)[0] = 5;
    pinned = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);  // else the error would be a hang
    while (told < 3 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  while (!pinned) std::this_thread::yield();
  std::atomic<ramspan::detail::PinTable*> tables[2] = {};
  std::thread waiters[2];
  for (size_t i = 0; i < 2; ++i) {
    waiters[i] = std::thread([&, i] {
      tables[i] = ramspan::detail::ThisThreadPins();
      pull();
    });
  }
  const auto waits = [](const auto& table) { return table != nullptr && table.load()->waiting_for != nullptr; };
  while (!waits(tables[0]) && !waits(tables[1])) std::this_thread::yield();  // for its turn: the other one is in turn
  ramspan::SetWaitForPins(false);
  pull();
  for (std::thread& waiter : waiters) waiter.join();
  holder.join();
  ramspan::SetWaitForPins(true);
}

TEST(AdhereAll, ADeadlockWithPinsHeldOutsideIsThrown) {
  std::vector<managedPtr<uint64_t>> data = Chunks(3, 6 * kMibElements);
  adhereTo<uint64_t> held(data[0]);
  static_cast<uint64_t*>(held)[0] = 1;
  EXPECT_THROW(static_cast<void>(adhereAll(data[1], data[2])), ramspan::OutOfMemory);
}

// Each waited for the other for ever: one for its pins, the other one for its turn.
TEST(AdhereAll, OfTwoThreadsThatHoldWhatTheOtherNeedsOneThrowsAndTheOtherGoesOn) {
  std::vector<managedPtr<uint64_t>> data = Chunks(10, 2 * kMibElements);  // seven fit
  std::atomic<int> holders{0}, thrown{0}, done{0};
  const auto work = [&](size_t first) {
    try {
      const auto held = adhereAll(data[first], data[first + 1], data[first + 2]);
      ++holders;
      while (holders < 2) std::this_thread::yield();
      static_cast<void>(adhereAll(data[first + 3], data[first + 4]));
    } catch (const ramspan::OutOfMemory&) {
      ++thrown;
    }
    ++done;
  };
  std::thread one(work, 0), two(work, 5);
  EndsOrElse([&] { return done == 2; });
  one.join();
  two.join();
  EXPECT_EQ(thrown, 1);
}

// There was never a moment when two of them held nothing, so it came to its memory once in several seconds. The same for one object as large
// as three of theirs.
TEST(AdhereAll, IsServedBesideThreadsThatPinAtOnceAgainWhatTheyRelease) {
  constexpr size_t kThreads = 14;  // beside them there is room for one object more
  constexpr int kTimes = 40;
  std::signal(SIGUSR2, [](int) {});  // interrupts waits
  std::atomic<int> wrong_errno{0};
  std::vector<managedPtr<uint64_t>> data = Chunks(kThreads + 30, kMibElements);
  std::vector<managedPtr<uint64_t>> large = Chunks(6, 3 * kMibElements);
  std::atomic<bool> done{false};
  std::thread holders[kThreads];
  for (size_t t = 0; t < kThreads; ++t) {
    holders[t] = std::thread([&, t] {
      while (!done) {
        const adhereTo<uint64_t> glue(data[t]);
        errno = 0;
        static_cast<void>(static_cast<const uint64_t*>(glue));
        wrong_errno += errno != 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  }
  std::thread needs([&] {
    for (int i = 0; i < kTimes; ++i) {
      const size_t first = kThreads + static_cast<size_t>(i) * 17 % 28;
      auto [x, y, z] = adhereAll(data[first], data[first + 1], data[first + 2]);
      ++static_cast<uint64_t*>(x)[0];
      ++static_cast<uint64_t*>(y)[0];
      ++static_cast<uint64_t*>(z)[0];
    }
    for (int i = 0; i < kTimes; ++i) {
      adhereTo<uint64_t> glue(large[static_cast<size_t>(i) % large.size()]);
      ++static_cast<uint64_t*>(glue)[0];
    }
    done = true;
  });
  EndsOrElse([&] {
    for (std::thread& holder : holders) pthread_kill(holder.native_handle(), SIGUSR2);
    return done.load();
  });
  needs.join();
  for (std::thread& holder : holders) holder.join();
  std::signal(SIGUSR2, SIG_DFL);
  EXPECT_EQ(wrong_errno, 0) << "a pull changes errno";
}

// It waited in the destructor of a condition variable for threads that are in its parent only.
TEST(AdhereAll, AForkedChildEndsWhileThreadsOfItsParentWaitForTheirTurn) {
  std::vector<managedPtr<uint64_t>> data = Chunks(4, 6 * kMibElements);
  std::atomic<bool> done{false}, pinned{false};
  std::thread holder([&] {
    auto [x, y] = adhereAll(data[0], data[1]);
    pinned = true;
    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!pinned) std::this_thread::yield();
  std::atomic<ramspan::detail::PinTable*> tables[2] = {};
  std::thread waiters[2];
  for (size_t i = 0; i < 2; ++i) {
    waiters[i] = std::thread([&, i] {
      tables[i] = ramspan::detail::ThisThreadPins();
      static_cast<void>(adhereAll(data[2], data[3]));
    });
  }
  const auto waits = [](const auto& table) { return table != nullptr && table.load()->waiting_for != nullptr; };
  while (!waits(tables[0]) && !waits(tables[1])) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  int status = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) SendSignal(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(WIFEXITED(status)) << status;
#ifndef __SANITIZE_ADDRESS__  // it finds in the child what the parent's threads hold
  EXPECT_EQ(WEXITSTATUS(status), 0);
#endif
  done = true;
  holder.join();
  for (std::thread& waiter : waiters) waiter.join();
}

// Who holds pins goes on, or it would never come to release them.
TEST(AdhereAll, HoldsNobodyUpWhoHoldsPins) {
  std::vector<managedPtr<uint64_t>> data = Chunks(3, 6 * kMibElements);
  std::vector<managedPtr<uint64_t>> small = Chunks(8, kMibElements / 4);  // not too small to matter
  constexpr std::chrono::milliseconds kHeldUp{10};
  const auto longest_pull_beside_another_that_waits = [&] {
    std::atomic<bool> pinned{false};
    std::chrono::steady_clock::duration longest{};
    std::thread holder([&] {
      adhereTo<uint64_t> held(data[0]);
      static_cast<uint64_t*>(held)[0] = 1;
      pinned = true;
      for (const auto begin = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - begin < 30 * kHeldUp;) {
        for (auto& one : small) {
          const auto pull = std::chrono::steady_clock::now();
          const adhereTo<uint64_t> glue(one);
          static_cast<void>(static_cast<const uint64_t*>(glue));
          longest = std::max(longest, std::chrono::steady_clock::now() - pull);
        }
        std::this_thread::yield();
      }
    });
    while (!pinned) std::this_thread::yield();
    static_cast<void>(adhereAll(data[1], data[2]));
    holder.join();
    return longest;
  };
  auto longest = longest_pull_beside_another_that_waits();
  for (int i = 0; i < 60 && longest >= kHeldUp; ++i) longest = std::min(longest, longest_pull_beside_another_that_waits());  // a busy machine
  EXPECT_LT(longest, kHeldUp);
}

// The pins that it takes and lets go again looked like those of a thread that may unpin, and what it brings in and others make leave like progress: those
// two waited for as long as it tried.
TEST(AdhereAll, WhoTriesAgainAndAgainKeepsNobodyFromTheEndOfADeadlock) {
  std::vector<managedPtr<uint64_t>> data = Chunks(4, 7 * kMibElements);
  std::vector<managedPtr<uint64_t>> small = Chunks(2, 1024);
  std::atomic<int> holders{0}, thrown{0}, done{0};
  const auto hold = [&](size_t mine) {
    try {
      adhereTo<uint64_t> held(data[mine]);
      static_cast<uint64_t*>(held)[0] = 1;
      ++holders;
      while (holders < 2) std::this_thread::yield();
      adhereTo<uint64_t> more(data[2 + mine]);
      static_cast<uint64_t*>(more)[0] = 1;
    } catch (const ramspan::OutOfMemory&) {
      ++thrown;
    }
    ++done;
  };
  std::thread one(hold, 0), two(hold, 1);
  std::thread retries([&] {
    while (holders < 2) std::this_thread::yield();
    while (done < 2) {
      try {
        static_cast<void>(adhereAll(small[0], small[1], data[2]));
      } catch (const ramspan::OutOfMemory&) {
      }
    }
  });
  EndsOrElse([&] { return done == 2; });
  one.join();
  two.join();
  retries.join();
  EXPECT_EQ(thrown, 1);
}

// Who is next in turn goes on when this turn ends, and releases what a third one needs: that one was told that nobody could.
TEST(AdhereAll, WhoGivesUpSpeaksForNobodyWhileAnotherIsNextInTurn) {
  managedPtr<uint64_t> held(10 * kMibElements, uint64_t{0}), wanted(7 * kMibElements, uint64_t{0}), small(kMibElements, uint64_t{0});
  std::vector<managedPtr<uint64_t>> data = Chunks(2, 4 * kMibElements);
  std::atomic<int> stage{0}, done{0}, given_up{0};
  std::atomic<bool> got{false};
  std::thread next_in_turn([&] {
    adhereTo<uint64_t> glue(held);
    static_cast<uint64_t*>(glue)[0] = 1;
    stage = 1;
    while (stage < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the other one is in turn by now
    static_cast<void>(adhereAll(small));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++done;
  });
  while (stage < 1) std::this_thread::yield();
  std::thread gives_up([&] {
    stage = 2;
    try {
      static_cast<void>(adhereAll(data[0], data[1]));
    } catch (const ramspan::OutOfMemory&) {
      ++given_up;
    }
    ++done;
  });
  std::thread needs([&] {
    while (stage < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    try {
      adhereTo<uint64_t> glue(wanted);
      static_cast<uint64_t*>(glue)[0] = 3;
      got = true;
    } catch (const ramspan::OutOfMemory&) {
    }
    ++done;
  });
  EndsOrElse([&] { return done == 3; });
  next_in_turn.join();
  gives_up.join();
  needs.join();
  EXPECT_TRUE(got);
  EXPECT_EQ(given_up, 1) << "then this test shows nothing";
}

}  // namespace
