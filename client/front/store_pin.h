// The protocol's two steps on the pin's side (detail/resident.h) for any slot of a table, also where there is no membarrier. In
// a header that needs nothing but that one, so that tests/resident can compile both over atomics that record what is done.
#pragma once

#include "ramspan/detail/resident.h"

namespace ramspan::detail {

// `fence`: the evictor has no membarrier, so the pin executes the fence. It stands between two stores of the same address: the
// first one must be seen before the state is looked at, and StorePin, which looks, stores before it does.
inline bool StorePinFenced(ChunkHead* chunk, PinTable* table, unsigned slot, bool write, bool fence) {
  if (fence) {
    table->slots[slot].store(chunk, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  return write ? StorePin<true>(chunk, table, slot) : StorePin<false>(chunk, table, slot);
}

}  // namespace ramspan::detail
