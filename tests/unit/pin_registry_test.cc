// How pin tables pass from thread to thread. What evictors see in them: tests/interleave.
#include "client/front/pin_registry.h"

#include <gtest/gtest.h>

#include <thread>

namespace ramspan {
namespace {

// Pins once more when its thread ends, as a thread_local container of managedPtrs whose elements have destructors.
struct PinsAtThreadEnd {
  bool used = false;
  ~PinsAtThreadEnd() {
    if (used) detail::ThisThreadPins();
  }
};
thread_local PinsAtThreadEnd t_late;

void RunThreads(int n) {
  for (int i = 0; i < n; ++i) {
    std::thread([] {
      t_late.used = true;  // made before the thread's first pin, so it is destroyed after what that pin made
      PinRegistry::Get().Adopt();
    }).join();
  }
}

// The table that such an end adopts was never given up: 1 KiB and 64 slots to be looked at a thread, and for ever a thread
// that might release something, so that no deadlock was certain any more.
TEST(PinRegistry, ATableThatAThreadsLastDestructorsTookIsGivenUp) {
  PinRegistry& registry = PinRegistry::Get();
  registry.Adopt();
  RunThreads(1);
  const uint64_t before = registry.metadata_bytes();
  RunThreads(20);
  EXPECT_EQ(registry.metadata_bytes(), before);
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kDeadlock);  // nobody else lives
}

}  // namespace
}  // namespace ramspan
