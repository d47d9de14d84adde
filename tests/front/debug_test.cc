// Debug mode (RAMSPAN_DEBUG=1) under a limit of 8 MiB.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ramspan/errors.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/managed_vector.h"
#include "ramspan/runtime.h"

namespace {

using ramspan::managedPtr;

constexpr size_t kElements = (1 << 20) / sizeof(uint64_t);

std::vector<managedPtr<uint64_t>> Chunks() {
  std::vector<managedPtr<uint64_t>> data;
  for (uint64_t i = 0; i < 20; ++i) data.emplace_back(kElements, i);
  return data;
}

void SweepMutable(std::vector<managedPtr<uint64_t>>& data, bool change) {
  for (auto& one : data) {
    ADHERETOLOC(uint64_t, one, p);
    if (change) ++p[3];
  }
}

uint64_t Unchanged() { return nlohmann::json::parse(ramspan::StatsJson())["unchanged_writes"]; }

class Debug : public testing::Test {
 protected:
  // Death tests run this program again: a forked child has no Ramspan.
  Debug() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(Debug, APointerUsedAfterItsAdhereToFaultsAndIsExplained) {
  EXPECT_EXIT(
      {
        auto data = Chunks();
        uint64_t* stale;
        {
          ADHERETOLOC(uint64_t, data[0], p);
          stale = p;
        }
        ramspan::SetMemoryLimit(1 << 20);  // it must leave
        ramspan::SetMemoryLimit(8 << 20);
        SweepMutable(data, true);  // its frame must not serve another object meanwhile
        stale[5] = 1;
        std::exit(0);
      },
      testing::KilledBySignal(SIGSEGV), "used address 0x0000.*where an object was that has left memory");
}

TEST_F(Debug, OtherFaultsAreNotExplained) {
  EXPECT_EXIT(
      {
        auto data = Chunks();
        kill(getpid(), SIGSEGV);
        sleep(5);
      },
      testing::KilledBySignal(SIGSEGV), testing::Not(testing::HasSubstr("an object was")));
}

TEST_F(Debug, WritesThatChangeNothingAreCountedAndReportedAtTheEnd) {
  EXPECT_EXIT(
      {
        auto data = Chunks();
        SweepMutable(data, true);
        SweepMutable(data, false);
        SweepMutable(data, false);
        std::exit(Unchanged() > 20 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "were what was in swap already.*Pull const T\\*.*Objects of 1 MiB \\([0-9]+ times\\)");
}

constexpr int kLine = __LINE__ + 2;
[[gnu::noinline]] uint64_t ReadByWrite(managedPtr<uint64_t>& one) {
  auto pinned = one.write();
  return pinned[3];
}
// The library's header has a function of its own there, which is not inlined.
constexpr int kLineOfView = __LINE__ + 4;
[[gnu::noinline]] uint64_t ReadByView(ramspan::managedVector<uint64_t>& x) {
  const auto view = x.view();
  uint64_t sum = 0;
  for (size_t i = 0; i < x.size(); i += 8192) sum += view[i];
  return sum;
}
TEST_F(Debug, TheLinesOfViewsThatChangedNothingAreTold) {
  if (std::system("command -v addr2line >/dev/null") != 0) GTEST_SKIP() << "needs addr2line (binutils)";
  EXPECT_EXIT(
      {
        ramspan::managedVector<uint64_t> x(3 << 20, 1);
        for (int sweep = 0; sweep < 4; ++sweep) ReadByView(x);
        std::exit(Unchanged() > 20 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "pulled as T\\* at debug_test.cc:" + std::to_string(kLineOfView) + " in ReadByView.*times\\)");
}

TEST_F(Debug, TheLinesOfPullsThatChangedNothingAreTold) {
  if (std::system("command -v addr2line >/dev/null") != 0) GTEST_SKIP() << "needs addr2line (binutils)";
  EXPECT_EXIT(
      {
        auto data = Chunks();
        SweepMutable(data, true);
        for (int sweep = 0; sweep < 3; ++sweep) {
          for (auto& one : data) ReadByWrite(one);
        }
        std::exit(Unchanged() > 20 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "pulled as T\\* at debug_test.cc:" + std::to_string(kLine) + " in ReadByWrite.*times\\)");
}

TEST_F(Debug, ChangesAndConstAreNotReported) {
  auto data = Chunks();
  for (int sweep = 0; sweep < 3; ++sweep) SweepMutable(data, true);
  for (int sweep = 0; sweep < 2; ++sweep) {
    for (size_t i = 0; i < data.size(); ++i) {
      ADHERETOLOCCONST(uint64_t, data[i], p);
      ASSERT_EQ(p[3], i + 3);
      ASSERT_EQ(p[4], i);
    }
  }
  EXPECT_EQ(Unchanged(), 0u);
}

// The key was missing in what EffectiveOptions returns, and changing it in a running program was accepted without effect.
TEST_F(Debug, TheKeyIsInForceAndCannotChange) {
  EXPECT_EQ(ramspan::EffectiveOptions().debug, true);
  ramspan::Options off;
  off.debug = false;
  EXPECT_THROW(ramspan::Reconfigure(off), ramspan::ConfigError);
}

// The program's own status is what counts at its end.
TEST_F(Debug, LastWordsIntoAClosedPipeDoNotEndTheProgram) {
  const auto end = [] {
    auto data = Chunks();
    SweepMutable(data, false);
    SweepMutable(data, false);
    int ends[2];
    if (pipe(ends) != 0) std::_Exit(1);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    std::exit(7);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(7), "");
}

}  // namespace
