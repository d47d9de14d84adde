// The protocol's two steps on the pin's side (detail/resident.h) for any slot of a table, also where there is no membarrier. In
// a header that needs nothing but that one and more_pins.h, so that tests/resident can compile both over atomics that record what is done.
#pragma once

#include "client/front/more_pins.h"
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

// The same for a slot beyond the table. REQUIRES: it is empty, and the owner's.
inline bool StorePinBeyond(ChunkHead* chunk, MorePins* more, unsigned at, bool write, bool fence) {
  more->slots[at].store(chunk, std::memory_order_release);  // as StorePin
  more->RaiseEnd(at);
  if (fence) std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const uint64_t need = kReadable | kReferenced | (write ? kWritable | kDirty : 0);
  return (chunk->state.load(std::memory_order_acquire) & need) == need;
}

}  // namespace ramspan::detail
