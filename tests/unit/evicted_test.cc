// What a search for chunks that can leave remembers of those that could not.
#include <gtest/gtest.h>

#include "client/engine/evicted.h"

namespace ramspan {
namespace {

// A small chunk found nobody whose slot it could have without too many others losing theirs. Larger ones were not tried any more, though
// they make as much room as they take; so a pull was refused that had only to look at them.
TEST(Evicted, ALargerVictimIsTriedThoughASmallerOneFoundNoSlot) {
  Evicted evicted;
  evicted.NoteNoExchange(14);
  EXPECT_FALSE(evicted.MayExchange(14));
  EXPECT_TRUE(evicted.MayExchange(40));
  EXPECT_TRUE(evicted.MayExchange(8));
}

TEST(Evicted, AfterManySizesInVainNoLargerOnesAreTried) {
  Evicted evicted;
  for (uint64_t i = 0; i < Evicted::kExchangesMax; ++i) evicted.NoteNoExchange(100 + i);
  EXPECT_FALSE(evicted.MayExchange(1000));
  ASSERT_TRUE(evicted.MayExchange(99));
  evicted.NoteNoExchange(50);
  EXPECT_FALSE(evicted.MayExchange(60));
  EXPECT_TRUE(evicted.MayExchange(49));
}

}  // namespace
}  // namespace ramspan
