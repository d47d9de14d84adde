#include "common/other_stack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

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

}  // namespace
}  // namespace ramspan
