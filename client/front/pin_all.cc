// adhereAll: several pins, all or none.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/engine_call.h"
#include "client/front/pin_registry.h"
#include "client/front/session.h"
#include "client/front/throw_status.h"
#include "client/front/turn_queue.h"
#include "common/log.h"
#include "common/public_call.h"
#include "common/units.h"
#include "ramspan/adhere_all.h"
#include "ramspan/detail/block_cache.h"
#include "ramspan/detail/held_pin.h"

namespace ramspan::detail {
namespace {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

constexpr microseconds kPause{50}, kPauseOfAll{200}, kPauseMax{2000};  // between tries; while others let this one go first
constexpr auto kPatience = std::chrono::seconds(1);  // with others of which none is known to go on
constexpr auto kPatienceTold = std::chrono::seconds(60);  // then the log says what is waited for: it may go on for ever

enum class Slots { kOfTable, kAll };

// kCountedPin: there is none.
unsigned EmptySlot(PinTable* table, Slots slots) {
  const unsigned end = slots == Slots::kAll ? PinTable::kInlineSlots : PinTable::kAdhereToSlots;
  unsigned slot = 0;
  while (slot < end && table->slots[slot].load(std::memory_order_acquire) != nullptr) ++slot;
  if (slot < end) return slot;
  return slots == Slots::kAll ? static_cast<ThreadTable*>(table)->FreeSlot() : kCountedPin;
}

// Pins one without waiting for other threads' pins: kAborted where Pin would.
Status TryPin(PinRequest* request, PinTable* table, Slots slots) {
  auto* chunk = static_cast<Chunk*>(request->chunk);
  const unsigned slot = EmptySlot(table, slots);
  Status status;
  if (slot == kCountedPin) {
    status = Session::Get().engine->AcquireCounted(chunk, request->write, Engine::WhenPinned::kReturn);
    if (status.ok()) {
      request->slot = kCountedPin;
      PinRegistry::NoteCounted(1);
    }
    return status;
  }
  const bool at_hand = StorePinAnywhere(chunk, table, slot, request->write);
  HeldPin pin(chunk, table, slot);  // until the engine has agreed
  if (!at_hand) status = Session::Get().engine->Acquire(chunk, request->write, Engine::WhenPinned::kReturn);
  if (status.ok()) request->slot = pin.release();
  return status;
}

Status TryPinAll(std::span<PinRequest> requests, PinTable* table, Slots slots) {
  Status status;
  size_t n = 0;
  for (; n < requests.size() && status.ok(); ++n) {
    if (requests[n].chunk != nullptr) status = TryPin(&requests[n], table, slots);
  }
  if (status.ok()) return status;
  for (PinRequest& one : requests.first(n)) {
    if (one.slot != kNoPin) HeldPin(one.chunk, table, std::exchange(one.slot, kNoPin));
  }
  return status;
}

uint64_t FrameBytes(std::span<const PinRequest> requests) {
  std::vector<const ChunkHead*> chunks;
  for (const PinRequest& one : requests) {
    if (one.chunk != nullptr) chunks.push_back(one.chunk);
  }
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  uint64_t bytes = 0;
  for (const ChunkHead* chunk : chunks) bytes += RoundUpToGranule(chunk->bytes);
  return bytes;
}

// Those that wait. Each of them holds nothing that adhereAll pinned; who is not in turn does not even try, so that the first one gets what the
// others let go. It outlives all static objects, and is not destroyed in a forked child either, where those that wait do not exist.
TurnQueue& TurnsOfAll() {
  alignas(TurnQueue) static std::byte storage[sizeof(TurnQueue)];
  static auto* turns = new (storage) TurnQueue;  // which needs no heap
  return *turns;
}

bool AreAllInMemory(std::span<const PinRequest> requests) {
  return std::all_of(requests.begin(), requests.end(), [](const PinRequest& one) {
    return one.chunk == nullptr || (one.chunk->state.load(std::memory_order_relaxed) & kReadable);
  });
}

bool IsHeldUp(std::span<const PinRequest> requests) {
  uint64_t bytes = 0;
  for (const PinRequest& one : requests) bytes += one.chunk != nullptr ? one.chunk->bytes : 0;
  return PinGate::Get().IsShutFor(bytes) && !Session::InForkedChild() && !PinRegistry::HoldsPins();
}

// A wait for others' pins. Only time that is spent here, a little for each look (as Engine::WaitForPins).
struct CountedWait {
  ~CountedWait() { engine->CountPinWait(waited); }
  Engine* const engine;
  Clock::duration waited{};
};

// While this waits, those that hold nothing let it have what the others release.
struct HoldUp {
  ~HoldUp() { PinGate::Get().End(this); }
  // Whether they do just now.
  bool Look(Clock::duration waited, uint64_t bytes) {
    PinGate::Get().Look(this, waited, bytes);
    return PinGate::Get().IsShut();
  }
};

void PinRequests(PinRequest* first, size_t count, PinTable* table, Slots slots) {
  const std::span<PinRequest> requests(first, count);
  const EngineCall call;
  RefuseWithinProgramCode("adhereAll");
  if (PinGate::Get().IsShut() && IsHeldUp(requests)) PinGate::Get().Pass();
  const bool all_there = AreAllInMemory(requests);
  const Session* session = all_there ? Session::IfStarted() : &Session::Get();  // which throws in a forked child, before any mutex
  const bool may_wait = session == nullptr || (session->engine->wait_for_pins() && PinRegistry::Get().MayWait({}));
  // What is in memory takes nothing from those who wait. Who may not wait has this one chance.
  if (all_there || !may_wait || !TurnsOfAll().AnybodyWaits()) {
    Status status = TryPinAll(requests, table, slots);
    if (status.ok()) return;
    if (status.code() != StatusCode::kAborted) ThrowStatus(status);
  }
  Engine& engine = *Session::Get().engine;
  const uint64_t bytes = AsPublicCall([&] { return FrameBytes(requests); });
  if (bytes > engine.budget()->frames_limit()) ThrowStatus(engine.TooMuchAtOnceStatus(bytes));
  if (!may_wait) ThrowStatus(engine.FullOfPinsStatus(bytes));
  BlockCache::SpareAll();  // or the views of this thread would be what it, or who is in turn before it, waits for
  TurnQueue::Turn turn(&TurnsOfAll(), table);
  CountedWait wait{&engine};
  Clock::duration& waited = wait.waited;
  Clock::duration hopeless{};  // since some thread was seen that may unpin
  bool told = false;
  HoldUp others;
  for (microseconds pause = kPause;; pause = std::min(2 * pause, kPauseMax)) {
    Status status = TryPinAll(requests, table, slots);
    if (status.ok()) return;
    if (status.code() != StatusCode::kAborted) ThrowStatus(status);
    BlockCache::Call();
    if (PinRegistry::Get().JudgeWaiters() == PinScanner::Verdict::kSomebodyMayUnpin) hopeless = {};
    if (hopeless > kPatience || !engine.wait_for_pins() || !PinRegistry::Get().MayWait(waited)) {
      // Who is next in turn counts as waiting until this turn ends, but may go on then, and release what others need.
      if (hopeless > kPatience && !PinRegistry::HoldsPins() && !turn.HasNext()) engine.RefuseOldest();
      ThrowStatus(engine.FullOfPinsStatus(bytes));
    }
    if (waited > kPatienceTold && !std::exchange(told, true)) {
      LogWarning("adhereAll has waited 60 s for %s: adhereTos of other threads pin too much of the memory limit, and it "
                 "waits on until they release some. Where those threads wait at a barrier, in a join or for a lock of the "
                 "program's, their adhereTos have to end before that",
                 WithinHeap([bytes] { return FormatBytes(bytes); }, std::string()).c_str());
    }
    if (others.Look(waited, bytes)) pause = kPauseOfAll;
    std::this_thread::sleep_for(pause);
    waited += pause;
    hopeless += pause;
  }
}

}  // namespace

void PinTogether(PinRequest* requests, size_t count, PinTable* table) { PinRequests(requests, count, table, Slots::kAll); }
void PinAll(PinRequest* requests, size_t count, PinTable* table) { PinRequests(requests, count, table, Slots::kOfTable); }

}  // namespace ramspan::detail
