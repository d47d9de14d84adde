#include "common/public_call.h"

#include <gtest/gtest.h>

namespace ramspan {
namespace {

// It waited for itself, sooner or later: the stack left memory while its thread held a lock that bringing it back takes.
TEST(PublicCall, EndsTheProcessOnAStackThatIsSwapped) {
  const auto on_such_stack = [] {
    const auto* const here = static_cast<const char*>(__builtin_frame_address(0));
    PublicCall::BeginPages(here - (64 << 10), 128 << 10);
    { const PublicCall call(PublicCall::Stack::kAny); }
    fputs("a call that goes on elsewhere is free to", stderr);
    const PublicCall call;
  };
  EXPECT_DEATH(on_such_stack(), "free to.*on a stack that is swapped by pages.*--pages-above");
}

}  // namespace
}  // namespace ramspan
