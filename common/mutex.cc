#include "common/mutex.h"

#ifndef NDEBUG

namespace ramspan::detail {
namespace {
constexpr int kMaxHeld = 16;
thread_local LockRank held[kMaxHeld];
thread_local int held_count = 0;
}  // namespace

void RankAcquire(LockRank rank) {
  RS_CHECK(held_count < kMaxHeld, "one thread holds %d mutexes", held_count);
  if (held_count > 0) {
    RS_CHECK(static_cast<int>(held[held_count - 1]) < static_cast<int>(rank), "lock rank %d taken while holding %d",
             static_cast<int>(rank), static_cast<int>(held[held_count - 1]));
  }
  held[held_count++] = rank;
}

void RankRelease(LockRank rank) {
  int i = held_count - 1;
  while (i >= 0 && held[i] != rank) --i;
  RS_CHECK(i >= 0, "lock rank %d released but not held", static_cast<int>(rank));
  for (; i + 1 < held_count; ++i) held[i] = held[i + 1];
  --held_count;
}

}  // namespace ramspan::detail

#endif  // NDEBUG
