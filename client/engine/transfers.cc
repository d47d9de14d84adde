// Transfers between frames and swap: begun, polled for by whoever waits, ended. What an end means for a chunk, fetch.cc and
// evict.cc say.
#include <algorithm>
#include <atomic>
#include <bit>
#include <thread>
#include <utility>

#include "client/engine/engine.h"
#include "common/checksum.h"

namespace ramspan {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

namespace {
constexpr uint32_t kRereadsMax = 1;  // a byte that is wrong twice is wrong where it is kept
constexpr auto kSpinBeforeBlocking = microseconds(60);  // a blocking wake-up costs 70 to 280 us on a 2-core machine
constexpr auto kPollFor = microseconds(200);
constexpr uint64_t kCopiedAtOnce = 256 << 10;  // some 40 us; far less is felt as locks, far more by who waits
constexpr auto kNapWithoutHeap = microseconds(100);  // others may give some back
}  // namespace

// A thread that waits for a transfer while another one polls for all, on its stack. It is woken when its transfer has
// ended, or to poll itself, because that one has what it waited for. In two lists: its transfer's and the engine's.
struct Sleeper {
  CondVar wake;
  Sleeper* next_of_op = nullptr;
  Sleeper *before = nullptr, *next = nullptr;
};

void Engine::Drain() {
  MutexLock lock(mutex_);
  while (in_flight_ > 0) PollOnce(microseconds(1000));
}

bool Engine::HasTransfers() {
  MutexLock lock(mutex_);
  if (in_flight_ > 0) PollOnce(microseconds(0));
  return in_flight_ > 0;
}

void Engine::BeginOp(IoOp* op, Chunk* chunk, bool write) {
  op->chunk = chunk;
  op->io.slot = chunk->slot;
  op->io.buffer = chunk->frame;
  op->io.bytes = chunk->bytes;
  op->io.cookie = op;
  op->io.is_write = write;
  op->round = failed_writes_.round();
  chunk->op = op;
  ++in_flight_;
}

void Engine::Release(IoOp* op) {
  if (op->done && op->waiters == 0) ops_.Put(op);
}

void Engine::Submit(std::span<IoOp* const> ops, bool write) {
  if (ops.empty()) return;
  RS_CHECK(ops.size() <= kBatch, "%zu transfers at once", ops.size());
  IoRequest* requests[kBatch];
  for (size_t i = 0; i < ops.size(); ++i) requests[i] = &ops[i]->io;
  const std::span batch(requests, ops.size());
  const bool copies = tier_->CapabilitiesOf(batch[0]->slot).synchronous;
  for (size_t begun = 0, n; begun < batch.size(); begun += n) {
    n = copies ? CopiedTogether(batch.subspan(begun)) : batch.size();
    SubmitAndPoll(batch.subspan(begun, n), write, copies);
  }
}

// How many of the batch are submitted at once where that copies them: who waits for one of them, or for the memory that one leaves, goes on before
// all others have been copied, too.
size_t Engine::CopiedTogether(std::span<IoRequest* const> batch) {
  size_t n = 1;
  for (uint64_t bytes = batch[0]->bytes; n < batch.size() && bytes + batch[n]->bytes <= kCopiedAtOnce; ++n) bytes += batch[n]->bytes;
  return n;
}

// What has ended with its submission, as with all that is copied, is taken in the same breath: each time that the mutex is let go another thread may
// have it for long, and the mover would have to wake up for it.
void Engine::SubmitAndPoll(std::span<IoRequest* const> batch, bool write, bool poll) {
  IoRequest* done[kBatch];
  size_t n = 0;
  Time ended;
  const bool hash_first = unchanged_share_ > kAllUnchanged / 2;
  {
    MutexUnlock unlocked(mutex_);
    if (write) {
      IoRequest* left[kBatch];
      std::copy(batch.begin(), batch.end(), left);
      n = SkipUnchanged(std::span(left, batch.size()), done, hash_first);
      if (n < batch.size()) tier_->SubmitWrite(std::span(left, batch.size() - n));
      if (n > 0) ended = Clock::now();
    } else {
      tier_->SubmitRead(batch);
    }
    if (poll && n < kBatch) n += TakeCompletions(std::span(done).subspan(n), microseconds(0), &ended);
  }
  FinishAndTell(std::span(done, n), ended);
}

// Checksums of what the tier takes none of, and `skipped` gets what its slot holds already: where `const` was forgotten, or a loop has written what was
// there. Returns how many; the others are in front in `batch`. A tier that copies takes the checksum with the copy, at less cost than before it, so
// there it is looked for only where the most of what was written lately was unchanged (`hash_first`). Equal are those of equal length whose 64 bits of
// XXH3 are: of 2^64 chunks that have changed one is taken for unchanged.
size_t Engine::SkipUnchanged(std::span<IoRequest*> batch, std::span<IoRequest*> skipped, bool hash_first) const {
  size_t n = 0, left = 0;
  for (IoRequest* io : batch) {
    auto* op = static_cast<IoOp*>(io->cookie);
    // The frame is constant while it is written (I3), so the checksum can be taken before or during the copy.
    const bool hash = options_.checksum && (!tier_->CapabilitiesOf(io->slot).checksums || (hash_first && op->in_slot != 0));
    if (hash) io->checksum = Checksum(io->buffer, io->bytes);
    op->skipped = hash && op->in_slot != 0 && io->checksum == op->in_slot;
    if (op->skipped) {
      io->result = StatusCode::kOk;
      io->bytes_done = io->bytes;
      skipped[n++] = io;
    } else {
      batch[left++] = io;
    }
  }
  return n;
}

bool Engine::PollOnce(microseconds wait, const Waiter* watcher) {
  IoRequest* done[kBatch];
  size_t n;
  Time ended;
  {
    MutexUnlock unlocked(mutex_);
    n = TakeCompletions(done, wait, &ended);
  }
  if (watcher != nullptr) queue_.EndWatch(watcher);
  FinishAndTell(std::span(done, n), ended);
  return n > 0;
}

// True: it has waited so long for the tier, or something has ended. False: the tier has nothing to wait for, because another thread is just copying what
// is under way, or has taken the completion. To ask it again at once would be to spin.
bool Engine::PollOrHear(microseconds wait, const Waiter* watcher) {
  const auto begin = Clock::now();
  return PollOnce(wait, watcher) || Clock::now() - begin >= wait / 2;
}

size_t Engine::TakeCompletions(std::span<IoRequest*> done, microseconds wait, Time* ended) {
  const size_t n = FromTier([&] { return tier_->Poll(done, wait); }, SIZE_MAX);
  if (n == SIZE_MAX) {  // callers ask again at once
    std::this_thread::sleep_for(kNapWithoutHeap);
    return 0;
  }
  for (IoRequest* io : done.first(n)) {
    if (io->is_write || !options_.checksum || io->result != StatusCode::kOk) continue;
    const SwapTier::Capabilities tier = tier_->CapabilitiesOf(io->slot);
    if (!tier.checksums && !tier.read_only) io->checksum = Checksum(io->buffer, io->bytes);
  }
  if (n > 0) *ended = Clock::now();
  return n;
}

void Engine::FinishAndTell(std::span<IoRequest* const> done, Time ended) {
  Finish(done, ended);
  if (losses_.HasNews()) WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return TellLosses(), true; }, false);
}

void Engine::Finish(std::span<IoRequest* const> done, Time ended) {
  if (done.empty()) return;
  IoOp* writes[kBatch];
  IoOp* again[kBatch];
  size_t n = 0, m = 0;
  in_flight_ -= done.size();
  for (IoRequest* io : done) {
    auto* op = static_cast<IoOp*>(io->cookie);
    if (!io->is_write && IsWrong(*op) && op->rereads < kRereadsMax) {  // what is in swap may still be right
      ++op->rereads;
      ++counters_.rereads;
      ++in_flight_;
      again[m++] = op;
      continue;
    }
    op->chunk->op = nullptr;
    std::atomic_ref(op->done).store(true, std::memory_order_release);  // SpinFor
    op->ended = ended;
    if (io->result == StatusCode::kFailedPrecondition) NoteHeapFailure();
    WakeSleepers(op);
    if (io->is_write) {
      const uint64_t bytes = RoundUpToGranule(io->bytes);
      op->skipped ? leaving_.TakeBack(bytes, op->spell) : leaving_.End(bytes, op->spell, ended);
      writes[n++] = op;
    } else {
      queue_.WakeFor(op->chunk);
      FinishRead(op);
      Release(op);
    }
  }
  FinishWrites(std::span(writes, n));
  ServeWaiters();
  Submit(std::span(again, m), false);
}

void Engine::SleepUntilDone(IoOp* op, microseconds most) {
  Sleeper self;
  self.next_of_op = std::exchange(op->sleepers, &self);
  self.next = std::exchange(sleepers_, &self);
  if (self.next != nullptr) self.next->before = &self;
  self.wake.WaitFor(mutex_, most);
  Sleeper** at = &op->sleepers;
  while (*at != &self) at = &(*at)->next_of_op;
  *at = self.next_of_op;
  (self.before == nullptr ? sleepers_ : self.before->next) = self.next;
  if (self.next != nullptr) self.next->before = self.before;
}

void Engine::WakeSleepers(IoOp* op) {
  for (Sleeper* sleeper = op->sleepers; sleeper != nullptr; sleeper = sleeper->next_of_op) sleeper->wake.NotifyAll();
}

// Looks for the transfer's end for a while. Without the mutex for as long as nothing ends: what a look costs, tens of times in a miss, must not be
// felt by other threads. The acquiring load pairs with Finish's store, and is only a reason to take the mutex, under which all else of it is read.
void Engine::SpinFor(IoOp* op) {
  if (op->done || spinning_ >= spinners_max_) return;
  ++spinning_;
  const auto spin_until = Clock::now() + kSpinBeforeBlocking;
  for (bool late = false; !op->done && !late;) {
    IoRequest* done[kBatch];
    size_t n;
    Time ended;
    {
      MutexUnlock unlocked(mutex_);
      while ((n = TakeCompletions(done, microseconds(0), &ended)) == 0 && !std::atomic_ref(op->done).load(std::memory_order_acquire) && !late) {
        for (int i = 0; i < 64; ++i) __builtin_ia32_pause();
        late = Clock::now() >= spin_until;
      }
    }
    FinishAndTell(std::span(done, n), ended);
  }
  --spinning_;
}

// Spins, polls and then sleeps until the transfer has ended. The program has waited since `since`: for the frame and
// the submission, which is all there is to wait for where a tier copies while it submits.
Status Engine::WaitFor(IoOp* op, Clock::time_point since) {
  ++op->waiters;
  const bool at_once = op->done;
  SpinFor(op);
  while (!op->done) {
    if (polling_) {
      SleepUntilDone(op, options_.sleep_max);
    } else {
      polling_ = true;
      if (!PollOrHear(kPollFor) && !op->done) SleepUntilDone(op, kPollFor);
      polling_ = false;
    }
  }
  if (!polling_ && sleepers_ != nullptr) sleepers_->wake.NotifyAll();  // the next one polls
  CountWait(since, at_once ? op->ended : Clock::now());
  --op->waiters;
  Status status = op->waiters == 0 ? std::move(op->status) : WithinHeap([&] { return op->status; }, OutOfHeap());
  Release(op);
  return status;
}

void Engine::CountWait(Time since, Time until) {
  const auto ns = static_cast<uint64_t>(std::chrono::nanoseconds(until - since).count());
  ++counters_.waits;
  counters_.wait_ns_total += ns;
  const size_t bucket = static_cast<size_t>(std::bit_width(ns / 1000));
  ++counters_.wait_us_histogram[std::min(bucket, counters_.wait_us_histogram.size() - 1)];
}

}  // namespace ramspan
