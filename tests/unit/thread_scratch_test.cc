#include "common/thread_scratch.h"

#include <gtest/gtest.h>
#include <pthread.h>

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
TEST(ThreadScratchDeathTest, IsUsableInExitHandlers) {
  EXPECT_EXIT(
      {
        std::atexit([] {
          Numbers().assign(1000, 1);
          std::fputs(Numbers().size() == 1000 ? "usable\n" : "destroyed\n", stderr);
        });
        Numbers().assign(100, 7);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "usable");
}

struct Counted {
  Counted() { ++made; }
  ~Counted() { ++destroyed; }
  static inline int made = 0, destroyed = 0;
};
Counted& OfThread() { return ThreadScratch<Counted, struct CountedTag>(); }

// By the destructors of thread_local objects and of thread-specific data, in whatever order.
TEST(ThreadScratch, GoesWithItsThreadAlsoWhereItsLastDestructorsUseIt) {
  struct Last {
    ~Last() { OfThread(); }
  };
  static pthread_key_t key;
  ASSERT_EQ(pthread_key_create(&key, [](void*) { OfThread(); }), 0);
  std::thread([] {
    static thread_local Last last;
    static_cast<void>(last);
    ASSERT_EQ(pthread_setspecific(key, &key), 0);
    OfThread();
  }).join();
  pthread_key_delete(key);
  EXPECT_GE(Counted::made, 1);
  EXPECT_EQ(Counted::destroyed, Counted::made);
}

}  // namespace
}  // namespace ramspan
