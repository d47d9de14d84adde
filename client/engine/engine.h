// Engine: the conductor of a chunk's way out (victim, close, write, frame back) and in (budget, frame, read, wake). It
// alone turns completions into transitions, and joins arena, policy and swap, which do not know each other.
//
// Thread-safety: all calls from any thread. One mutex guards states, lists and the arena. It is not held while bytes move
// or somebody is waited for: membarriers and looks at the tables of pins (CloseUnpinned), Reserve, SubmitRead, SubmitWrite, Poll and Upkeep of the tier, copies and checksums of chunk
// data, logging, and the program's own code (its EvictionPolicy, its SwapStore). It IS held for the tier's short questions
// (TryReserve, TryExchange, TryMoveUp, which asks a faster tier's TryReserve, Free, ForgetMemory, IsLost, IsLeaving, ShouldMove, StandsStill,
// capabilities, CapabilitiesOf, metadata_bytes) and for the policy. A thread that misses submits and polls for itself; the mover (MoverStep) does what nobody waits for. Waiters poll the tier, so a wait makes progress even without a
// mover.
//
// Each concept that is no conducting has a header of its own (room.h, memory_queue.h, pin_wait.h ...). All that runs under the
// mutex is declared here nevertheless: clang checks RS_REQUIRES(mutex_) within one class only.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/arena/arena.h"
#include "client/arena/budget.h"
#include "client/chunk/chunk.h"
#include "client/chunk/chunk_table.h"
#include "client/engine/advised.h"
#include "client/engine/counters.h"
#include "client/engine/evicted.h"
#include "client/engine/failed_writes.h"
#include "client/engine/io_op.h"
#include "client/engine/loss_log.h"
#include "client/engine/memory_queue.h"
#include "client/engine/miss_order.h"
#include "client/engine/mover_bell.h"
#include "client/engine/options.h"
#include "client/engine/pin_scanner.h"
#include "client/engine/pin_wait.h"
#include "client/engine/policy_feed.h"
#include "client/engine/room.h"
#include "client/engine/vacating.h"
#include "client/engine/write_site.h"
#include "client/engine/writes_under_way.h"
#include "client/policy/policy.h"
#include "client/swap/slot.h"
#include "client/swap/swap_tier.h"
#include "common/mutex.h"

namespace ramspan {

class Engine {
 public:
  using Options = EngineOptions;
  using MakePolicy = std::function<std::unique_ptr<CachePolicy>(const ChunkTable*)>;

  // `make_policy` is called once with the engine's chunk table.
  Engine(const Options& options, SwapTier* tier, PinScanner* pins, const MakePolicy& make_policy);
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
  // The chunk's slot becomes those of `parts`, which hold the chunk's bytes, in order, from then on; what is in memory is the caller's only: it drops the chunk,
  // or makes it changed again (kDirty). False: nothing was done, because it is changed, its slot cannot be cut, or a transfer of it is in flight. REQUIRES: the caller
  // has it pinned, in memory, and who writes there has pinned it for that; `parts` are new, equally large (a multiple of the granule), as large as it together, and have the checksums of
  // what it held when it was not changed.
  bool Cut(Chunk* chunk, std::span<Chunk* const> parts) RS_EXCLUDES(mutex_);
  // Whether the chunk's data is gone, or will be found to be when somebody asks for it. Takes the engine's mutex for chunks
  // that are not in memory only.
  bool IsLost(const Chunk* chunk) const RS_EXCLUDES(mutex_);
  // REQUIRES: no pins. Does not wait: with a transfer in flight the chunk is doomed and goes when that is done.
  void Free(Chunk* chunk) RS_EXCLUDES(mutex_);
  // The same where it has no counted pins; false: it has, and nothing was done.
  bool FreeUnpinned(Chunk* chunk) RS_EXCLUDES(mutex_);

  // Makes the chunk readable (writable and dirty). Blocks. REQUIRES: the caller's pin is stored in its table already.
  // kFailedPrecondition: pins fill the budget; kResourceExhausted: swap is full; kDataLoss; kUnavailable.
  enum class WhenPinned {
    kWait,    // for other threads to unpin
    kReturn,  // kAborted
    kBriefly, // Vacate's: for as long as that may help, and it has patience
  };
  Status Acquire(Chunk* chunk, bool write, WhenPinned when_pinned = WhenPinned::kWait) RS_EXCLUDES(mutex_);
  // The same with the pin counted in the chunk's word, taken before it returns OK.
  // `place`, if any: kAborted, with nothing done, where it does not name the chunk any more. For who may come when the chunk is being freed: the
  // freeing thread changes it before it calls FreeUnpinned.
  Status AcquireCounted(Chunk* chunk, bool write, WhenPinned when_pinned = WhenPinned::kWait, const std::atomic<Chunk*>* place = nullptr) RS_EXCLUDES(mutex_);
  // kFailedPrecondition: pins fill the budget, `bytes` more do not fit; with the remedy.
  Status FullOfPinsStatus(uint64_t bytes) const;
  // The same where not even an empty memory has room for what one request wants.
  Status TooMuchAtOnceStatus(uint64_t bytes) const;
  // A thread that holds nothing gives up waiting for others' pins: none of those that wait can go on. They would have seen that, too, if it
  // had not tried and let go again and again, and it may do so anew. So the oldest of them is told, if there is no memory for it.
  void RefuseOldest() RS_EXCLUDES(mutex_);
  // For the statistics: a thread has waited so long for others' pins outside of the engine (adhereAll).
  void CountPinWait(PinClock::Time waited) RS_EXCLUDES(mutex_);
  // A hint. Starts the read if a frame is at hand without evicting; else nothing happens, and the pull reads.
  void Prefetch(Chunk* chunk) RS_EXCLUDES(mutex_);
  // What the program knows of the chunk's use (include/ramspan/advice.h). Does not wait for data. `place`: as AcquireCounted's.
  void Advise(Chunk* chunk, advice what, const std::atomic<Chunk*>* place = nullptr) RS_EXCLUDES(mutex_);

  // kFailedPrecondition: with `bytes` as the limit, what descriptors take now would leave too little to use the objects.
  Status LeavesRoomForData(uint64_t bytes) RS_EXCLUDES(mutex_);
  // Blocks until the new limit holds; on failure the old one stays.
  Status SetBudget(uint64_t bytes) RS_EXCLUDES(mutex_);
  // Brings home what is in slots for which `leaving` says true, so that they can be given up. The tier must refuse new
  // slots there already. Blocks; evicts to what is left. One thread at a time. Waits for other threads' pins for deadlock_grace, and
  // a little longer where chunks come home meanwhile; after a failure not at all. `patiently`: as long as a pull would.
  // kFailedPrecondition: not all has room in memory; kResourceExhausted: nor in the swap in use, or not all that is there could be read
  // any more (with `even_if_full` it comes home all the same).
  // `take_back`: opens again what was closed for it, where it has failed. Runs with the mutex, so that others that wait find it open.
  // `only_elsewhere`: what gets no slot elsewhere keeps its own; none is given up for a place in memory, nor waited for.
  // `part`: it ends before all chunks have been looked at, when that is enough, and the next call with it goes on there.
  struct VacateOptions {
    bool even_if_full = false, patiently = false, only_elsewhere = false;
    Vacating::Part* part = nullptr;
  };
  Status Vacate(const Vacating::Leaving& leaving, VacateOptions options = {false, false, false, nullptr}, const std::function<void()>& take_back = {}) RS_EXCLUDES(mutex_);
  // What is in slots for which `gone` says true is lost, but for what is in memory, too. Afterwards no chunk names such a slot.
  // REQUIRES: their tier is retired (RetirableTier). Blocks while transfers of theirs are brought to their end. Needs no heap.
  void GiveUp(const Vacating::Leaving& gone) RS_EXCLUDES(mutex_);
  // What lived only on this memory server (its number in the tier's servers()), which has died: neither in memory nor elsewhere. Looks at all
  // chunks, and lets other threads go on meanwhile; a chunk that is freed before it is looked at is not counted, also when it was found lost before.
  struct Losses {
    uint64_t chunks = 0, bytes = 0;
  };
  Losses LostWith(uint32_t server) RS_EXCLUDES(mutex_);
  // kFailedPrecondition: where no swap takes anything, Vacate would find that not all has room in memory.
  Status FitsAtHome(const Vacating::Leaving& leaving) const RS_EXCLUDES(mutex_);
  // Whether memory has room for so many bytes of swap beside all that is there and has no slot. Looks at no chunk.
  bool HasRoomAtHome(uint64_t bytes) const RS_EXCLUDES(mutex_);

  // May be changed at any time: read-ahead; writing back ahead of need; whether a thread waits for other threads' pins or
  // gets kFailedPrecondition at once.
  void SetPreemptive(bool loading, bool unloading);
  void SetWaitForPins(bool wait) { wait_for_pins_.store(wait, std::memory_order_relaxed); }
  bool load_ahead() const { return load_ahead_.load(std::memory_order_relaxed); }
  bool write_ahead() const { return write_ahead_.load(std::memory_order_relaxed); }
  bool wait_for_pins() const { return wait_for_pins_.load(std::memory_order_relaxed); }
  // Another policy takes over; chunks come to it in the order of their making. Returns the old one.
  std::unique_ptr<CachePolicy> ReplacePolicy(const MakePolicy& make_policy) RS_EXCLUDES(mutex_);
  // A policy that is to take over where nothing can be allocated any more: it gets room for each chunk that is made. Null: none. Not owned.
  // REQUIRES: called by a make_policy, which has the mutex.
  void KeepReserved(CachePolicy* policy) RS_NO_THREAD_SAFETY_ANALYSIS {
    if (policy != nullptr) policy->Reserve(chunks_.ids());
    reserved_policy_ = policy;
  }
  // The epoch that a pin notes with a first touch; 0: nobody wants to hear of touches.
  uint32_t touch_epoch() const RS_NO_THREAD_SAFETY_ANALYSIS { return feed_.epoch(); }
  // The calling thread has no place for its touches: tells the policy at once, if that needs no waiting.
  void TellTouches() RS_EXCLUDES(mutex_);
  // For people: which sizes of chunks were written although nothing had changed (Options::debug); empty: none.
  std::string DescribeUnchangedWrites() const RS_EXCLUDES(mutex_);
  // Debug mode: the chunk is written from now on by what was pulled at `site`. Where those were pulled that did not change, and how
  // often, the most frequent first.
  void NoteWriteSite(const Chunk* chunk, const WriteSite& site) RS_EXCLUDES(mutex_);
  std::vector<std::pair<WriteSite, uint64_t>> UnchangedBySite() const RS_EXCLUDES(mutex_);
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
  // Gives memory that has not been needed for some seconds back to the system, some 20 ms of it; ends early when `stop` is set. To be called now and then,
  // by one thread.
  void GiveBackIdle(const std::atomic<bool>& stop) RS_EXCLUDES(mutex_);
  void WakeMover();

  // How often the heap had no more for what a transfer, an eviction or the mover's turn needed. What had been begun then was ended or
  // taken back, and is tried again.
  uint64_t heap_failures() const { return heap_failures_.load(std::memory_order_relaxed); }
  void NoteHeapFailure() { heap_failures_.fetch_add(1, std::memory_order_relaxed); }

  Budget* budget() { return &budget_; }
  // Before pages of a frame are replaced behind the arena's back: no network uses those that it has registered there any more. Takes no mutex.
  void ForgetFrame(std::span<std::byte> frame) RS_NO_THREAD_SAFETY_ANALYSIS { tier_->ForgetMemory(frame); }  // the pointer is constant
  std::span<std::byte> frame_addresses() const RS_NO_THREAD_SAFETY_ANALYSIS { return arena_.range(); }  // constant; in which all frames are
  // Bytes of all chunks in memory and swapped, as frames. May be old when it returns.
  uint64_t live_bytes() const { return live_bytes_.load(std::memory_order_relaxed); }
  // From now on no frame below the size of a huge page lies on one.
  void LeaveHugePages() RS_EXCLUDES(mutex_);
  EngineCounters counters() const RS_EXCLUDES(mutex_);
  // I1, I2 and the lists: for tests, with no thread inside.
  bool IsValid() RS_EXCLUDES(mutex_);

 private:
  static constexpr size_t kBatch = CachePolicy::kVictimsMax;  // victims closed by one membarrier
  // Chunks of so many bytes that leave in one go, for a miss or for the mover's reserve: a membarrier and a submission cost the same for all.
  static constexpr uint64_t kTogether = 32, kTogetherBytes = uint64_t{512} << 10;
  static constexpr uint64_t Together(uint64_t bytes) { return std::clamp<uint64_t>(kTogetherBytes / std::max<uint64_t>(bytes, 1), kTogether, kBatch); }

  // What releases and retakes the mutex is marked with "lets go".

  void CountLive(uint64_t bytes) RS_REQUIRES(mutex_);  // more, or fewer by wrapping
  void FreeLocked(Chunk* chunk) RS_REQUIRES(mutex_);

  // evict.cc
  Evicted EvictSome(uint64_t bytes, Evicted result) RS_REQUIRES(mutex_);  // lets go; what the caller allows is in `result`
  void LookForVictims(uint64_t bytes, Evicted* result) RS_REQUIRES(mutex_);  // lets go
  uint64_t Search(uint64_t bytes, bool take_kept, Evicted* result) RS_REQUIRES(mutex_);  // lets go
  bool WaitForSlots(uint64_t bytes, Evicted* result) RS_REQUIRES(mutex_);  // lets go
  Evicted EvictPrefetched(uint64_t bytes) RS_REQUIRES(mutex_);  // lets go
  IoOp* SendAway(Chunk* chunk, Evicted* result, std::chrono::steady_clock::time_point now) RS_REQUIRES(mutex_);
  void CloseUnpinned(std::span<Chunk*> victims, std::span<bool> keep) RS_REQUIRES(mutex_);  // lets go
  bool IsClosing(const Chunk* chunk) const RS_REQUIRES(mutex_);
  bool AwaitClosing() RS_REQUIRES(mutex_);  // lets go
  Status EnsureSlot(Chunk* chunk, Evicted* result) RS_REQUIRES(mutex_);
  bool MovesUp(Chunk* chunk) RS_REQUIRES(mutex_);
  void DropFrame(Chunk* chunk, Event event) RS_REQUIRES(mutex_);
  void NoteUnchanged(const Chunk* chunk) RS_REQUIRES(mutex_);
  void FinishWrites(std::span<IoOp*> ops) RS_REQUIRES(mutex_);
  Status CheckWrites() RS_REQUIRES(mutex_);

  // advise.cc
  void Done(Chunk* chunk) RS_REQUIRES(mutex_);
  void NoteWillNeed(Chunk* chunk) RS_REQUIRES(mutex_);
  void NoteUse(Chunk* chunk) RS_REQUIRES(mutex_);
  size_t PassKept(std::span<Chunk*> victims, uint64_t* kept) RS_REQUIRES(mutex_);
  bool FetchWanted() RS_REQUIRES(mutex_);  // lets go
  bool FetchFirstOf(const Advised::Wanted& wanted, bool* fetched) RS_REQUIRES(mutex_);  // lets go
  bool BeginHinted(Chunk* chunk, uint32_t thread) RS_REQUIRES(mutex_);  // lets go

  // memory.cc
  // Threads that wait for memory are served in the order of their coming: what the oldest is owed, nobody else gets, so that
  // a large chunk cannot starve beside small ones.
  using Waiter = MemoryQueue::Waiter;
  class InQueue;
  struct FrameSeeker;
  Status TakeFrame(Chunk* chunk, WhenPinned when_pinned, Frame* frame, uint64_t* ask) RS_REQUIRES(mutex_);  // lets go
  Status SeekFrame(FrameSeeker* seeker, Frame* frame) RS_REQUIRES(mutex_);  // lets go
  void NotePinWait(PinClock::Time waited) RS_REQUIRES(mutex_);
  bool IsRefused(FrameSeeker* seeker, bool coming) RS_REQUIRES(mutex_);
  bool IsPatient(WhenPinned when_pinned, const Waiter& waiter) RS_REQUIRES(mutex_);
  uint64_t BatchBytes(uint64_t bytes) const RS_REQUIRES(mutex_);
  bool FramesAreComing() RS_REQUIRES(mutex_);
  Evicted EvictFor(uint64_t bytes) RS_REQUIRES(mutex_);  // lets go
  Status AwaitEvicted(FrameSeeker* seeker, const Evicted& evicted, bool* coming) RS_REQUIRES(mutex_);  // lets go
  Status AwaitPins(FrameSeeker* seeker, const Evicted& evicted, Frame* frame) RS_REQUIRES(mutex_);  // lets go
  void AwaitTransfer(Waiter* waiter) RS_REQUIRES(mutex_);  // lets go
  Status WatchPins(Waiter* waiter, PinWait* wait) RS_REQUIRES(mutex_);  // lets go
  Status WaitForPins(uint64_t bytes, PinWait* wait, CondVar* wake) RS_REQUIRES(mutex_);  // lets go
  bool TellWait(uint64_t bytes, PinWait* wait) RS_REQUIRES(mutex_);  // lets go
  Frame TryTakeFrame(uint64_t bytes) RS_REQUIRES(mutex_);
  void ServeWaiters() RS_REQUIRES(mutex_);
  void NoteNewOldest() RS_REQUIRES(mutex_);
  void Serve(Waiter* waiter, Reservation memory) RS_REQUIRES(mutex_);
  bool MayPass(const Waiter& waiter, const PinWait& wait) RS_REQUIRES(mutex_);
  void LetSleepersPass(const PinWait& wait) RS_REQUIRES(mutex_);
  bool MaySleep(const Waiter& waiter) RS_REQUIRES(mutex_);
  void WakeSlotless() RS_REQUIRES(mutex_);
  Status TooLarge(uint64_t bytes) const;

  // room.cc
  Status AskForRoom(uint64_t bytes, bool* may_wait) RS_REQUIRES(mutex_);  // lets go
  bool IsBorrowed() const;
  Status RoomByMover(uint64_t bytes, bool may_wait) RS_REQUIRES(mutex_);  // lets go
  bool MakeRoomForChildren() RS_REQUIRES(mutex_);  // lets go
  Status KeepRoom() RS_REQUIRES(mutex_);  // lets go
  Status TakeFrameAndRoom(Chunk* chunk, WhenPinned when_pinned, Frame* frame, bool* is_new) RS_REQUIRES(mutex_);  // lets go
  Status LeaveReadOnlySlot(Chunk* chunk) RS_REQUIRES(mutex_);  // lets go
  struct Admission;
  Status AdmitOrLook(Chunk* chunk, Admission* admission) RS_REQUIRES(mutex_);
  Status AskFor(Admission* admission, Status refusal) RS_REQUIRES(mutex_);  // lets go
  Status Admit(Chunk* chunk, uint64_t* ask) RS_REQUIRES(mutex_);
  Status TryKeepRoom(uint64_t coming, uint64_t leaving, const Room::Sizes& sizes, uint64_t* ask) RS_REQUIRES(mutex_);
  Status GiveSlots(uint64_t bytes, uint64_t* ask) RS_REQUIRES(mutex_);
  bool TablesMayTake(uint64_t more, Budget::SlotFor use) RS_REQUIRES(mutex_);
  bool TablesMayTakeRow(const Chunk* chunk, Budget::SlotFor use) RS_REQUIRES(mutex_);
  bool TablesFitBesideFrames() RS_REQUIRES(mutex_);
  void LookAtTables() RS_REQUIRES(mutex_);
  Result<SlotRef> AskSlot(const Chunk* chunk) RS_REQUIRES(mutex_);
  void GiveEmptySlot(Chunk* chunk, SlotRef slot) RS_REQUIRES(mutex_);
  void NoteTiers() RS_REQUIRES(mutex_);
  void RelieveNow(uint64_t bytes) RS_REQUIRES(mutex_);
  void LookForSizes() RS_REQUIRES(mutex_);
  bool HasRoomAfterAll(Status* why, uint64_t bytes, bool* may_wait) RS_REQUIRES(mutex_);  // lets go
  static Status NoRoomToKeep(Status why);
  bool NothingToKeep() const RS_REQUIRES(mutex_);

  // exchange.cc
  Status LeaveSlot(Chunk* chunk, VacateOptions options) RS_REQUIRES(mutex_);  // lets go
  bool MayGiveUpSlot(const Chunk* chunk, uint64_t leaving, uint64_t others) const RS_REQUIRES(mutex_);
  bool Exchange(Chunk* chunk) RS_REQUIRES(mutex_);
  bool ExchangeIn(uint64_t space, Chunk* chunk) RS_REQUIRES(mutex_);
  static uint64_t SpaceOf(SlotRef slot);
  void NoteResidentSlots() RS_REQUIRES(mutex_);
  void ReclaimResidentSlots(uint64_t bytes) RS_REQUIRES(mutex_);

  // fetch.cc
  using Time = std::chrono::steady_clock::time_point;
  Status AcquireLocked(Chunk* chunk, bool write, WhenPinned when_pinned, Time since) RS_REQUIRES(mutex_);  // lets go
  Status Await(Chunk* chunk, bool write, WhenPinned when_pinned, Time since) RS_REQUIRES(mutex_);  // lets go
  Status Load(Chunk* chunk, WhenPinned when_pinned, Time since, bool* told) RS_REQUIRES(mutex_);  // lets go
  std::string WhyLost(const Chunk* chunk) const RS_REQUIRES(mutex_);
  void TellLosses() RS_REQUIRES(mutex_);  // lets go
  void CountMiss(const Chunk* chunk, uint32_t thread) RS_REQUIRES(mutex_);
  void BeginLoad(IoOp* op, Chunk* chunk, Frame frame, bool prefetch) RS_REQUIRES(mutex_);
  bool IsWrong(const IoOp& op) const RS_REQUIRES(mutex_);
  void FinishRead(IoOp* op) RS_REQUIRES(mutex_);
  void Open(Chunk* chunk, bool write, bool told) RS_REQUIRES(mutex_);

  // transfers.cc
  void Submit(std::span<IoOp* const> ops, bool write) RS_REQUIRES(mutex_);  // lets go
  static size_t CopiedTogether(std::span<IoRequest* const> batch);
  void SubmitAndPoll(std::span<IoRequest* const> batch, bool write, bool poll) RS_REQUIRES(mutex_);  // lets go
  // Lets go. `watcher` watches for others until the tier has been asked, but not while what has come is dealt with, which may
  // submit reads again.
  bool PollOnce(std::chrono::microseconds wait, const Waiter* watcher = nullptr) RS_REQUIRES(mutex_);
  bool PollOrHear(std::chrono::microseconds wait, const Waiter* watcher = nullptr) RS_REQUIRES(mutex_);  // lets go
  size_t TakeCompletions(std::span<IoRequest*> done, std::chrono::microseconds wait, Time* ended) RS_EXCLUDES(mutex_);
  void FinishAndTell(std::span<IoRequest* const> done, Time ended) RS_REQUIRES(mutex_);  // lets go
  size_t SkipUnchanged(std::span<IoRequest*> batch, std::span<IoRequest*> skipped, bool hash_first) const RS_EXCLUDES(mutex_);
  void Finish(std::span<IoRequest* const> done, Time ended) RS_REQUIRES(mutex_);  // lets go
  Status WaitFor(IoOp* op, Time since) RS_REQUIRES(mutex_);  // lets go
  void SpinFor(IoOp* op) RS_REQUIRES(mutex_);  // lets go
  void SleepUntilDone(IoOp* op, std::chrono::microseconds most) RS_REQUIRES(mutex_);  // lets go
  void WakeSleepers(IoOp* op) RS_REQUIRES(mutex_);
  void BeginOp(IoOp* op, Chunk* chunk, bool write) RS_REQUIRES(mutex_);
  void Release(IoOp* op) RS_REQUIRES(mutex_);
  void CountWait(Time since, Time until) RS_REQUIRES(mutex_);

  // ahead.cc
  bool RefillReserve() RS_REQUIRES(mutex_);  // lets go
  bool ReadAhead(size_t most) RS_REQUIRES(mutex_);  // lets go
  void HelpAhead(uint64_t bytes) RS_REQUIRES(mutex_);  // lets go
  bool NoteRefill(const Evicted& evicted, Time begin) RS_REQUIRES(mutex_);

  // consult.cc
  CachePolicy::Turn Consult(CachePolicy::Ask ask, uint64_t bytes, size_t places) RS_REQUIRES(mutex_);  // lets go
  void ChargePolicy() RS_REQUIRES(mutex_);
  void FitPolicies(uint64_t bytes) RS_REQUIRES(mutex_);
  uint64_t PoliciesWith(uint64_t bytes) const RS_REQUIRES(mutex_);
  std::unique_ptr<CachePolicy> ReplacePolicyLocked(const MakePolicy& make_policy) RS_REQUIRES(mutex_);

  // What a call of the tier's answers, or `otherwise` where the heap had no more for it: then nothing has changed (swap_tier.h).
  template <typename F, typename T>
  T FromTier(const F& call, T otherwise) {
    try {
      return call();
    } catch (const std::bad_alloc&) {
      NoteHeapFailure();
      return otherwise;
    }
  }

  // engine.cc
  // All that a chunk owns goes through these four.
  void AttachFrame(Chunk* chunk, Frame frame) RS_REQUIRES(mutex_);
  Frame DetachFrame(Chunk* chunk) RS_REQUIRES(mutex_);
  void AttachSlot(Chunk* chunk, Slot slot) RS_REQUIRES(mutex_);
  Slot DetachSlot(Chunk* chunk) RS_REQUIRES(mutex_);
  void Forget(Chunk* chunk) RS_REQUIRES(mutex_);

  // vacate.cc
  Status BringHome(Chunk* chunk, VacateOptions options) RS_REQUIRES(mutex_);  // lets go
  bool ComesLater(const Chunk* chunk, VacateOptions options) const RS_REQUIRES(mutex_);
  void AwaitForgotten(const Chunk* chunk, VacateOptions options) RS_REQUIRES(mutex_);  // lets go
  Status BringHomeIfItLeaves(Chunk* chunk, VacateOptions options) RS_REQUIRES(mutex_);  // lets go
  bool LetOthersIn(uint32_t* looks_left, const Vacating::Part* part = nullptr) RS_REQUIRES(mutex_);  // lets go
  uint64_t BytesAtHome(const Vacating::Leaving& leaving) const RS_REQUIRES(mutex_);
  Status TooMuchAtHome(uint64_t bytes, const Status& why) const;
  Status NoHome(Status why) const RS_REQUIRES(mutex_);

  // limits.cc
  Status TakeMetadata(uint64_t bytes) RS_REQUIRES(mutex_);  // lets go
  Status LeaveToMetadata() RS_REQUIRES(mutex_);  // lets go
  Status HoldLimit() RS_REQUIRES(mutex_);  // lets go
  bool MetadataMayGrow(bool of_tiers) RS_REQUIRES(mutex_);
  void FitPolicyToChunks(uint64_t bytes) RS_REQUIRES(mutex_);
  bool PolicyMakesWay(const Status& refusal) RS_REQUIRES(mutex_);
  Status NoRoomForDescriptors(StatusCode code = StatusCode::kFailedPrecondition) const;
  void TellLimits() RS_REQUIRES(mutex_);

  const Options options_;
  SwapTier* const tier_;
  PinScanner* const pins_;
  Budget budget_;
  std::atomic<uint64_t> heap_failures_{0};  // a count, which publishes nothing
  mutable std::atomic<uint64_t> pin_refusals_{0};  // likewise; FullOfPinsStatus has no mutex
  // Switches; nothing is published with them, so relaxed order is enough.
  std::atomic<bool> load_ahead_, write_ahead_, wait_for_pins_{true};

  mutable Mutex mutex_{LockRank::kEngine};
  ChunkTable chunks_ RS_GUARDED_BY(mutex_);
  Arena arena_ RS_GUARDED_BY(mutex_);
  std::unique_ptr<CachePolicy> policy_ RS_GUARDED_BY(mutex_);
  PolicyFeed feed_ RS_GUARDED_BY(mutex_);
  OpPool ops_ RS_GUARDED_BY(mutex_);
  EngineCounters counters_ RS_GUARDED_BY(mutex_);
  MissOrder miss_order_ RS_GUARDED_BY(mutex_);
  // Which part of the latest writes over older bytes changed nothing.
  static constexpr int32_t kAllUnchanged = 1 << 16;
  int32_t unchanged_share_ RS_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, uint64_t> unchanged_by_size_ RS_GUARDED_BY(mutex_);  // bytes of a chunk, writes
  std::map<uint32_t, WriteSite> write_sites_ RS_GUARDED_BY(mutex_);     // by id; debug mode
  std::map<WriteSite, uint64_t> unchanged_by_site_ RS_GUARDED_BY(mutex_);
  uint64_t in_flight_ RS_GUARDED_BY(mutex_) = 0;       // transfers
  std::span<Chunk* const> closing_ RS_GUARDED_BY(mutex_);  // victims whose pins a thread looks for; on its stack
  std::atomic<uint32_t> closings_ended_{0};  // written under mutex_; who waits for the next one looks without it
  WritesUnderWay leaving_ RS_GUARDED_BY(mutex_);       // by bytes of frames
  CachePolicy* reserved_policy_ RS_GUARDED_BY(mutex_) = nullptr;
  uint64_t policies_fit_ RS_GUARDED_BY(mutex_) = 0;  // the limit that they were told last
  uint64_t policy_bytes_ RS_GUARDED_BY(mutex_) = 0;  // charged, beside those for each chunk
  bool policy_made_way_ RS_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> live_bytes_{0};  // of all chunks, rounded to frames; written under mutex_
  Room room_ RS_GUARDED_BY(mutex_);
  const pid_t process_ = getpid();
  RoomForChildren room_for_children_ RS_GUARDED_BY(mutex_);
  uint64_t table_growth_ RS_GUARDED_BY(mutex_) = 0;    // of swap, at most, since the budget was told what they take
  // How long nobody searches who is not waited for, in times of what a search in vain took: a twentieth of the mutex's time goes to it.
  static constexpr int kRestAfterSearch = 20;
  std::chrono::steady_clock::time_point relieve_again_ RS_GUARDED_BY(mutex_){};  // RelieveNow, after a search in vain
  ResidentSlots resident_slots_ RS_GUARDED_BY(mutex_);
  uint32_t next_noted_ RS_GUARDED_BY(mutex_) = 0;      // where NoteResidentSlots goes on
  uint64_t typical_bytes_ RS_GUARDED_BY(mutex_) = 0;   // of the last frame asked for
  Advised advised_ RS_GUARDED_BY(mutex_);
  LossLog losses_ RS_GUARDED_BY(mutex_);
  FailedWrites failed_writes_ RS_GUARDED_BY(mutex_);
  MemoryQueue queue_ RS_GUARDED_BY(mutex_);            // of threads that wait for memory
  PinClock pin_clock_ RS_GUARDED_BY(mutex_);
  uint64_t takes_ RS_GUARDED_BY(mutex_) = 0;           // frames taken, ever
  uint32_t passes_ RS_GUARDED_BY(mutex_) = 0;          // of those, past the thread that is the oldest now
  PinClock::Time oldest_since_ RS_GUARDED_BY(mutex_){};  // it has been that
  bool telling_wait_ RS_GUARDED_BY(mutex_) = false;    // a thread writes that it waits for long
  Vacating vacating_ RS_GUARDED_BY(mutex_);
  bool polling_ RS_GUARDED_BY(mutex_) = false;         // a thread waits inside the tier's Poll
  const uint32_t spinners_max_;                        // threads that spin at once: half of the cores are for who copies, and for servers
  uint32_t spinning_ RS_GUARDED_BY(mutex_) = 0;
  Sleeper* sleepers_ RS_GUARDED_BY(mutex_) = nullptr;  // who sleeps meanwhile, for transfers of their own
  MoverBell mover_bell_ RS_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point last_upkeep_ RS_GUARDED_BY(mutex_){}, idle_since_ RS_GUARDED_BY(mutex_){};
  uint64_t idle_to_go_ RS_GUARDED_BY(mutex_) = 0;  // what is still to be given back of what was found idle
  uint64_t failures_seen_ RS_GUARDED_BY(mutex_) = 0;  // of writes, when the reserve was refilled last
  std::chrono::steady_clock::time_point refill_again_ RS_GUARDED_BY(mutex_){};  // the mover's reserve, after a search in vain
};

}  // namespace ramspan
