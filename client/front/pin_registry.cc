#include "client/front/pin_registry.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <new>
#include <type_traits>

#include "common/public_call.h"
#include "common/raise.h"
#include "ramspan/errors.h"

namespace ramspan {

namespace detail {
__thread PinTable* t_pins = nullptr;
__thread const std::atomic<bool>* t_loop_failed = nullptr;
}  // namespace detail

using detail::kCountedPin;
using detail::MorePins;
using detail::PinTable;

namespace {


// Both take nothing from the heap, which may have no more: callers have done half of their work.
// Fills slots that no pin may take.
Chunk* NoChunk() {
  static constinit Chunk none{};
  return &none;
}

// What a thread waits for that waits for its turn in adhereAll.
Chunk* TheTurn() {
  static constinit Chunk turn{};
  return &turn;
}
static_assert(std::is_trivially_destructible_v<Chunk>, "threads may look at them after static objects are destroyed");

// Set by the destructors of the thread's own objects, the first thing that exit() runs, and one of the last of a thread. What comes
// here afterwards is the destructor of a static object, on the thread that called exit(), or of another thread_local one.
__thread bool t_ending = false;
struct Ending {
  bool adopted = false;
  ~Ending() { t_ending = true; }
};
thread_local Ending t_end;

// How long an exit() that was called on another thread than the first one, or a thread's end, waits for pins of others, in all.
// Other programs may be waiting for this one to end; half of it might not do on a busy machine that swaps to a disk.
constexpr auto kEndingPatience = std::chrono::seconds(10);
__thread bool t_gave_up = false;

long Membarrier(int command) { return syscall(__NR_membarrier, command, 0, 0); }

// Gives a table up when its thread ends. A key's destructor runs after those of all thread_local objects, whose elements may
// have to be pinned once more to be destroyed; it runs again where another key's destructor has pinned after it.
void GiveUp(void* given_up) {
  auto* table = static_cast<PinTable*>(given_up);
  detail::t_pins = nullptr;
  // Elements that its last destructors have used: nobody holds them any more. What adhereTos still pin stays in its slots, also beyond the table.
  for (unsigned i = PinTable::kAdhereToSlots; i < PinTable::kSlots; ++i) table->slots[i].store(nullptr, std::memory_order_release);
  // Release: who takes the table over sees the slots as they are, and the pull count.
  table->owned.store(false, std::memory_order_release);
}
pthread_key_t LeaseKey() {
  static const pthread_key_t key = [] {
    pthread_key_t made;
    const int error = pthread_key_create(&made, GiveUp);
    if (error != 0) Raise(Error("this process has no key for thread-specific data left; Ramspan needs one (PTHREAD_KEYS_MAX)"));
    return made;
  }();
  return key;
}

}  // namespace

PinRegistry& PinRegistry::Get() {
  static auto* registry = new PinRegistry;
  return *registry;
}

// RAMSPAN_TEST_NO_MEMBARRIER measures and tests the other variant.
PinRegistry::PinRegistry()
    : pins_fence_(Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0 ||
                  getenv("RAMSPAN_TEST_NO_MEMBARRIER") != nullptr) {}

PinTable* PinRegistry::Adopt() {
  const pthread_key_t lease = LeaseKey();
  // Made, so that it is destroyed. That takes the dynamic linker's lock: not under one of ours, or a library's constructor that pins, too, and has that lock
  // (dlopen), would wait for this thread.
  t_end.adopted = true;
  MutexLock lock(adopting_);
  ThreadTable* table = nullptr;
  ForEachTable([&](ThreadTable* t) {
    if (!t->owned.load(std::memory_order_acquire)) table = t;  // what the thread before did to it is seen
  });
  if (table == nullptr) {
    table = new ThreadTable;
    table->index = threads_.load(std::memory_order_relaxed);
    table->pins_fence = pins_fence_;
    for (unsigned i = 0; pins_fence_ && i < PinTable::kInlineSlots; ++i) {
      table->slots[i].store(NoChunk(), std::memory_order_relaxed);
    }
    std::atomic<ThreadTable*>& list = tables_[table->index % kLists];
    table->next = list.load(std::memory_order_relaxed);
    list.store(table, std::memory_order_seq_cst);  // see PutTouch
    threads_.store(table->index + 1, std::memory_order_relaxed);
  }
  // As GiveUp takes it. From the 33rd key on this needs heap, and a table that is never given up would pass for a living thread's for ever.
  if (pthread_setspecific(lease, static_cast<PinTable*>(table)) != 0) throw std::bad_alloc();
  table->owned.store(true, std::memory_order_relaxed);
  table->counted.store(0, std::memory_order_relaxed);
  table->waiting_for.store(nullptr, std::memory_order_relaxed);
  detail::t_pins = table;
  return table;
}

uint64_t PinRegistry::metadata_bytes() const {
  return uint64_t{threads()} * sizeof(PinTable) + more_pins_.load(std::memory_order_relaxed) * sizeof(MorePins);
}

namespace {
// Pages, aligned to `bytes`, or null. Not from the heap: the pin may be a signal handler's that has interrupted the heap.
void* AlignedPages(size_t bytes) {
  void* const all = mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(all);
  const size_t before = bytes - reinterpret_cast<uintptr_t>(begin) % bytes;  // at least a page: what is cut off is never empty
  munmap(begin, before);
  if (before < bytes) munmap(begin + before + bytes, bytes - before);
  return begin + before;
}
}  // namespace

void PinRegistry::MakeMorePins(ThreadTable* table) {
  const PublicCall call;
  void* const pages = AlignedPages(sizeof(MorePins));
  if (pages == nullptr) return;
  MorePins* none = nullptr;
  if (table->more.compare_exchange_strong(none, new (pages) MorePins(table), std::memory_order_release, std::memory_order_relaxed)) {
    more_pins_.fetch_add(1, std::memory_order_relaxed);
  } else {
    munmap(pages, sizeof(MorePins));  // a signal handler of this thread's was faster
  }
}

// Slots in the table whose pins have ended, of which no bit tells, or the next ones beyond it.
unsigned ThreadTable::LookForSlot() {
  if (const uint32_t words = until_look.load(std::memory_order_relaxed); words > 0) {
    until_look.store(words - 1, std::memory_order_relaxed);
  } else {
    uint64_t bits = 0;
    for (unsigned i = kInlineSlots; i < kAdhereToSlots; ++i) bits |= uint64_t{slots[i].load(std::memory_order_relaxed) == nullptr} << i;
    const auto found = static_cast<uint32_t>(std::popcount(bits));
    if (found < kFoundMin && more.load(std::memory_order_relaxed) == nullptr) PinRegistry::Get().MakeMorePins(this);
    const uint32_t apart = words_a_look.load(std::memory_order_relaxed);
    words_a_look.store(found > 0 ? 1 : std::min(2 * apart, kWordsALookMax), std::memory_order_relaxed);
    until_look.store(found < kFoundMin ? apart : 0, std::memory_order_relaxed);
    empty.store(bits, std::memory_order_relaxed);
    if (const unsigned slot = KnownSlot(); slot != kCountedPin) return slot;
  }
  MorePins* const beyond = more.load(std::memory_order_relaxed);
  if (beyond == nullptr) return kCountedPin;
  unsigned at = beyond->FindNext();
  if (at == MorePins::kSlots) at = beyond->FindAnew();
  return at < MorePins::kSlots ? Taken(detail::kFirstBeyond + at) : kCountedPin;
}

uint64_t PinRegistry::pulls() const {
  uint64_t sum = 0;
  ForEachTable([&](const PinTable* table) { sum += table->pulls.load(std::memory_order_relaxed); });
  return sum;
}

PinRegistry::ElementUses PinRegistry::element_uses() const {
  ElementUses sum;
  ForEachTable([&](const PinTable* table) {
    const uint64_t uses = table->element_uses.load(std::memory_order_relaxed);
    sum.all += uses;
    sum.most = std::max(sum.most, uses);
  });
  return sum;
}

void PinRegistry::Barrier() {
  if (pins_fence_) {
    // Pairs with the fence in StorePinFenced: of two seq_cst fences one comes first, and the side behind it sees the other's store.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return;
  }
  const long failed = Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  RS_CHECK(failed == 0, "membarrier failed although it was registered (fork without exec?)");
}

void PinRegistry::FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) {
  // Most pins are of other chunks: one bit, chosen by the address, says so, where a thousand pins would be compared with 64 chunks each.
  constexpr size_t kBits = 1024;
  std::array<uint64_t, kBits / 64> some{};
  const auto bit_of = [](const detail::ChunkHead* chunk) { return reinterpret_cast<uintptr_t>(chunk) / sizeof(Chunk) % kBits; };
  for (const Chunk* chunk : chunks) some[bit_of(chunk) / 64] |= uint64_t{1} << bit_of(chunk) % 64;
  const auto look = [&](const std::atomic<detail::ChunkHead*>& slot) {
    // Acquire: where this reads the null of a release, all that the pinner did to the frame happened before.
    const detail::ChunkHead* held = slot.load(std::memory_order_acquire);
    if (held == nullptr || !(some[bit_of(held) / 64] >> bit_of(held) % 64 & 1)) return;
    for (size_t i = 0; i < chunks.size(); ++i) pinned[i] = pinned[i] || chunks[i] == held;
  };
  ForEachSlot(PinTable::kSlots, look);
}

bool PinRegistry::IsAdheredTo(const Chunk* chunk) const {
  if (HasCountedPins(chunk)) return true;
  bool adhered = false;
  ForEachSlot(PinTable::kAdhereToSlots, [&](const auto& slot) { adhered |= slot.load(std::memory_order_relaxed) == chunk; });
  return adhered;
}

void PinRegistry::SetWaiting(Chunk* chunk) {
  if (detail::t_pins) detail::t_pins->waiting_for.store(chunk, std::memory_order_relaxed);
}

bool PinRegistry::MayWait(std::chrono::steady_clock::duration waited) {
  if (detail::t_loop_failed != nullptr && detail::t_loop_failed->load(std::memory_order_relaxed)) return false;
  if (!t_ending) return true;
  // The first thread: exit() is under way, or pthread_exit, which is as good a reason to give up.
  t_gave_up = t_gave_up || waited >= kEndingPatience || getpid() == static_cast<pid_t>(syscall(SYS_gettid));
  return !t_gave_up;
}

uint32_t PinRegistry::ThisThread() const {
  return detail::t_pins ? static_cast<ThreadTable*>(detail::t_pins)->index : kNoThread;
}

// Owner: the ring's end, then the load of the bit. Taker: the bit is cleared, then the ring's end is loaded. All four are sequentially
// consistent: an owner that saw the bit set did so before it was cleared, so its ring's new end is seen; else it sets the bit again. Also the
// owner of a full ring, which nobody would empty if the one that has cleared the bit did not come to it. The load of the list is sequentially
// consistent, too: behind a bit that another thread of that list has set it sees a table whose owner found the bit set.
bool PinRegistry::PutTouch(ThreadTable* table, uint32_t chunk, bool write, uint32_t epoch) {
  const bool put = table->touches.Put(chunk, write, epoch);
  const uint64_t bit = uint64_t{1} << table->index % kLists;
  if (!(noted_.load(std::memory_order_seq_cst) & bit)) noted_.fetch_or(bit, std::memory_order_seq_cst);
  return put;
}

void PinRegistry::TakeTouches(const Hear& hear) {
  // Relaxed: what happened before this call is seen all the same, and nobody needs more. Each list once: threads that go on noting do not
  // keep the caller here.
  uint64_t noted = noted_.load(std::memory_order_relaxed);
  if (noted == 0) return;
  noted = noted_.exchange(0, std::memory_order_seq_cst);
  Touch touches[TouchRing::kCapacity];
  for (; noted != 0; noted &= noted - 1) {
    for (ThreadTable* table = tables_[std::countr_zero(noted)].load(std::memory_order_seq_cst); table != nullptr; table = table->next) {
      if (const size_t n = table->touches.Take(table->index, touches)) hear(std::span(touches, n));
    }
  }
}

uint64_t PinRegistry::touches_dropped() const {
  uint64_t sum = 0;
  ForEachTable([&](const ThreadTable* table) { sum += table->touches.dropped(); });
  return sum;
}

void PinRegistry::SetWaitingForIngredients() { SetWaiting(NoChunk()); }

void PinRegistry::SetWaitingForTurn(PinTable* table, bool waits) {
  table->waiting_for.store(waits ? TheTurn() : nullptr, std::memory_order_relaxed);
}

void detail::WaitsForLoopsEnd(const std::atomic<bool>* loop) noexcept {
  auto* const waits = loop == nullptr ? nullptr : reinterpret_cast<detail::ChunkHead*>(reinterpret_cast<uintptr_t>(loop) | 1);
  if (detail::t_pins != nullptr) detail::t_pins->waiting_for.store(waits, std::memory_order_relaxed);
}

namespace {

// Null: none. Its thread may unpin at any time: who looks further does so at what this returned.
const detail::ChunkHead* Held(const std::atomic<detail::ChunkHead*>& slot) {
  const detail::ChunkHead* const held = slot.load(std::memory_order_relaxed);
  return held == NoChunk() ? nullptr : held;
}
bool Holds(const std::atomic<detail::ChunkHead*>& slot) { return Held(slot) != nullptr; }

// Elements do not count: their thread does not know that it holds them, and may wait for the one that needs the memory in
// ways that nobody sees here (a join, a barrier).
bool HasPins(const ThreadTable* table) {
  const MorePins* const more = table->more.load(std::memory_order_acquire);
  return std::any_of(table->slots, table->slots + PinTable::kAdhereToSlots, Holds) || (more != nullptr && std::any_of(more->slots, more->used_end(), Holds));
}

}  // namespace

PinRegistry::Counted PinRegistry::CountedBy(const PinTable* table) {
  return table != nullptr ? std::bit_cast<Counted>(table->counted.load(std::memory_order_relaxed)) : Counted{};
}

void PinRegistry::NoteCounted(int32_t n) {
  Counted before = all_counted_.load(std::memory_order_relaxed), after{};
  do {
    after = {.generation = before.generation, .pins = before.pins + n};
    if (after.pins == 0) ++after.generation;
  } while (!all_counted_.compare_exchange_weak(before, after, std::memory_order_relaxed));
  PinTable* table = detail::t_pins;
  const int32_t own = CountedBy(table).In(before.generation) + n;
  if (table != nullptr) {
    const Counted counted{.generation = before.generation, .pins = std::max(0, own)};
    table->counted.store(std::bit_cast<int64_t>(counted), std::memory_order_relaxed);
  }
  if (own < 0 && after.pins != 0) NoteHandedOver({.generation = before.generation, .pins = -own});
}

void PinRegistry::NoteHandedOver(Counted counted) {
  Counted before = handed_over_.load(std::memory_order_relaxed), after{};
  do {
    // The number of the newer generation may have begun again at 0, after 2^32.
    if (static_cast<int32_t>(before.generation - counted.generation) > 0) return;
    after = {.generation = counted.generation, .pins = before.In(counted.generation) + counted.pins};
  } while (!handed_over_.compare_exchange_weak(before, after, std::memory_order_relaxed));
}

bool PinRegistry::HoldsPins() {
  const auto* const table = static_cast<const ThreadTable*>(detail::t_pins);
  return table != nullptr && (HasPins(table) || CountedBy(table).In(all_counted_.load(std::memory_order_relaxed).generation) > 0);
}

PinScanner::Pins PinRegistry::CountPins() const {
  Pins pins{.counted = static_cast<uint64_t>(std::max(0, all_counted_.load(std::memory_order_relaxed).pins))};
  // A pin that waits for its chunk is in a slot already, and takes no memory. Descriptors stay readable (chunk_table.h).
  const auto holds = [](const std::atomic<detail::ChunkHead*>& slot) {
    const detail::ChunkHead* const held = Held(slot);
    return held != nullptr && PhaseOf(static_cast<const Chunk*>(held)) != Phase::kSwapped;
  };
  ForEachTable([&](const ThreadTable* table) {
    const MorePins* const more = table->more.load(std::memory_order_acquire);
    auto held = std::count_if(table->slots, table->slots + PinTable::kAdhereToSlots, holds);
    if (more != nullptr) held += std::count_if(more->slots, more->used_end(), holds);
    pins.adhered += static_cast<uint64_t>(held);
    pins.threads += held > 0;
  });
  return pins;
}

PinScanner::Verdict PinRegistry::JudgeWaiters() {
  bool others_live = false, forgotten_pins = false, may_unpin = false;
  const uint32_t generation = all_counted_.load(std::memory_order_relaxed).generation;
  int64_t counted_by_waiting = CountedBy(detail::t_pins).In(generation);
  ForEachTable([&](const ThreadTable* table) {
    if (table == detail::t_pins || may_unpin) return;
    const detail::ChunkHead* waits = table->waiting_for.load(std::memory_order_relaxed);
    // Who waits for a loop's end waits for the threads in it. Others find him at work: they do not know what those do.
    if ((reinterpret_cast<uintptr_t>(waits) & 1) != 0 && reinterpret_cast<uintptr_t>(waits) != (reinterpret_cast<uintptr_t>(detail::t_loop_failed) | 1)) waits = nullptr;
    // A thread whose chunk has come meanwhile does not wait any more, it only has not run yet.
    const bool for_chunk = waits != nullptr && waits != NoChunk() && waits != TheTurn() && (reinterpret_cast<uintptr_t>(waits) & 1) == 0;
    const bool came = for_chunk && PhaseOf(static_cast<const Chunk*>(waits)) != Phase::kSwapped;
    may_unpin |= came;
    if (waits == NoChunk() ? ingredients_taken_.load() : waits != nullptr) {
      counted_by_waiting += CountedBy(table).In(generation);
      return;
    }
    const bool lives = table->owned.load(std::memory_order_relaxed);
    others_live |= lives;
    if (!HasPins(table)) return;
    may_unpin |= lives;
    forgotten_pins |= !lives;  // of a thread that has ended: only another one can let them go
  });
  if (may_unpin) return Verdict::kSomebodyMayUnpin;
  // A counted pin may have been passed on: any thread that does not wait may be the one that ends it. Those that were handed over
  // and have been ended may all be among what the waiting threads seem to hold. So where pins change hands, a deadlock of counted
  // ones is not found as long as another thread lives; the other error would be to tell a thread so whose memory comes.
  const Counted all = all_counted_.load(std::memory_order_relaxed);
  const int64_t handed_over = handed_over_.load(std::memory_order_relaxed).In(generation);
  forgotten_pins |= all.generation != generation || (all.pins > 0 && all.pins + handed_over > counted_by_waiting);
  if (forgotten_pins) return others_live ? Verdict::kSomebodyMayUnpin : Verdict::kUnlikely;
  if (others_live) return Verdict::kUnlikely;
  // Its own table. Another thread whose pins were seen before this has noted its own before it pinned.
  const bool alone = detail::t_pins != nullptr && threads() == 1;
  return alone ? Verdict::kNobodyElse : Verdict::kDeadlock;
}

}  // namespace ramspan
