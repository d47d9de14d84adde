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
  std::array<Held, kHeld> pins;
  size_t count;

  void Drop(size_t i) {
    ramspan::detail::Unpin(pins[i].chunk, ramspan::detail::t_pins, pins[i].slot);
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
thread_local constinit HeldElements t_held{};

struct DropAtThreadEnd {
  ~DropAtThreadEnd() { t_held.DropBeyond(0); }
};

// One of those that adhereTos leave to elements. kSlots: none is free.
unsigned FreeSlot(PinTable* table) {
  unsigned slot = PinTable::kAdhereToSlots;
  while (slot < PinTable::kSlots && table->slots[slot].load(std::memory_order_acquire) != nullptr) ++slot;
  return slot;
}

void* PinAt(ChunkHead* chunk, PinTable* table, unsigned slot, bool write) {
  if (ramspan::detail::StorePinAnywhere(chunk, table, slot, write)) return chunk->frame;
  return ramspan::detail::PinSlow(chunk, table, slot, write);
}

void KeepTheShare() {
  const uint64_t share = ramspan::MemoryLimit() / kShare;
  uint64_t bytes = 0;
  for (size_t i = 0; i < t_held.count; ++i) {
    bytes += t_held.pins[i].chunk->bytes;
    if (i >= kAlways && bytes > share) return t_held.DropBeyond(i);
  }
}

void* Hold(ChunkHead* chunk, PinTable* table, bool write) {
  const auto same = [chunk](const Held& pin) { return pin.chunk == chunk; };
  const auto known = std::find_if(t_held.pins.begin(), t_held.pins.begin() + t_held.count, same);
  const auto at = static_cast<size_t>(known - t_held.pins.begin());
  unsigned slot = PinTable::kSlots;
  if (at < t_held.count) {
    slot = known->slot;
    std::copy(known + 1, t_held.pins.begin() + t_held.count, known);  // PinAt releases the slot when it fails
    --t_held.count;
  } else {
    t_held.DropBeyond(kHeld - 1);
    KeepTheShare();
    slot = FreeSlot(table);
  }
  if (slot == PinTable::kSlots) return ramspan::detail::HeldPin(chunk, write).frame();  // as long as Rambrain holds it
  void* frame = PinAt(chunk, table, slot, write);
  t_held.PutFirst({chunk, slot});
  return frame;
}

}  // namespace

void* HoldElements(Object object, bool write) {
  PinTable* const table = ramspan::detail::ThisThreadPins();
  static thread_local const DropAtThreadEnd at_end;
  static_cast<void>(&at_end);
  void* frame = nullptr;
  try {
    frame = Hold(object.chunk(), table, write);
  } catch (const ramspan::OutOfMemory&) {
    t_held.DropBeyond(kAlways);
    frame = Hold(object.chunk(), table, write);
  }
  return ramspan::detail::ElementsAt<void>(frame, object.offset());
}

bool LetElementsGo() noexcept {
  const bool any = t_held.count > 0;
  t_held.DropBeyond(0);
  return any;
}

void LetElementsGo(Object object) noexcept {
  if (object.is_small()) return;  // others are in its chunk
  for (size_t i = t_held.count; i-- > 0;) {
    if (t_held.pins[i].chunk == object.chunk()) t_held.Drop(i);
  }
}

}  // namespace rambrain::rambrain_detail
