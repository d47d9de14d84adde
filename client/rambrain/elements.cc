// managedPtr::operator[] of one dimension: Rambrain returns a reference and lets the data go at once, so it dangles as soon
// as anything swaps. Here the chunks of a thread's last accesses stay pinned, so a reference is good for at least the
// expression that it stands in.
//
// Thread-safety: each thread has its own. A chunk that another thread destroys stays in this one's table until its next
// access: that costs a frame the chance to leave, nothing else.
#include <algorithm>
#include <array>
#include <atomic>

#include "rambrain/managedPtr.h"
#include "ramspan/detail/held_pin.h"
#include "ramspan/runtime.h"

namespace rambrain::rambrain_detail {
namespace {

using ramspan::detail::ChunkHead;
using ramspan::detail::Object;
using ramspan::detail::PinTable;

constexpr size_t kHeld = PinTable::kElementSlots;  // chunks of a thread at one time
constexpr size_t kAlways = 2;   // as many are held however large they are: p[i] = q[j] + r[k] needs them
constexpr uint64_t kShare = 16; // of the memory limit is what the others may take together: a 16th

struct Held {
  ChunkHead* chunk;
  unsigned slot;
};

// The latest first. Trivially destructible, so that static objects' destructors may still use elements.
struct HeldElements {
  PinTable* table;  // whose slots they are in
  std::array<Held, kHeld> pins;
  size_t count;

  void Drop(size_t i) {
    ramspan::detail::Unpin(pins[i].chunk, table, pins[i].slot);
    std::copy(pins.begin() + i + 1, pins.begin() + count, pins.begin() + i);
    --count;
  }
  void DropBeyond(size_t n) {
    while (count > n) Drop(count - 1);
  }
  void PutFirst(Held pin) {
    std::copy_backward(pins.begin(), pins.begin() + count, pins.begin() + count + 1);
    pins[0] = pin;
    ++count;
  }
};

// What this thread holds in its table. Where the thread has given a table up, the slots of all its elements have been emptied
// (GiveUp in client/front/pin_registry.cc) and may be somebody else's: then it holds nothing, also when a later destructor has got
// it a table anew, even the same one.
HeldElements& HeldNow() {
  static thread_local constinit HeldElements held{};
  PinTable* const table = ramspan::detail::t_pins;
  const auto in_slot = [table](const Held& pin) { return table->slots[pin.slot].load(std::memory_order_relaxed) == pin.chunk; };
  if (held.table != table || (held.count > 0 && !in_slot(held.pins[0]))) held.count = 0;
  held.table = table;
  return held;
}

struct DropAtThreadEnd {
  ~DropAtThreadEnd() { HeldNow().DropBeyond(0); }
};

// One of those that adhereTos leave to elements. kSlots: none is free.
unsigned FreeSlot(PinTable* table) {
  unsigned slot = PinTable::kAdhereToSlots;
  while (slot < PinTable::kSlots && table->slots[slot].load(std::memory_order_acquire) != nullptr) ++slot;
  return slot;
}

void KeepTheShare(HeldElements& held) {
  const uint64_t share = ramspan::MemoryLimit() / kShare;
  uint64_t bytes = 0;
  for (size_t i = 0; i < held.count; ++i) {
    bytes += held.pins[i].chunk->bytes;
    if (i >= kAlways && bytes > share) return held.DropBeyond(i);
  }
}

void* Hold(HeldElements& held, ChunkHead* chunk, bool write) {
  const auto same = [chunk](const Held& pin) { return pin.chunk == chunk; };
  const auto known = std::find_if(held.pins.begin(), held.pins.begin() + held.count, same);
  const auto at = static_cast<size_t>(known - held.pins.begin());
  if (at < held.count) {
    // References into it are in use, so its slot is never emptied, as a pull that has to wait empties its own: what the fast path cannot do is
    // a pin of its own beside this one.
    const unsigned slot = known->slot;
    if (!ramspan::detail::StorePinAnywhere(chunk, held.table, slot, write)) ramspan::detail::HeldPin(chunk, write);
    std::copy(known + 1, held.pins.begin() + held.count, known);
    --held.count;
    held.PutFirst({chunk, slot});
    return chunk->frame;
  }
  held.DropBeyond(kHeld - 1);
  KeepTheShare(held);
  const unsigned slot = FreeSlot(held.table);
  if (slot == PinTable::kSlots) return ramspan::detail::HeldPin(chunk, write).frame();  // as long as Rambrain holds it
  void* const frame = ramspan::detail::StorePinAnywhere(chunk, held.table, slot, write) ? chunk->frame : ramspan::detail::PinSlow(chunk, held.table, slot, write);
  held.PutFirst({chunk, slot});
  return frame;
}

}  // namespace

void* HoldElements(Object object, bool write) {
  static_cast<void>(ramspan::detail::ThisThreadPins());  // the first use of a thread makes its table
  static thread_local const DropAtThreadEnd at_end;
  static_cast<void>(&at_end);
  HeldElements& held = HeldNow();
  void* frame = nullptr;
  try {
    frame = Hold(held, object.chunk(), write);
  } catch (const ramspan::OutOfMemory&) {
    held.DropBeyond(kAlways);
    frame = Hold(held, object.chunk(), write);
  }
  return ramspan::detail::ElementsAt<void>(frame, object.offset());
}

bool LetElementsGo() noexcept {
  HeldElements& held = HeldNow();
  const bool any = held.count > 0;
  held.DropBeyond(0);
  return any;
}

void LetElementsGo(Object object) noexcept {
  if (object.is_small()) return;  // others are in its chunk
  HeldElements& held = HeldNow();
  for (size_t i = held.count; i-- > 0;) {
    if (held.pins[i].chunk == object.chunk()) held.Drop(i);
  }
}

}  // namespace rambrain::rambrain_detail
