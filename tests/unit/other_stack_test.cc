#include "common/other_stack.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace ramspan {
namespace {

uintptr_t Here() { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }

TEST(OtherStack, ReturnsWhatTheFunctionDoesAndKeepsTheCallers) {
  const uintptr_t here = Here();
  const uintptr_t there = OnOtherStack([] { return Here(); });
  EXPECT_GT(there > here ? there - here : here - there, uintptr_t{1} << 16);
  int calls = 0;
  OnOtherStack([&calls] { ++calls; });
  EXPECT_EQ(calls, 1);
  const auto owned = std::make_shared<int>(7);
  EXPECT_EQ(*OnOtherStack([owned] { return owned; }), 7);
  EXPECT_EQ(owned.use_count(), 1) << "what was captured is destroyed";
}

int Deep(int n) {
  volatile char frame[1024];
  frame[0] = static_cast<char>(n);
  return n == 0 ? 0 : Deep(n - 1) + 1 + (frame[0] - static_cast<char>(n));
}

TEST(OtherStack, HasRoomAndNests) {
  EXPECT_EQ(OnOtherStack([] { return Deep(150); }), 150);
  EXPECT_EQ(OnOtherStack([] { return OnOtherStack([] { return 3; }) + 1; }), 4);
}

// 0: all went well.
int RunWithoutAddresses() {
  if (!ReserveOtherStack()) return 3;
  rlimit addresses;
  if (getrlimit(RLIMIT_AS, &addresses) != 0) return 4;
  addresses.rlim_cur = 1 << 20;
  if (setrlimit(RLIMIT_AS, &addresses) != 0) return 5;
  for (int i = 0; i < 1000; ++i) {
    const uintptr_t here = Here(), there = OnOtherStack([] { return Here(); });
    if ((there > here ? there - here : here - there) < uintptr_t{1} << 16) return 6;
  }
  return 0;
}

// A call on a stack that is swapped ran there all the same where the addresses were used up (ulimit -v), and waited for itself (a reader's run).
TEST(OtherStack, IsThereAlsoWithoutAddresses) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer needs addresses itself";
#endif
  EXPECT_EXIT(_exit(RunWithoutAddresses()), testing::ExitedWithCode(0), "");
}

TEST(OtherStack, ManyThreadsHaveOneEach) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&wrong, t] {
      for (int i = 0; i < 2000; ++i) {
        const int got = OnOtherStack([t, i] {
          volatile int kept[64];
          for (volatile int& one : kept) one = t * 10000 + i;
          int sum = 0;
          for (const volatile int& one : kept) sum += one == t * 10000 + i;
          return sum;
        });
        wrong += got != 64;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace ramspan
