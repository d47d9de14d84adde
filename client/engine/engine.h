// Engine: the conductor of a chunk's way out (victim, close, write, frame back) and in (budget, frame, read, wake). It
// alone turns completions into transitions, and joins arena, policy and swap, which do not know each other.
//
// Thread-safety: all calls from any thread. One mutex guards states, lists and the arena. It is not held while bytes move
// or somebody is waited for: Reserve, SubmitRead, SubmitWrite, Poll and Upkeep of the tier, copies and checksums of chunk
// data, logging, and the program's own code (its EvictionPolicy, its SwapStore). It IS held for the tier's short questions
// (TryReserve, Free, IsLost, ShouldMove, CapabilitiesOf) and for the policy. A thread that misses submits and polls for
// itself; the mover (MoverStep) does what nobody waits for. Waiters poll the tier, so a wait makes progress even without a
// mover.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "client/arena/arena.h"
#include "client/arena/budget.h"
#include "client/chunk/chunk.h"
#include "client/chunk/chunk_table.h"
#include "client/engine/counters.h"
#include "client/engine/io_op.h"
#include "client/engine/memory_queue.h"
#include "client/engine/policy_feed.h"
#include "client/policy/policy.h"
#include "client/swap/slot.h"
#include "client/swap/swap_tier.h"
#include "common/mutex.h"

namespace ramspan {

// What the engine must know of pins: implemented by the front.
class PinScanner {
 public:
  virtual ~PinScanner() = default;
  // After this returns, every pin stored before a state word was closed is visible to FindPinned (membarrier).
  virtual void Barrier() = 0;
  // pinned[i] = some thread's table holds chunks[i].
  virtual void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) = 0;

  // The calling thread starts (chunk) or stops (nullptr) to wait for memory in order to pin `chunk`.
  virtual void SetWaiting(Chunk* chunk) = 0;
  enum class Verdict {
    kSomebodyMayUnpin,  // a living thread that does not wait for memory or for its turn holds pins, or may end a stranger's
    kUnlikely,          // none is known to, but a pin could still go: threads live that hold none, or elements (p[i]) only,
                        // or there are pins of threads that have ended
    kDeadlock,          // all threads that ever pinned wait
  };
  // Of the threads beside the calling one.
  virtual Verdict JudgeWaiters() = 0;

  // First touches (policy.h). Threads are those that ever pinned; the calling one may be none of them.
  virtual uint32_t threads() const { return 0; }
  virtual uint32_t ThisThread() const { return kNoThread; }
  // Takes what that thread has noted since the last call, oldest first, at most out.size(). One caller at a time.
  virtual size_t TakeTouches(uint32_t /*thread*/, std::span<Touch> /*out*/) { return 0; }
  virtual uint64_t touches_dropped() const { return 0; }
};

class Engine {
 public:
  struct Options {
    uint64_t budget = 0;
    bool metadata_beside_limit = false;  // the budget is for data (budget.h)
    bool preemptive = true;
    bool checksum = true;
    bool keep_room = true;  // swap that is full leaves what is in it readable (room.cc); costs room for the two largest
    bool debug = false;  // frames that come back are unmapped; unchanged writes are counted by size
    std::chrono::milliseconds deadlock_settle{10};   // for which the verdict of a deadlock must hold
    std::chrono::milliseconds deadlock_grace{1000};  // before an unlikely release is given up
    std::chrono::milliseconds pin_wait_told{60000};  // after which a wait for other threads' pins is mentioned in the log
    // Who sleeps until another thread wakes him looks by himself when that one has not looked for this time: it may be held up,
    // in a question to a server. Long, because hundreds may sleep; twice of it would only be noticed while a server does not answer.
    std::chrono::milliseconds sleep_max{100};
    uint64_t addresses = 0;  // for frames; 0: many times the limit
  };

  // `make_policy` is called once with the engine's chunk table.
  Engine(const Options& options, SwapTier* tier, PinScanner* pins,
         const std::function<std::unique_ptr<CachePolicy>(const ChunkTable*)>& make_policy);
  // REQUIRES: no other thread is inside. Waits for transfers in flight.
  ~Engine();

  // A chunk in phase Swapped without contents. Blocks only when the descriptors have outgrown their part of the budget and
  // frames must give way. kFailedPrecondition when it can never fit the budget; what Acquire returns.
  // With `contents`, a slot that holds exactly these bytes, of a tier that is read-only. Takes the slot over when it succeeds.
  Result<Chunk*> Create(uint64_t bytes, SlotRef contents = SlotRef{});
  // The front takes `bytes` of the budget for itself, for good. Blocks as Create; on failure nothing is taken.
  Status ChargeMetadata(uint64_t bytes) RS_EXCLUDES(mutex_);
  // Whether the chunk may differ from the read-only slot with which it was made, or has no such slot (any more).
  bool IsChanged(Chunk* chunk) RS_EXCLUDES(mutex_);
  // `contents` (as Create's) holds the chunk's bytes now; its old slot is given back. REQUIRES: the caller has it pinned for reading, and
  // nobody for writing. Blocks while a transfer of it is in flight.
  void ReplaceSlot(Chunk* chunk, SlotRef contents) RS_EXCLUDES(mutex_);
  // Whether the chunk's data is gone, or will be found to be when somebody asks for it. Takes the engine's mutex for chunks
  // that are not in memory only.
  bool IsLost(const Chunk* chunk) const RS_EXCLUDES(mutex_);
  // REQUIRES: no pins. Does not wait: with a transfer in flight the chunk is doomed and goes when that is done.
  void Free(Chunk* chunk);

  // Makes the chunk readable (writable and dirty). Blocks. REQUIRES: the caller's pin is stored in its table already.
  // kFailedPrecondition: pins fill the budget; kResourceExhausted: swap is full; kDataLoss; kUnavailable.
  enum class WhenPinned {
    kWait,    // for other threads to unpin
    kReturn,  // kAborted
  };
  Status Acquire(Chunk* chunk, bool write, WhenPinned when_pinned = WhenPinned::kWait) RS_EXCLUDES(mutex_);
  // The same with the pin counted in the chunk's word, taken before it returns OK.
  Status AcquireCounted(Chunk* chunk, bool write, WhenPinned when_pinned = WhenPinned::kWait) RS_EXCLUDES(mutex_);
  // kFailedPrecondition: pins fill the budget, `bytes` more do not fit; with the remedy.
  Status FullOfPinsStatus(uint64_t bytes) const;
  // A hint. Starts the read if a frame is at hand without evicting; else nothing happens, and the pull reads.
  void Prefetch(Chunk* chunk) RS_EXCLUDES(mutex_);

  // kFailedPrecondition: with `bytes` as the limit, what descriptors take now would leave too little to use the objects.
  Status LeavesRoomForData(uint64_t bytes) const;
  // Blocks until the new limit holds; on failure the old one stays.
  Status SetBudget(uint64_t bytes) RS_EXCLUDES(mutex_);
  // Brings home what is in slots for which `leaving` says true, so that they can be given up. The tier must refuse new
  // slots there already. Blocks; evicts to what is left. One thread at a time.
  // kResourceExhausted: not all that is there could be read any more. With `even_if_full` it comes home all the same.
  Status Vacate(const std::function<bool(SlotRef slot, size_t bytes)>& leaving, bool even_if_full = false) RS_EXCLUDES(mutex_);

  // May be changed at any time: read-ahead; writing back ahead of need; whether a thread waits for other threads' pins or
  // gets kFailedPrecondition at once.
  void SetPreemptive(bool loading, bool unloading);
  void SetWaitForPins(bool wait) { wait_for_pins_.store(wait, std::memory_order_relaxed); }
  bool load_ahead() const { return load_ahead_.load(std::memory_order_relaxed); }
  bool write_ahead() const { return write_ahead_.load(std::memory_order_relaxed); }
  bool wait_for_pins() const { return wait_for_pins_.load(std::memory_order_relaxed); }
  // Another policy takes over; chunks come to it in the order of their making. Returns the old one.
  std::unique_ptr<CachePolicy> ReplacePolicy(
      const std::function<std::unique_ptr<CachePolicy>(const ChunkTable*)>& make_policy) RS_EXCLUDES(mutex_);
  // The epoch that a pin notes with a first touch; 0: nobody wants to hear of touches.
  uint32_t touch_epoch() const RS_NO_THREAD_SAFETY_ANALYSIS { return feed_.epoch(); }
  // The calling thread has no place for its touches: tells the policy at once, if that needs no waiting.
  void TellTouches() RS_EXCLUDES(mutex_);
  // For people: which sizes of chunks were written although nothing had changed (Options::debug); empty: none.
  std::string DescribeUnchangedWrites() const RS_EXCLUDES(mutex_);
  // The policy's order, a line a chunk, for people; whether the policy's own structure is sound.
  std::string DescribePolicy() const RS_EXCLUDES(mutex_);
  bool CheckPolicy() const RS_EXCLUDES(mutex_);

  // Waits until nothing is in flight. Blocks.
  void Drain() RS_EXCLUDES(mutex_);
  // Whether any transfer is under way, after those that have ended were taken note of. Does not block.
  bool HasTransfers() RS_EXCLUDES(mutex_);
  // Swap keeps no copies of chunks in memory any more, old ones of changed chunks included, until `bytes` are free there; but
  // for those that are needed so that what is swapped can come back.
  void FreeResidentSlots(uint64_t bytes) RS_EXCLUDES(mutex_);

  // One round of background work: completions, free frames ahead of need, read-ahead, the tier's upkeep. Returns
  // whether there was anything to do. MoverWait sleeps until there may be (at most `max`).
  bool MoverStep() RS_EXCLUDES(mutex_);
  void MoverWait(std::chrono::microseconds max) RS_EXCLUDES(mutex_);
  void WakeMover();

  Budget* budget() { return &budget_; }
  EngineCounters counters() const RS_EXCLUDES(mutex_);
  // I1, I2 and the lists: for tests, with no thread inside.
  bool IsValid() RS_EXCLUDES(mutex_);

 private:
  static constexpr size_t kBatch = 32;  // victims closed by one membarrier
  // Chunks that leave in one go, for a miss or for the mover's reserve: a membarrier and a submission cost the same for all.
  static constexpr uint64_t kTogether = 16;

  // evict.cc
  struct Evicted {
    uint64_t freed = 0;        // bytes of frames that came back at once
    uint64_t started = 0;      // bytes now being written
    uint64_t no_slot_yet = 0;  // bytes of the least dirty victim for whose slot the tier has to be waited for
    uint64_t no_slot = 0;      // bytes of the least dirty victim that found no slot
    bool room_made = false;    // it has been waited for: look again
    Status status;             // why a dirty victim could not start
    uint64_t no_exchange = UINT64_MAX;  // victims of so many bytes find nobody who gives them a slot
    bool leaves() const { return freed + started > 0; }
  };
  Evicted EvictSome(uint64_t bytes) RS_REQUIRES(mutex_);  // releases and retakes the mutex to submit
  void LookForVictims(uint64_t bytes, Evicted* result) RS_REQUIRES(mutex_);  // the same
  IoOp* SendAway(Chunk* chunk, Evicted* result) RS_REQUIRES(mutex_);
  void CloseUnpinned(std::span<Chunk*> victims, std::span<bool> keep) RS_REQUIRES(mutex_);
  Status EnsureSlot(Chunk* chunk, Evicted* result) RS_REQUIRES(mutex_);
  bool WaitForSlots(uint64_t bytes, Evicted* result) RS_REQUIRES(mutex_);  // releases and retakes the mutex
  Evicted EvictPrefetched(uint64_t bytes) RS_REQUIRES(mutex_);  // releases and retakes the mutex to submit
  void DropFrame(Chunk* chunk, Event event) RS_REQUIRES(mutex_);
  void FinishWrites(std::span<IoOp*> ops) RS_REQUIRES(mutex_);
  // One thread's wait for pins since it last made progress. Only time spent in that very wait counts, a little for each
  // look at the pins: disks, servers and a busy machine take theirs besides.
  struct PinWait {
    std::chrono::steady_clock::duration waited{};
    std::chrono::steady_clock::duration hopeless{};  // since some thread was seen that may unpin
    bool was_deadlock = false;  // the last verdict; the pins have been looked at since
    bool hopeful = false;       // by the last verdict some thread may unpin
    bool told = false;          // the log says that somebody waits
    uint64_t own = 0;           // bytes that are reserved for this thread, but for which no addresses are free
  };
  // Releases and retakes the mutex; returns sooner when `wake` is notified.
  Status WaitForPins(uint64_t bytes, PinWait* wait, CondVar* wake) RS_REQUIRES(mutex_);
  bool TellWait(uint64_t bytes, PinWait* wait) RS_REQUIRES(mutex_);  // releases and retakes the mutex
  Status CheckWrites() RS_REQUIRES(mutex_);
  bool RefillReserve() RS_REQUIRES(mutex_);

  // memory.cc
  // Threads that wait for memory are served in the order of their coming: what the oldest is owed, nobody else gets, so that
  // a large chunk cannot starve beside small ones.
  using Waiter = MemoryQueue::Waiter;
  class InQueue;
  Status TakeFrame(Chunk* chunk, WhenPinned when_pinned, Frame* frame) RS_REQUIRES(mutex_);
  Frame TryTakeFrame(uint64_t bytes) RS_REQUIRES(mutex_);
  void ServeWaiters() RS_REQUIRES(mutex_);
  void Serve(Waiter* waiter, Reservation memory) RS_REQUIRES(mutex_);
  bool MayPass(const Waiter& waiter, const PinWait& wait) RS_REQUIRES(mutex_);
  void LetSleepersPass(const PinWait& wait) RS_REQUIRES(mutex_);
  bool MaySleep(const Waiter& waiter) RS_REQUIRES(mutex_);
  void NoteProgress(PinWait* wait) RS_REQUIRES(mutex_);
  Status WatchPins(Waiter* waiter, PinWait* wait) RS_REQUIRES(mutex_);  // releases and retakes the mutex
  void WakeSlotless() RS_REQUIRES(mutex_);
  Status TooLarge(uint64_t bytes) const;
  void AwaitTransfer(Waiter* waiter) RS_REQUIRES(mutex_);  // releases and retakes the mutex

  // room.cc
  // Of chunks, rounded to frames: none is larger than the largest, none but that one than the second.
  struct Sizes {
    uint64_t largest = 0, second = 0;
    bool mixed = false;  // not all are as large as the largest
    void Note(uint64_t bytes);
  };
  void LookForSizes() RS_REQUIRES(mutex_);
  void CountSwapped(const Chunk* chunk, bool more) RS_REQUIRES(mutex_);
  uint64_t RoomFor(const Sizes& sizes, bool new_chunk) const RS_REQUIRES(mutex_);
  uint64_t Excess(uint64_t slotless, uint64_t leaving, uint64_t room) const RS_REQUIRES(mutex_);
  Result<SlotRef> AskSlot(uint64_t bytes) RS_REQUIRES(mutex_);
  void NoteFull(uint64_t bytes) RS_REQUIRES(mutex_);
  bool SeemsFull(uint64_t bytes) const RS_REQUIRES(mutex_);
  void GiveEmptySlot(Chunk* chunk, SlotRef slot) RS_REQUIRES(mutex_);
  Status GiveSlots(uint64_t bytes, uint64_t* ask) RS_REQUIRES(mutex_);
  Status TryKeepRoom(uint64_t coming, uint64_t leaving, const Sizes& sizes, uint64_t* ask) RS_REQUIRES(mutex_);
  Status NoRoomToKeep(const Status& why) const;
  void NoteTiers(uint64_t metadata_bytes) RS_REQUIRES(mutex_);
  Status AskForRoom(uint64_t bytes) RS_REQUIRES(mutex_);  // releases and retakes the mutex
  Status KeepRoom() RS_REQUIRES(mutex_);                  // releases and retakes the mutex
  Status Admit(Chunk* chunk, uint64_t* ask) RS_REQUIRES(mutex_);
  Status TakeFrameAndRoom(Chunk* chunk, WhenPinned when_pinned, Frame* frame, bool* is_new) RS_REQUIRES(mutex_);
  Status LeaveSlot(Chunk* chunk, bool even_if_full) RS_REQUIRES(mutex_);  // releases and retakes the mutex
  void NoteResidentSlot(const Chunk* chunk) RS_REQUIRES(mutex_);
  void NoteResidentSlots() RS_REQUIRES(mutex_);
  bool MayGiveUpSlot(const Chunk* chunk, uint64_t leaving, uint64_t others) const RS_REQUIRES(mutex_);
  bool Exchange(Chunk* chunk) RS_REQUIRES(mutex_);
  bool ExchangeIn(uint64_t space, Chunk* chunk) RS_REQUIRES(mutex_);
  static uint64_t SpaceOf(SlotRef slot);
  void ReclaimResidentSlots(uint64_t bytes) RS_REQUIRES(mutex_);

  // fetch.cc
  Status AcquireLocked(Chunk* chunk, bool write, WhenPinned when_pinned) RS_REQUIRES(mutex_);
  Status Load(Chunk* chunk, WhenPinned when_pinned) RS_REQUIRES(mutex_);
  IoOp* BeginLoad(Chunk* chunk, Frame frame, bool prefetch) RS_REQUIRES(mutex_);
  bool IsWrong(const IoOp& op) const RS_REQUIRES(mutex_);
  void FinishRead(IoOp* op) RS_REQUIRES(mutex_);
  void NoteLoss(const IoOp& op) RS_REQUIRES(mutex_);
  void TellLosses() RS_REQUIRES(mutex_);  // releases and retakes the mutex
  bool ReadAhead() RS_REQUIRES(mutex_);
  std::unique_ptr<CachePolicy> ReplacePolicyLocked(
      const std::function<std::unique_ptr<CachePolicy>(const ChunkTable*)>& make_policy) RS_REQUIRES(mutex_);
  CachePolicy::Turn Consult(CachePolicy::Ask ask, uint64_t bytes, size_t places) RS_REQUIRES(mutex_);
  Status WaitFor(IoOp* op, std::chrono::steady_clock::time_point since) RS_REQUIRES(mutex_);
  void SleepUntilDone(IoOp* op) RS_REQUIRES(mutex_);  // releases and retakes the mutex
  void WakeSleepers(IoOp* op) RS_REQUIRES(mutex_);

  // engine.cc
  // All that a chunk owns goes through these four.
  void AttachFrame(Chunk* chunk, Frame frame) RS_REQUIRES(mutex_);
  Frame DetachFrame(Chunk* chunk) RS_REQUIRES(mutex_);
  void AttachSlot(Chunk* chunk, Slot slot) RS_REQUIRES(mutex_);
  Slot DetachSlot(Chunk* chunk) RS_REQUIRES(mutex_);
  void Open(Chunk* chunk, bool write) RS_REQUIRES(mutex_);
  // Releases and retakes the mutex. `watcher` watches for others until the tier has been asked, but not while what has come is
  // dealt with, which may submit reads again.
  bool PollOnce(std::chrono::microseconds wait, const Waiter* watcher = nullptr) RS_REQUIRES(mutex_);
  void Finish(std::span<IoRequest* const> done) RS_REQUIRES(mutex_);
  IoOp* NewOp(Chunk* chunk, bool write) RS_REQUIRES(mutex_);
  void Release(IoOp* op) RS_REQUIRES(mutex_);
  void Submit(std::span<IoOp* const> ops, bool write) RS_REQUIRES(mutex_);  // releases and retakes the mutex
  void Forget(Chunk* chunk) RS_REQUIRES(mutex_);
  void CountWait(std::chrono::steady_clock::time_point since) RS_REQUIRES(mutex_);
  void SignalMover() RS_REQUIRES(mutex_);

  // limits.cc; each but the last releases and retakes the mutex
  Status TakeMetadata(uint64_t bytes) RS_REQUIRES(mutex_);
  uint64_t FramesFloor() RS_REQUIRES(mutex_);
  Status NoRoomForDescriptors() const;
  Status HoldLimit() RS_REQUIRES(mutex_);
  void TellLimits() RS_REQUIRES(mutex_);

  const Options options_;
  SwapTier* const tier_;
  PinScanner* const pins_;
  Budget budget_;
  // Switches; nothing is published with them, so relaxed order is enough.
  std::atomic<bool> load_ahead_, write_ahead_, wait_for_pins_{true};

  mutable Mutex mutex_{LockRank::kEngine};
  CondVar mover_wake_;
  ChunkTable chunks_ RS_GUARDED_BY(mutex_);
  Arena arena_ RS_GUARDED_BY(mutex_);
  std::unique_ptr<CachePolicy> policy_ RS_GUARDED_BY(mutex_);
  PolicyFeed feed_ RS_GUARDED_BY(mutex_);
  OpPool ops_ RS_GUARDED_BY(mutex_);
  EngineCounters counters_ RS_GUARDED_BY(mutex_);
  std::map<uint64_t, uint64_t> unchanged_by_size_ RS_GUARDED_BY(mutex_);  // bytes of a chunk, writes
  uint64_t in_flight_ RS_GUARDED_BY(mutex_) = 0;       // transfers
  uint64_t live_bytes_ RS_GUARDED_BY(mutex_) = 0;      // of all chunks, rounded to frames
  uint64_t swapped_bytes_ RS_GUARDED_BY(mutex_) = 0;   // of Swapped chunks with a slot
  uint64_t slotless_bytes_ RS_GUARDED_BY(mutex_) = 0;  // in frames of chunks that have no slot
  uint64_t swapped_frames_ RS_GUARDED_BY(mutex_) = 0;  // swapped_bytes_, rounded to frames
  Sizes all_sizes_ RS_GUARDED_BY(mutex_);              // of all chunks
  Sizes kept_sizes_ RS_GUARDED_BY(mutex_);             // of those with contents
  uint64_t full_bytes_ RS_GUARDED_BY(mutex_) = UINT64_MAX;  // swap has said that it is full for so many
  std::chrono::steady_clock::time_point full_until_ RS_GUARDED_BY(mutex_){};
  // Ids + 1 of chunks in memory whose slot could be another's, in a ring; 0: none. Some may have left or given it away.
  static constexpr uint32_t kResidentSlots = 64;
  std::array<uint32_t, kResidentSlots> resident_slots_ RS_GUARDED_BY(mutex_){};
  uint32_t resident_slots_next_ RS_GUARDED_BY(mutex_) = 0;
  uint32_t next_noted_ RS_GUARDED_BY(mutex_) = 0;      // where NoteResidentSlots goes on
  uint64_t typical_bytes_ RS_GUARDED_BY(mutex_) = 0;   // of the last frame asked for
  // What the log will say of lost chunks, as soon as the mutex is let go.
  struct Loss {
    uint32_t chunk;
    uint64_t bytes;
    char tier[16];
    bool wrong;  // bytes; else there are none
  };
  std::array<Loss, 8> losses_ RS_GUARDED_BY(mutex_){};
  size_t untold_losses_ RS_GUARDED_BY(mutex_) = 0;
  uint32_t failed_writes_ RS_GUARDED_BY(mutex_) = 0;   // since the last good one
  uint32_t failed_rounds_ RS_GUARDED_BY(mutex_) = 0;   // of writes that began after the ones before had failed
  uint32_t write_round_ RS_GUARDED_BY(mutex_) = 0;     // the number of the round that is on
  MemoryQueue queue_ RS_GUARDED_BY(mutex_);            // of threads that wait for memory
  // The clock of waits for pins (PinWait) runs for all in the queue: that spent by its watchers, ever. What it showed when a
  // frame came or was on its way last, and when some thread was seen last that may unpin.
  std::chrono::steady_clock::duration pin_time_ RS_GUARDED_BY(mutex_){};
  std::chrono::steady_clock::duration progress_at_ RS_GUARDED_BY(mutex_){};
  std::chrono::steady_clock::duration hopeful_at_ RS_GUARDED_BY(mutex_){};
  uint64_t takes_ RS_GUARDED_BY(mutex_) = 0;           // frames taken, ever
  uint32_t passes_ RS_GUARDED_BY(mutex_) = 0;          // of those, past the thread that is the oldest now
  bool telling_wait_ RS_GUARDED_BY(mutex_) = false;    // a thread writes that it waits for long
  Chunk* vacating_ RS_GUARDED_BY(mutex_) = nullptr;    // Vacate is bringing it home
  bool polling_ RS_GUARDED_BY(mutex_) = false;         // a thread waits inside the tier's Poll
  Sleeper* sleepers_ RS_GUARDED_BY(mutex_) = nullptr;  // who sleeps meanwhile, for transfers of their own
  bool mover_asleep_ RS_GUARDED_BY(mutex_) = false;
  bool mover_work_ RS_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point last_upkeep_ RS_GUARDED_BY(mutex_){};
  std::chrono::steady_clock::time_point refill_again_ RS_GUARDED_BY(mutex_){};  // the mover's reserve, after a search in vain
};

}  // namespace ramspan
