// One step of counting and of giving back what is counted, in a header of its own so that tests/resident can compile it over atomics between
// whose operations another thread has its turn.
#pragma once

#include <atomic>
#include <limits>

namespace ramspan::detail {

// Takes `n` off `count`; false: it holds fewer, and nothing was done. The look and the step are one: of two threads that both end the last
// pin, one gets false. `order`: what the step publishes; of the look nothing is used.
template <typename Word>
bool TakeOff(std::atomic<Word>& count, Word n, std::memory_order order) {
  Word held = count.load(std::memory_order_relaxed);
  do {
    if (held < n) return false;
  } while (!count.compare_exchange_weak(held, static_cast<Word>(held - n), order, std::memory_order_relaxed));
  return true;
}

// Adds one to `count`; false: it holds as many as it can, and nothing was done. Not even for a moment does it hold fewer.
template <typename Word>
bool PutOn(std::atomic<Word>& count) {
  Word held = count.load(std::memory_order_relaxed);
  do {
    if (held == std::numeric_limits<Word>::max()) return false;
  } while (!count.compare_exchange_weak(held, static_cast<Word>(held + 1), std::memory_order_relaxed, std::memory_order_relaxed));
  return true;
}

}  // namespace ramspan::detail
