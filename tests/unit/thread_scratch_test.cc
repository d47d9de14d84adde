#include "common/thread_scratch.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace ramspan {
namespace {

std::vector<int>& Numbers() { return ThreadScratch<std::vector<int>, struct NumbersTag>(); }
std::vector<int>& OtherNumbers() { return ThreadScratch<std::vector<int>, struct OtherNumbersTag>(); }

TEST(ThreadScratch, IsOneAThreadAndATag) {
  Numbers().assign(100, 7);
  EXPECT_EQ(Numbers().size(), 100u);
  EXPECT_TRUE(OtherNumbers().empty());
  std::thread([] { EXPECT_TRUE(Numbers().empty()); }).join();
  EXPECT_EQ(Numbers().capacity(), 100u);
}

// What far transfers in flight at a program's end did: a heap-use-after-free, a corrupt heap, a hanging MPI_Finalize.
TEST(ThreadScratchDeathTest, IsNewInExitHandlersNotDestroyed) {
  EXPECT_EXIT(
      {
        std::atexit([] {
          const bool fresh = Numbers().empty() && Numbers().capacity() == 0;
          Numbers().assign(1000, 1);
          std::fputs(fresh && Numbers().size() == 1000 ? "fresh\n" : "destroyed\n", stderr);
        });
        Numbers().assign(100, 7);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "fresh");
}

}  // namespace
}  // namespace ramspan
