// Pins by threads that did not make the adhereTo, and the one word by which that knows them.
#include "ramspan/detail/foreign_pin.h"

#include <pthread.h>
#include <unistd.h>

#include "client/front/pin_registry.h"
#include "client/front/throw_status.h"
#include "ramspan/detail/held_pin.h"

namespace ramspan::detail {

ForeignPin PinForeign(ChunkHead* chunk, bool write) {
  HeldPin pin(chunk, write);
  const ForeignPin made = {pin.frame(), pin.word()};
  pin.release();
  return made;
}

void* PinForeign(ChunkHead* chunk, std::atomic<uintptr_t>* pin, bool write) {
  const ForeignPin mine = PinForeign(chunk, write);
  uintptr_t none = 0;
  if (!pin->compare_exchange_strong(none, mine.word, std::memory_order_acq_rel)) UnpinForeign(chunk, mine.word);
  return mine.frame;
}

void UnpinForeign(ChunkHead* chunk, uintptr_t pin) noexcept { HeldPin::FromWord(chunk, pin); }

void ThrowCannotNote(ChunkHead* chunk, uintptr_t pin) {
  UnpinForeign(chunk, pin);
  ThrowStatus({StatusCode::kAborted, StaticText("an adhereTo is pulled that another thread has made, while a signal handler has interrupted such a pull for seconds: signal handlers must not pull")});
}

ForeignLock g_foreign_locks[kForeignLocks];
namespace {
[[maybe_unused]] const int child_begins_unlocked = pthread_atfork(nullptr, nullptr, [] {
  for (ForeignLock& lock : g_foreign_locks) lock.taken.store(false, std::memory_order_relaxed);
});
}  // namespace

// Sleeps are counted, not time: who was suspended meanwhile is not late.
bool WaitForForeign(std::atomic<bool>* taken) noexcept {
  constexpr int kSpins = 100, kSleeps = 2000;
  for (int i = 0; i < kSpins + kSleeps; ++i) {
    if (!taken->exchange(true, std::memory_order_acquire)) return true;
    i < kSpins ? __builtin_ia32_pause() : static_cast<void>(usleep(1000));
  }
  return false;
}

namespace {
using Slot = std::atomic<ChunkHead*>;
constexpr uintptr_t kCountedWord = 1, kBeyondBit = 2;
static_assert(alignof(Slot) > kBeyondBit);

// What the slot lies in, which is aligned to its size.
template <typename T>
T* Around(uintptr_t slot) { return reinterpret_cast<T*>(slot & ~uintptr_t{sizeof(T) - 1}); }
}  // namespace

uintptr_t HeldPin::word() const {
  if (slot_ == kCountedPin) return kCountedWord;
  if (slot_ < kFirstBeyond) return reinterpret_cast<uintptr_t>(&table_->slots[slot_]);
  return reinterpret_cast<uintptr_t>(&static_cast<ThreadTable*>(table_)->more.load(std::memory_order_relaxed)->slots[slot_ - kFirstBeyond]) | kBeyondBit;
}

HeldPin HeldPin::FromWord(ChunkHead* chunk, uintptr_t word) {
  if (word == kCountedWord) return HeldPin(chunk, nullptr, kCountedPin);
  const auto* const slot = reinterpret_cast<Slot*>(word & ~kBeyondBit);
  if ((word & kBeyondBit) == 0) {
    auto* const table = Around<PinTable>(word);
    return HeldPin(chunk, table, static_cast<unsigned>(slot - table->slots));
  }
  const auto* const more = Around<MorePins>(word);
  return HeldPin(chunk, more->table, kFirstBeyond + static_cast<unsigned>(slot - more->slots));
}

}  // namespace ramspan::detail
