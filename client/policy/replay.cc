#include "client/policy/replay.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ramspan {

static_assert(kNoThread + 1 == 0);

// While it lives the queue's order changes because of one chunk: used, freed, expected anew. A search for victims that is under way goes on: among the
// young ones and those set aside where it was, for only that chunk has left its place there, or come to their end; through the others from the
// beginning, for time may have moved any of them.
class ReplayPolicy::OrderChange {
 public:
  OrderChange(ReplayPolicy* policy, uint32_t chunk) : policy_(*policy) {
    const auto kept = [&](const Place& place) { return Place{place.at == chunk ? policy_.queue_.Before(chunk) : place.at}; };
    policy_.places_ = {.young = kept(policy_.places_.young), .aside = kept(policy_.places_.aside)};
  }
  ~OrderChange() {
    Place& young = policy_.places_.young;  // the oldest may not be young any more
    if (young.at != NextUseQueue::kNobody && !policy_.queue_.IsYoung(young.at)) young = {};
  }
  OrderChange(const OrderChange&) = delete;
  OrderChange& operator=(const OrderChange&) = delete;

 private:
  ReplayPolicy& policy_;
};

namespace {
// A program that iterates goes through its chunks several times in each iteration, and foresees nothing unless it remembers one of those whole: small chunks are
// many. (A finite-volume code, 64 KiB a chunk, limit 25, 50, 75 % of its data: 1.54, 2.42, 6.84 times what MIN reads with 3 uses remembered for each
// chunk at 25 %, 1.17, 1.23, 1.78 with 24.) What is remembered takes memory from chunks, where there are few for no use.
constexpr uint64_t kUsesAChunk = 32;
constexpr uint64_t kPartOfLimit = 256, kPartForChunks = 32;
// 80 MiB, and for a million chunks 640: what is copied when it grows is so with the engine's mutex.
constexpr uint64_t kUsualMost = 1 << 22, kMost = 1 << 25;
constexpr uint64_t kLeastForChunks = uint64_t{4} << 20;  // of a lower limit all but a few chunks may be in use at once

// `wanted` for chunks.
uint32_t UsesToRemember(uint64_t memory_bytes, uint64_t wanted) {
  const uint64_t usual = memory_bytes / kPartOfLimit / UseHistory::kBytesAUse, most = memory_bytes < kLeastForChunks ? 0 : memory_bytes / kPartForChunks / UseHistory::kBytesAUse;
  return std::bit_floor(static_cast<uint32_t>(std::clamp<uint64_t>(std::max(std::min(usual, kUsualMost), std::min(most, wanted)), 256, kMost)));
}

uint64_t FixedBytes(uint64_t uses) { return uses * UseHistory::kBytesAUse + sizeof(ReplayPolicy); }
}  // namespace

ReplayPolicy::ReplayPolicy(const ChunkTable* chunks) : chunks_(chunks), history_(UsesToRemember(chunks->budget().limit(), 0)), queue_(chunks), fitted_limit_(chunks->budget().limit()) {
  queue_.SetYoung(young_);
  ahead_.reserve(kMaxAhead);
  picked_.reserve(kMaxAhead);
}

CachePolicy::Memory ReplayPolicy::memory() const {
  return {.fixed = FixedBytes(history_.uses()), .per_chunk = UseHistory::kBytesAChunk + NextUseQueue::kBytesAChunk + sizeof(search_)};
}

void ReplayPolicy::FitLimit(uint64_t memory_bytes) noexcept {
  fitted_limit_ = memory_bytes;
  history_.Resize(UsesToRemember(memory_bytes, uses_for_chunks_));
}

uint64_t ReplayPolicy::FixedWith(uint64_t memory_bytes) const { return FixedBytes(UsesToRemember(memory_bytes, uses_for_chunks_)); }

void ReplayPolicy::FitChunks(uint32_t ids) noexcept {
  uses_for_chunks_ = ids == 0 ? 0 : std::max(uses_for_chunks_, kUsesAChunk * ids);
  history_.Resize(UsesToRemember(fitted_limit_, uses_for_chunks_));
  SettleLimit();
}

uint64_t ReplayPolicy::FixedBeside(uint32_t ids) const { return FixedBytes(UsesToRemember(fitted_limit_, std::max(uses_for_chunks_, kUsesAChunk * ids))); }

void ReplayPolicy::Reserve(uint32_t ids) {
  history_.Reserve(ids);
  queue_.Reserve(ids);
  named_.Reserve(ids);
}

void ReplayPolicy::OnCreate(Chunk* chunk) {
  chunk->prev = chunk->next = chunk->id;  // nowhere: the policy before has left its own there
  // Where this policy takes over: also one that is on its way in or out, of which nobody says that it has come.
  const Phase phase = PhaseOf(chunk);
  if (phase != Phase::kSwapped && phase != Phase::kLost) queue_.Expect(chunk->id, 0);
}

void ReplayPolicy::OnFree(Chunk* chunk) {
  const OrderChange change(this, chunk->id);
  history_.Forget(chunk->id);
  queue_.Remove(chunk->id);
}

// Whether it came in time, for how far the times are to be trusted.
void ReplayPolicy::Judge(uint32_t chunk) {
  if (history_.last(chunk) == 0 || !queue_.Has(chunk)) return;
  for (uint32_t i = 0; i < kSlacks; ++i) {
    const bool in_time = queue_.IsInTime(chunk, NextUseQueue::kSlackLeast - i);
    in_time_[i] += in_time ? (kOne - in_time_[i]) / 256 : 0;
    in_time_[i] -= in_time ? 0 : in_time_[i] / 256;
  }
  uint32_t i = 0;
  while (i + 1 < kSlacks && in_time_[i] < kOne / 20 * 19) ++i;
  queue_.SetSlack(NextUseQueue::kSlackLeast - i);
  trust_ = in_time_[i];
}

void ReplayPolicy::HearOfThread(uint32_t place) {
  static_assert(UseHistory::kThreads <= 64);
  threads_end_ = std::max(threads_end_, place + 1);
  if (history_.now() % kThreadsLately == 0) threads_before_ = std::exchange(threads_now_, 0);
  threads_now_ |= uint64_t{1} << place;
}

void ReplayPolicy::Use(Chunk* chunk, uint32_t by) {
  const uint32_t thread = by + 1;  // those of whom nobody knows are one thread: 0
  const uint32_t id = chunk->id;
  Judge(id);
  arrivals_ -= arrivals_ / 256;
  const OrderChange change(this, id);
  const uint32_t interval = history_.Use(id, thread, queue_.IsInTime(id, NextUseQueue::kSlackMost));
  queue_.Advance(history_.now());
  queue_.Use(id, interval);
  HearOfThread(thread % UseHistory::kThreads);
  Stepper& stepper = StepperOf(thread);
  const auto step = static_cast<int32_t>(id - stepper.last);
  stepper.run = step == stepper.step && step != 0 ? stepper.run + 1 : 0;
  if (step == 1 && Has(chunk, kAdvisedSequential)) stepper.run = std::max(stepper.run, kFollowAfter);
  stepper.step = step;
  stepper.last = id;
  latest_id_ = id;
  // What is advised as random is not fetched ahead, and to wake the mover for nothing takes the program ten misses' time.
  all_ahead_ = all_ahead_ && (Has(chunk, kAdvisedRandom) || !Follows(thread));
  ++quiet_uses_;
  if (swapped_bytes_ > 0 && !IsQuiet()) HearAgain(id);
}

// Of the chunk that was used some uses before `id`. Being heard of costs a pin ten times its time, so a long phase in which nothing has to come is
// not heard to its end; the history keeps what was before it, too. With a bound of as many uses as there are chunks the graph's trace moves
// twice as much (policy_simulator_test.cc).
void ReplayPolicy::HearAgain(uint32_t id) {
  const uint32_t before = std::exchange(latest_[latest_at_], id);
  latest_at_ = (latest_at_ + 1) % kHeardAfter;
  if (before != id && before < chunks_->ids()) ClearBits(At(before), kReferenced);
}

void ReplayPolicy::Arrive(Chunk* chunk) {
  wants_epoch_ |= IsQuiet();
  quiet_uses_ = 0;
  arrivals_ += kOne / 256;
  arrived_bytes_ = static_cast<uint32_t>(std::min<uint64_t>(chunk->bytes, UINT32_MAX));
}

// What leaves before it has to comes again, at most: a small part of what does not fit is the same part of what is moved in a sweep over all data,
// however little that is. And of those that leave early, only few may be back before others would have had to leave for who arrives.
uint64_t ReplayPolicy::SpareBytes() const {
  const uint64_t arrivals = static_cast<uint64_t>(away_) * arrivals_ / kOne;  // until the first of them is back
  return std::min(swapped_bytes_ / kSparePart, (arrivals / kSparePart + 1) * arrived_bytes_);
}

// Where expectations are wrong, the order of the latest uses is the better one: as much of memory goes by it as has proved right (as ARC, the
// Adaptive Replacement Cache, divides its memory; Megiddo, Modha, FAST 2003). What comes back long before it was expected, and would still be in
// memory if the latest used ones had been kept, speaks for that order; what has left in the place of one of those speaks against it.
void ReplayPolicy::Weigh(uint32_t id) {
  if (history_.last(id) == 0) return;
  const auto most = static_cast<uint32_t>(std::clamp<uint64_t>(chunks_->budget().limit() / std::max(arrived_bytes_, 1u), YoungLeast(), 1 << 30));
  const uint32_t step = most / 128 + 1, age = queue_.Age(id);
  if (age < queue_.Interval(id) / 2 && age < most) {
    young_ = std::min(young_ + step, most);
  } else if (queue_.mark(id)) {
    young_ -= std::min(young_, step);
  }
  young_ = std::max(young_, YoungLeast());
  queue_.SetYoung(young_);
}

void ReplayPolicy::OnMiss(Chunk* chunk, uint32_t thread) {
  Weigh(chunk->id);
  Arrive(chunk);
  Use(chunk, thread);
  const bool follows = Follows(thread + 1);
  SetWindow(follows ? window_bytes_ : window_bytes_ / 2);
  Earn(follows ? 1 : 0);
}

void ReplayPolicy::OnPrefetchHit(Chunk* chunk) {
  const uint32_t thread = LeaveWindow(chunk);
  Arrive(chunk);
  SetWindow(window_bytes_ + std::max(chunk->bytes, window_bytes_ / 4));
  Earn(1);
  Use(chunk, thread - 1);
}

void ReplayPolicy::OnPrefetchWasted(Chunk* chunk) {
  LeaveWindow(chunk);
  SetWindow(window_bytes_ / 2);
  Earn(-kWasteCosts);
}

// Chunks that came in vain are at most one of so many: each has to be earned by others that were foreseen, whether they were there in time or not.
void ReplayPolicy::Earn(int32_t credit) { credit_ = std::clamp(credit_ + credit, -kCreditMost, kCreditMost); }

// Two chunks are always worth a try, where they are not much of memory: one that is on its way and one that is looked at.
void ReplayPolicy::SetWindow(uint64_t bytes) {
  const uint64_t least = std::min<uint64_t>(uint64_t{2} * arrived_bytes_, memory_bytes_ / 8);
  const uint64_t most = std::max(least, std::min(memory_bytes_ / kWindowPart, swapped_bytes_ / kSwappedPart));
  window_bytes_ = std::clamp(bytes, least, most);
}

void ReplayPolicy::OnPrefetchIssued(Chunk* chunk) {
  preemptive_bytes_ += chunk->bytes;
  const auto picked = std::find_if(picked_.begin(), picked_.end(), [&](const Ahead& one) { return one.chunk == chunk->id; });
  const Ahead ahead = picked == picked_.end() ? Ahead{chunk->id, 0, static_cast<uint32_t>(kMaxAhead)} : *picked;
  ahead_.push_back(ahead);
  const OrderChange change(this, chunk->id);
  queue_.Expect(chunk->id, kHeardAfter + 2 * ahead.steps * Threads());
}

// Whose sequence it was fetched for.
uint32_t ReplayPolicy::LeaveWindow(Chunk* chunk) {
  preemptive_bytes_ -= std::min<uint64_t>(preemptive_bytes_, chunk->bytes);
  const auto at = std::find_if(ahead_.begin(), ahead_.end(), [&](const Ahead& one) { return one.chunk == chunk->id; });
  if (at == ahead_.end()) return 0;
  const uint32_t thread = at->thread;
  ahead_.erase(at);
  return thread;
}

void ReplayPolicy::SetLimits(uint64_t memory_bytes, uint64_t swapped_bytes) {
  memory_bytes_ = memory_bytes;
  if (swapped_bytes_ == 0 && swapped_bytes > 0) wants_epoch_ = true;  // nothing was heard of what is in memory
  swapped_bytes_ = swapped_bytes;
  SetWindow(window_bytes_);
}

// The next one of a list that may leave, without passing it. Who has been named already and is met again, because the order has changed
// since, could not leave, and is set aside: each change would bring the search back to all of those.
Chunk* ReplayPolicy::Peek(Place* place, Walk next) {
  while (!place->ended) {
    const uint32_t id = (queue_.*next)(place->at);
    if (id == NextUseQueue::kNobody) {
      place->ended = true;
      break;
    }
    const Phase phase = PhaseOf(At(id));
    if (phase == Phase::kResident && named_[id] != search_) return At(id);
    if (phase == Phase::kSwapped || phase == Phase::kLost || phase == Phase::kFreed) {
      queue_.Remove(id);  // it has left
    } else if (phase == Phase::kResident && place != &places_.young && place != &places_.aside) {
      queue_.SetAside(id);
    } else {
      place->at = id;
    }
  }
  return nullptr;
}

Chunk* ReplayPolicy::NextVictim() {
  const auto pass = [](Place* place, Chunk* chunk) {
    place->at = chunk->id;
    return chunk;
  };
  Chunk* const overdue = Peek(&places_.overdue, &NextUseQueue::NextOverdue);
  if (overdue != nullptr && trust_ > kTrusted) return pass(&places_.overdue, overdue);
  if (Chunk* const unknown = Peek(&places_.unknown, &NextUseQueue::NextUnknown)) return pass(&places_.unknown, unknown);
  Chunk* const farthest = Peek(&places_.farthest, &NextUseQueue::NextFarthest);
  if (overdue != nullptr && (farthest == nullptr || queue_.Age(overdue->id) > queue_.Distance(farthest->id))) return pass(&places_.overdue, overdue);
  if (farthest != nullptr) return pass(&places_.farthest, farthest);
  if (Chunk* const young = Peek(&places_.young, &NextUseQueue::NextYoung)) return pass(&places_.young, young);
  Chunk* const aside = Peek(&places_.aside, &NextUseQueue::NextAside);
  return aside == nullptr ? nullptr : pass(&places_.aside, aside);
}

// Uses that are heard in the middle of a search change the order, and it is gone through from the beginning: those that it has named already are pinned.
void ReplayPolicy::BeginSearch() {
  if (++search_ == 0) ++search_;  // 0 is of those that were never named
  places_ = {};
}

void ReplayPolicy::OnPinned(Chunk* chunk) {
  const auto again = std::span(again_).first(again_count_);
  again_pinned_ |= std::find(again.begin(), again.end(), chunk->id) != again.end();
  if (queue_.IsYoung(chunk->id)) return;  // used since it was named, or there was nobody else
  // Only a search that stands at it has lost its place: there may be as many of them as a search looks at, and each time all would be passed again.
  for (Place* place : {&places_.overdue, &places_.unknown, &places_.farthest, &places_.young, &places_.aside}) {
    if (place->at == chunk->id) *place = {queue_.Before(chunk->id)};
  }
  queue_.SetAside(chunk->id);
}

// As what came last and was never seen before: nothing but what is overdue leaves before that.
void ReplayPolicy::OnDone(Chunk* chunk) {
  const OrderChange change(this, chunk->id);
  queue_.Expect(chunk->id, 0);
}

// Of those that were set aside. One is probably pinned still, and whoever looks for room should not find nothing but that. But where more is looked
// for it counts: what leaves beyond that leaves too early. Those behind one that was free are probably free, and count.
void ReplayPolicy::NameAgain(uint64_t bytes, std::span<Chunk*> out, size_t* n, uint64_t* sum) {
  if (again_count_ > 0) again_most_ = again_pinned_ ? 1 : std::min(2 * again_most_, kAgainMost);
  again_count_ = 0;
  again_pinned_ = false;
  while (again_count_ < again_most_ && *n + 1 < out.size() && *sum < bytes) {
    Chunk* const chunk = Peek(&places_.aside, &NextUseQueue::NextAside);
    if (chunk == nullptr) return;
    again_[again_count_++] = places_.aside.at = chunk->id;
    named_[chunk->id] = search_;
    out[(*n)++] = chunk;
    if (chunk->bytes < bytes || again_most_ > 1) *sum += chunk->bytes;
  }
}

size_t ReplayPolicy::PickVictims(uint64_t bytes, std::span<Chunk*> out) {
  uint64_t sum = 0;
  size_t n = 0;
  NameAgain(bytes, out, &n, &sum);
  while (n < out.size() && sum < bytes) {
    Chunk* const chunk = NextVictim();
    if (chunk == nullptr) break;
    named_[chunk->id] = search_;
    out[n++] = chunk;
    sum += chunk->bytes;
    const bool is_farthest = chunk->id == places_.farthest.at;
    queue_.SetMark(chunk->id, (is_farthest || chunk->id == places_.young.at) && queue_.IsYoungFarther(chunk->id));
    const int64_t away = is_farthest ? queue_.Distance(chunk->id) : kAwayMost;
    away_ += (std::min(away, kAwayMost) - away_) / 16;
  }
  return n;
}

bool ReplayPolicy::Follows(uint32_t thread) const {
  return history_.run(thread) >= kFollowAfter || StepperOf(thread).run >= kFollowAfter;
}

bool ReplayPolicy::WantsReadAhead() const {
  if (all_ahead_ || credit_ < 0 || preemptive_bytes_ > window_bytes_ - window_bytes_ / 4 || ahead_.size() > kMaxAhead - kMaxAhead / 4) return false;
  for (uint32_t thread = 0; thread < threads_end_; ++thread) {
    if (Follows(thread)) return true;
  }
  return false;
}

// False: there is no room for more.
bool ReplayPolicy::Take(uint32_t id, std::span<Chunk*> out, size_t* n, uint64_t* bytes) const {
  Chunk* const chunk = At(id);
  if (!MayReadAhead(chunk) || std::find(out.begin(), out.begin() + static_cast<ptrdiff_t>(*n), chunk) != out.begin() + static_cast<ptrdiff_t>(*n)) return true;
  if (*bytes + chunk->bytes > window_bytes_ || *n == out.size() || ahead_.size() + *n >= kMaxAhead) return false;
  *bytes += chunk->bytes;
  out[(*n)++] = chunk;
  return *n < out.size();
}

size_t ReplayPolicy::PickReadAhead(std::span<Chunk*> out) {
  size_t n = 0;
  uint64_t bytes = preemptive_bytes_;
  picked_.clear();
  if (credit_ < 0) return 0;
  for (uint32_t thread = 0; thread < threads_end_ && n < out.size(); ++thread) {
    if (!Follows(thread)) continue;
    uint64_t walked = 0;
    uint32_t steps = 0;
    // Whether to go on.
    const auto visit = [&](uint32_t id) {
      if (id >= chunks_->ids() || ++steps > kMaxAhead) return false;
      walked += At(id)->bytes;
      const size_t before = n;
      const bool more = walked <= window_bytes_ && Take(id, out, &n, &bytes);
      if (n > before) picked_.push_back({id, thread, steps});
      return more;
    };
    if (history_.run(thread) >= kFollowAfter) {
      history_.ForEachNext(thread, visit);
      continue;
    }
    const Stepper& stepper = StepperOf(thread);
    for (int64_t id = int64_t{stepper.last} + stepper.step; id >= 0 && visit(static_cast<uint32_t>(id)); id += stepper.step) {
    }
  }
  all_ahead_ = n == 0;
  return n;
}

bool ReplayPolicy::IsValid() const {
  for (uint32_t id = 0; id < chunks_->ids(); ++id) {  // what may have to leave can be found
    if (PhaseOf(At(id)) == Phase::kResident && !Has(At(id), kDoomed) && !queue_.Has(id)) return false;
  }
  return true;
}

std::string ReplayPolicy::Describe() const {
  constexpr const char* kPhases[] = {"freed", "swapped", "loading", "resident", "writing", "lost"};
  std::string text;
  std::vector<bool> named(chunks_->ids());
  const auto name = [&](uint32_t id, const std::string& when) {
    const Chunk* const c = At(id);
    named[id] = true;
    text += std::to_string(id) + " " + kPhases[static_cast<int>(PhaseOf(c))] + " " + std::to_string(c->bytes) + " B" + when +
            (Has(c, kPrefetched) ? " pre-emptive" : "") + (id == latest_id_ ? " <- active" : "") + "\n";
  };
  const auto all = [&](Walk next, const auto& when) {
    for (uint32_t id = (queue_.*next)(NextUseQueue::kNobody); id != NextUseQueue::kNobody; id = (queue_.*next)(id)) name(id, when(id));
  };
  all(&NextUseQueue::NextOverdue, [](uint32_t) { return " overdue"; });
  all(&NextUseQueue::NextUnknown, [](uint32_t) { return " used once"; });
  all(&NextUseQueue::NextFarthest, [&](uint32_t id) { return " expected in " + std::to_string(queue_.Distance(id)) + " uses"; });
  all(&NextUseQueue::NextYoung, [](uint32_t) { return " just used"; });
  all(&NextUseQueue::NextAside, [](uint32_t) { return " was pinned"; });
  for (uint32_t id = 0; id < chunks_->ids(); ++id) {
    if (!named[id] && PhaseOf(At(id)) != Phase::kFreed) name(id, "");
  }
  return text.empty() ? "no objects\n" : text;
}

}  // namespace ramspan
