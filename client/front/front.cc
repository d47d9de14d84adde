// The slow side of the resident path.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>

#include "common/engine_call.h"
#include "client/front/pin_registry.h"
#include "client/front/session.h"
#include "client/front/store_pin.h"
#include "client/front/throw_status.h"
#include "client/front/write_sites.h"
#include "common/log.h"
#include "common/public_call.h"
#include "common/units.h"
#include "ramspan/detail/block_cache.h"
#include "ramspan/detail/held_pin.h"
#include "ramspan/managed_ptr.h"

namespace ramspan {

namespace detail {
namespace {
constexpr const char* kPull = "a pull of an object";

Chunk* Full(ChunkHead* chunk) { return static_cast<Chunk*>(chunk); }

// Leaves word of a first touch for the policy, if it wants that. REQUIRES: the calling thread's table. The engine's mutex
// is taken once for each TouchRing::kCapacity touches, and never waited for.
void NoteTouch(Chunk* chunk, PinTable* table, bool write) {
  const Session* session = Session::IfStarted();  // null in a forked child
  const uint32_t epoch = session != nullptr ? session->engine->touch_epoch() : 0;
  if (epoch == 0) return;
  auto* const own = static_cast<ThreadTable*>(table);
  PinRegistry& registry = PinRegistry::Get();
  if (registry.PutTouch(own, chunk->id, write, epoch)) return;
  {
    const EngineCall call;
    session->engine->TellTouches();
  }
  if (registry.PutTouch(own, chunk->id, write, epoch)) return;
  own->touches.CountDropped();
  ClearBits(chunk, kReferenced);  // the next pin is heard instead, or the policy would wait for this chunk for ever
}

// In debug mode: who pulls a T* of a chunk that nobody has changed yet.
void NoteWriter(const Chunk* chunk) {
  Session* const session = Session::IfStarted();
  if (session != nullptr && session->debug) session->engine->NoteWriteSite(chunk, CallersOfRamspan());
}

// The engine wants to see the first use of what was advised so; a hint was none.
bool EngineNotesUse(uint64_t word) { return (word & kReferenced) == 0 && (word & (kAdvisedOnce | kAdvisedWillNeed)) != 0; }

// acquire(when_pinned). Before the calling thread waits for other threads' pins it gives up what its views hold and may spare: they might wait for those.
template <typename Acquire>
Status AcquireSparing(const Acquire& acquire) {
  if (BlockCache::HeldBytes() == 0) return acquire(Engine::WhenPinned::kWait);
  for (;;) {
    Status status = acquire(Engine::WhenPinned::kReturn);
    if (status.code() != StatusCode::kAborted && status.code() != StatusCode::kResourceExhausted) return status;
    if (!BlockCache::SpareHalf()) return acquire(Engine::WhenPinned::kWait);
  }
}

// Another thread needs what this one is about to take (PinGate). Who holds something goes on, so that it comes to release it.
bool MayBeHeldUp() { return ProgramCode::running() == ProgramCode::Of::kNobody && !Session::InForkedChild(); }
void PassGate() {
  const PublicCall call;
  if (!PinRegistry::HoldsPins()) PinGate::Get().Pass();
}

// A pin that is stored steps back for that time. Whether the frame may be used at once then.
bool LetOthersGoFirst(ChunkHead* chunk, PinTable* table, unsigned slot, bool write) {
  if (!MayBeHeldUp()) return false;
  Unpin(chunk, table, slot);
  PassGate();
  return StorePinAnywhere(chunk, table, slot, write);
}
}  // namespace

PinTable* MakePinTable() {
  const PublicCall call;
  Session::Get();
  return AsPublicCall([] { return t_pins ? t_pins : PinRegistry::Get().Adopt(); });
}

void* PinSlow(ChunkHead* chunk, PinTable* table, unsigned slot, bool write) {
  if (PinGate::Get().IsShut() && PinGate::Get().IsShutFor(chunk->bytes) && LetOthersGoFirst(chunk, table, slot, write)) return chunk->frame;
  // Open, but a bit that the fast path wants is not set yet. The pin is visible already, so no evictor can finish with
  // this chunk and the bits may be set without the engine's mutex.
  const uint64_t word = chunk->state.load(std::memory_order_acquire);
  const uint64_t need = kReadable | (write ? kWritable : 0);
  if ((word & need) == need && !EngineNotesUse(word)) {
    // Of all pins that find the bit clear, one sets it: that is the first touch. Acquire: see PolicyFeed.
    const uint64_t before = chunk->state.fetch_or(kReferenced | (write ? kDirty : 0), std::memory_order_acquire);
    if (!(before & kReferenced)) NoteTouch(Full(chunk), table, write);
    if (write && !(before & kDirty)) NoteWriter(Full(chunk));
    return chunk->frame;
  }
  const EngineCall call;
  if (ProgramCode::running() != ProgramCode::Of::kNobody) {
    Unpin(chunk, table, slot);
    ThrowWithinProgramCode(kPull);
  }
  Engine* const engine = Session::Get().engine;
  if (Status status = AcquireSparing([&](Engine::WhenPinned when) { return engine->Acquire(Full(chunk), write, when); }); !status.ok()) {
    Unpin(chunk, table, slot);
    ThrowStatus(status);
  }
  if (write) NoteWriter(Full(chunk));
  return chunk->frame;
}

namespace {
// A pin that is counted in the chunk's word. Where the chunk is open it takes no lock: who closes the chunk changes that word, and so either
// sees the count afterwards, or this sees the word closed.
void PinCounted(ChunkHead* chunk, PinTable* table, bool write) {
  if (PinGate::Get().IsShut() && PinGate::Get().IsShutFor(chunk->bytes) && MayBeHeldUp()) PassGate();
  const uint64_t need = kReadable | (write ? kWritable : 0), first_touch = kReferenced | (write ? kDirty : 0);
  uint64_t word = chunk->state.load(std::memory_order_acquire);
  while ((word & need) == need && !EngineNotesUse(word)) {
    // Acquire and release: as SetBits of PinSlow, and as a slot's store.
    if (!chunk->state.compare_exchange_weak(word, (word | first_touch) + kOneCountedPin, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    if (!(word & kReferenced)) NoteTouch(Full(chunk), table, write);
    if (write && !(word & kDirty)) NoteWriter(Full(chunk));
    PinRegistry::NoteCounted(1);
    return;
  }
  const EngineCall call;
  RefuseWithinProgramCode(kPull);
  Engine* const engine = Session::Get().engine;
  if (Status status = AcquireSparing([&](Engine::WhenPinned when) { return engine->AcquireCounted(Full(chunk), write, when); }); !status.ok()) ThrowStatus(status);
  if (write) NoteWriter(Full(chunk));
  PinRegistry::NoteCounted(1);
}
}  // namespace

namespace {
inline bool Store(ChunkHead* chunk, ThreadTable* table, unsigned slot, bool write) {
  if (slot < kFirstBeyond) return StorePinFenced(chunk, table, slot, write, table->pins_fence);
  return StorePinBeyond(chunk, table->more.load(std::memory_order_relaxed), slot - kFirstBeyond, write, table->pins_fence);
}

// Apart from the usual case, which then needs no registers of its caller's.
[[gnu::noinline]] void* PinWithoutKnownSlot(ChunkHead* chunk, ThreadTable* table, unsigned* slot, bool write) {
  *slot = table->LookForSlot();
  if (*slot != kCountedPin) return Store(chunk, table, *slot, write) ? chunk->frame : PinSlow(chunk, table, *slot, write);
  PinCounted(chunk, table, write);
  return chunk->frame;
}
}  // namespace

bool StorePinAnywhere(ChunkHead* chunk, PinTable* table, unsigned slot, bool write) { return Store(chunk, static_cast<ThreadTable*>(table), slot, write); }

namespace {
[[gnu::noinline]] void* PinInNextSlot(ChunkHead* chunk, ThreadTable* table, unsigned* slot, bool write) {
  const unsigned known = table->KnownSlot();
  if (__builtin_expect(known == kCountedPin, 0)) return PinWithoutKnownSlot(chunk, table, slot, write);
  *slot = known;
  return __builtin_expect(Store(chunk, table, known, write), 1) ? chunk->frame : PinSlow(chunk, table, known, write);
}
}  // namespace

void* PinInOtherSlot(ChunkHead* chunk, PinTable* table, unsigned* slot, bool write) {
  auto* const own = static_cast<ThreadTable*>(table);
  const unsigned latest = own->LatestIfEmpty();
  if (__builtin_expect(latest == kCountedPin, 0)) return PinInNextSlot(chunk, own, slot, write);
  *slot = latest;
  return __builtin_expect(Store(chunk, own, latest, write), 1) ? chunk->frame : PinSlow(chunk, own, latest, write);
}

void UnpinBeyondTable(ChunkHead* chunk, PinTable* table, unsigned slot) noexcept {
  if (__builtin_expect(slot < kFirstBeyond, 0)) return UnpinCounted(chunk);
  // Acquire: the caller may be another thread, which has come to the adhereTo by the program's synchronisation, or by none that orders anything.
  MorePins* const more = static_cast<ThreadTable*>(table)->more.load(std::memory_order_acquire);
  more->Unpin(slot - kFirstBeyond, table == t_pins);
}

void* PinWithoutSlot(ChunkHead* chunk, PinTable* table, unsigned* slot, bool write) {
  for (unsigned i = PinTable::kInlineSlots; i < PinTable::kAdhereToSlots; ++i) {
    if (table->slots[i].load(std::memory_order_acquire) != nullptr) continue;
    *slot = i;
    return StorePinAnywhere(chunk, table, i, write) ? chunk->frame : PinSlow(chunk, table, i, write);
  }
  PinCounted(chunk, table, write);
  *slot = kCountedPin;
  return chunk->frame;
}

[[gnu::noinline]] void UnpinCounted(ChunkHead* chunk) noexcept {
  // Release: the evictor that sees the count gone sees what was done to the frame.
  chunk->state.fetch_sub(kOneCountedPin, std::memory_order_release);
  PinRegistry::NoteCounted(-1);
}

namespace {
// Of the latest Try... Destroyed with its thread; what fails later than that ends the process anyway.
thread_local std::exception_ptr failure_of_try;
}  // namespace

bool TryHeldPin(ChunkHead* chunk, bool write, HeldPin* pin, PinFor how_long) noexcept {
  try {
    PinTable* const table = ThisThreadPins();
    unsigned slot = kCountedPin;
    switch (how_long) {
      case PinFor::kOnce: write ? Pin<true>(chunk, table, &slot) : Pin<false>(chunk, table, &slot); break;
      case PinFor::kOnceInTable: PinWithoutSlot(chunk, table, &slot, write); break;
      case PinFor::kLong: PinCounted(chunk, table, write); break;
    }
    *pin = HeldPin(chunk, table, slot);
    return true;
  } catch (...) {
    failure_of_try = std::current_exception();
    return false;
  }
}

void FailForOtherThread() noexcept {
  try {
    ThrowStatus({StatusCode::kAborted, StaticText("a view of a managedVector or managedArray is used by another thread than the one that made it, and each thread needs its own: make it inside of the parallel "
                                                  "region (#pragma omp parallel { auto v = x.view(); ... #pragma omp for ... }), or in the function that the thread runs")});
  } catch (...) {
    failure_of_try = std::current_exception();
  }
}

void ThrowOfTry() {
  if (failure_of_try == nullptr) ThrowStatus({StatusCode::kAborted, StaticText("a pull has failed, and so has one of a signal handler's meanwhile")});
  std::rethrow_exception(std::exchange(failure_of_try, nullptr));
}

void ThrowTooLarge(size_t n, size_t element_bytes) {
  ThrowStatus(WithinHeap(
      [&] {
        return FailedPrecondition("a managedPtr of " + std::to_string(n) + " elements of " + std::to_string(element_bytes) +
                                  " bytes is larger than an address can say; check the element count for a negative number");
      },
      OutOfHeap()));
}

void ThrowTooDeep(size_t depth) {
  ThrowStatus(WithinHeap(
      [&] {
        return Aborted("constructors make managedPtrs within each other's elements, " + std::to_string(depth) +
                       " deep: a member managedPtr<Node> of a class Node has one element, which has such a member, and so on. Begin with no "
                       "elements, managedPtr<Node> child{nullptr}, and assign managedPtr<Node>(1) where there is a child");
      },
      OutOfHeap()));
}

namespace {
std::string Joined(const size_t* numbers, size_t count, const char* between) {
  std::string joined;
  for (size_t i = 0; i < count; ++i) joined += (i > 0 ? between : "") + std::to_string(numbers[i]);
  return joined;
}
}  // namespace

void ThrowOutOfHeap() { ThrowNoHeap(); }

void ThrowBesideViews() {
  ThrowStatus({StatusCode::kAborted, StaticText("a managedVector is to change its capacity while a view of it is alive, whose elements would be gone: end the view "
                                                "before (a smaller scope), or reserve() enough before it begins; a queue that grows while it is read is read by x[i]")});
}

void ThrowWhileGrowing(size_t old_bytes, size_t new_bytes, const char* why) {
  ThrowStatus(WithinHeap(
      [&] {
        return FailedPrecondition("a managedVector's last block, of " + FormatBytes(old_bytes) + ", grows to " + FormatBytes(new_bytes) +
                                  ", and both have to be in memory meanwhile: reserve(n) before its first element, so that it need not grow (" + std::string(why) + ")");
      },
      OutOfHeap()));
}

void ThrowTooManyBlocks(size_t blocks, size_t block_bytes) {
  ThrowStatus(WithinHeap(
      [&] {
        std::string larger = FormatBytes(std::max<size_t>(std::bit_ceil(block_bytes) * 16, 16 << 10));
        std::replace(larger.begin(), larger.end(), ' ', '_');
        return FailedPrecondition("the descriptors of " + std::to_string(blocks) + " blocks of " + FormatBytes(block_bytes) +
                                  " do not fit half of the memory limit; make larger blocks (VectorOptions{" + larger + "}, ChunkBytes{" + larger + "}, a larger shape of blocks), raise the limit (RAMSPAN_MEMORY, "
                                  "ramspan run --memory), or check the element count");
      },
      OutOfHeap()));
}

void ThrowNone(const char* what, size_t index, size_t count) {
  ThrowStatus(WithinHeap(
      [&] {
        return Aborted(std::string("there is no ") + what + " " + std::to_string(index) + ": there are " + std::to_string(count) +
                       ", counted from 0");
      },
      OutOfHeap()));
}

void ThrowNoBlock(const size_t* index, const size_t* counts, size_t dimensions) {
  ThrowStatus(WithinHeap(
      [&] {
        return Aborted("there is no block {" + Joined(index, dimensions, ", ") + "}: there are " + Joined(counts, dimensions, " x ") +
                       ", counted from 0");
      },
      OutOfHeap()));
}

void ThrowNoElement(const size_t* index, const size_t* counts, size_t dimensions) {
  ThrowStatus(WithinHeap(
      [&] {
        return Aborted("the block has no element {" + Joined(index, dimensions, ", ") + "}: it has " + Joined(counts, dimensions, " x ") +
                       ", counted from 0 in each block");
      },
      OutOfHeap()));
}

void ThrowEmptyBlocks(const size_t* block_shape, size_t dimensions) {
  ThrowStatus(WithinHeap(
      [&] {
        return Aborted("a blockedArray in blocks of " + Joined(block_shape, dimensions, " x ") +
                       " elements: each extent of a block is at least 1");
      },
      OutOfHeap()));
}

void PrefetchChunk(ChunkHead* chunk) noexcept {
  if (chunk->state.load(std::memory_order_relaxed) & kReadable) return;
  // The read may be begun here and now, by a store whose call this is.
  if (ProgramCode::running() != ProgramCode::Of::kNobody) return;
  const EngineCall call;
  if (Session* session = Session::IfStarted()) session->engine->Prefetch(Full(chunk));
}

void AdviseChunk(ChunkHead* chunk, advice what) noexcept {
  if (ProgramCode::running() != ProgramCode::Of::kNobody) return;
  const EngineCall call;
  if (Session* session = Session::IfStarted()) session->engine->Advise(Full(chunk), what);
}

size_t HalfOfMemory() noexcept {
  const PublicCall call;
  const Session* const session = Session::IfStarted();
  return session == nullptr ? SIZE_MAX : session->engine->budget()->limit() / 2;
}

const char* DescribeChunk(const ChunkHead* chunk) noexcept {
  const uint64_t word = chunk->state.load(std::memory_order_acquire);
  switch (PhaseOf(word)) {
    case Phase::kFreed: return "freed";
    case Phase::kSwapped: return static_cast<const Chunk*>(chunk)->slot ? "swapped out" : "not yet written";
    case Phase::kLoading: return "swapping in";
    case Phase::kWriting: return "swapping out";
    case Phase::kLost: return "lost";
    case Phase::kResident: break;
  }
  if (Session::InForkedChild()) return "in memory";
  Chunk* full[1] = {const_cast<Chunk*>(static_cast<const Chunk*>(chunk))};
  bool pinned[1] = {HasCountedPins(full[0])};
  PinRegistry::Get().FindPinned(full, pinned);
  return pinned[0] ? "in use" : word & kPrefetched ? "fetched ahead" : "in memory";
}

// By whichever comes first: an exit handler of its own, which runs before the destructors of static objects that were made
// before now, or the composition root, when remote memory is about to be left.
void CallBeforeEnd(void (*function)()) noexcept {
  Session::before_end.store(function);
  const int failed = std::atexit(Session::End);
  if (failed != 0) LogWarning("atexit failed; forgotten objects are destroyed later than static ones");
}

void ReportLostDestructors(Object object, const char* why) noexcept {
  LogWarning("the elements of an object of %llu bytes (chunk %u) are given up without their destructors: %s",
             static_cast<unsigned long long>(object.bytes()), object.chunk()->id, why);
}

namespace {
std::recursive_mutex& Ingredients() {
  static auto* mutex = new std::recursive_mutex;  // outlives every static object of the program
  return *mutex;
}
int ingredients_depth = 0;  // guarded by the mutex
}  // namespace

// Who waits here releases no pins: the judge of deadlocks must know. He must also know when the wait is over, which is
// when the last owner leaves, not when the next one wakes up.
IngredientsScope::IngredientsScope() {
  RefuseWithinProgramCode("LISTOFINGREDIENTS");  // whoever has it now may wait for memory, and so for that very code
  if (Session::InForkedChild()) return;  // one thread, and the first pull that needs more than is in memory throws
  if (!Ingredients().try_lock()) {
    BlockCache::SpareAll();
    PinRegistry::Get().SetWaitingForIngredients();
    Ingredients().lock();
    PinRegistry::Get().SetWaiting(nullptr);
  }
  if (ingredients_depth++ == 0) PinRegistry::Get().SetIngredientsTaken(true);
}
IngredientsScope::~IngredientsScope() {
  if (Session::InForkedChild()) return;
  if (--ingredients_depth == 0) PinRegistry::Get().SetIngredientsTaken(false);
  Ingredients().unlock();
}

}  // namespace detail

void Session::End() {
  if (InForkedChild()) return;  // exit handlers are inherited; the objects and the mutexes around them are the parent's
  if (Session* session = IfStarted()) session->engine->SetWaitForPins(false);
  if (void (*function)() = before_end.exchange(nullptr)) function();
}

}  // namespace ramspan
