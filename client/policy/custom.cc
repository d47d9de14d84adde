#include "client/policy/custom.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/log.h"
#include "common/program_code.h"
#include "common/status.h"

namespace ramspan {
namespace {
constexpr const char* kNoException = "an exception that is no std::exception";
}  // namespace

void CustomPolicy::Note(Event::Kind kind, Chunk* chunk) {
  MutexLock lock(events_mutex_);
  // Where the heap has no more it does not hear of this one; what it names is checked all the same.
  static_cast<void>(WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return events_.push_back({kind, chunk->id, chunk, chunk->bytes}), true; }, false));
}

// REQUIRES: the turn. Both vectors keep what they have grown to.
void CustomPolicy::Tell() {
  {
    MutexLock lock(events_mutex_);
    telling_.swap(events_);
  }
  for (const Event& event : telling_) {
    try {
      TellOf(event);
    } catch (const std::exception& e) {  // the next ones are told nevertheless: it may need to know them
      Fail(e.what());
    } catch (...) {
      Fail(kNoException);
    }
  }
  telling_.clear();
}

// Where the heap had no more, an event was not noted. The program hears of no object that it does not know, and of none twice.
void CustomPolicy::TellOf(const Event& event) {
  const bool is_known = Of(event.id).chunk != nullptr;
  if (event.kind == Event::kCreated) {
    if (is_known) TellOf({Event::kFreed, event.id, event.chunk, 0});  // the number is used again
    if (event.id >= heard_.size() && !WithinHeap([&] { return heard_.resize(event.id + 1), true; }, false)) return;
    heard_[event.id] = {event.chunk, event.bytes};
    policy_->Created(*this, event.id);
  } else if (!is_known) {
    return;
  } else if (event.kind == Event::kFreed) {
    struct Forgets {
      Heard& heard;
      ~Forgets() { heard = {}; }
    } const forgets{heard_[event.id]};  // also where the program throws
    policy_->Freed(*this, event.id);
  } else if (event.kind == Event::kMissed) {
    policy_->Missed(*this, event.id);
  } else {
    policy_->AheadUsed(*this, event.id);
  }
}

CachePolicy::Turn CustomPolicy::Consult(Ask ask, uint64_t bytes, size_t places) {
  Turn turn(turn_, std::defer_lock);
  if (ask != Ask::kNothing) {
    turn.lock();
  } else if (!turn.try_lock()) {
    return turn;  // it thinks right now; before its next question it is told
  }
  const std::span names(named_.data(), std::min(places, named_.size()));
  named_count_ = 0;
  const ProgramCode running(ProgramCode::Of::kPolicy);
  try {
    Tell();
    if (ask == Ask::kVictims) named_count_ = std::min(policy_->Victims(*this, bytes, names), names.size());
    if (ask == Ask::kReadAhead) {
      const uint64_t most = ahead_bytes_max_, now = preemptive_bytes_;
      if (now < most) named_count_ = std::min(policy_->ReadAhead(*this, most - now, names), names.size());
    }
  } catch (const std::exception& e) {  // it should not: it has named nobody
    Fail(e.what());
  } catch (...) {
    Fail(kNoException);
  }
  return turn;
}

void CustomPolicy::Fail(const char* why) {
  if (!std::exchange(told_of_exception_, true)) LogWarning("an EvictionPolicy of the program's throws; Ramspan chooses instead: %s", why);
}

// Of a number that it was never told, nothing.
const CustomPolicy::Heard& CustomPolicy::Of(uint32_t id) const {
  static const Heard nobody;
  return id < heard_.size() ? heard_[id] : nobody;
}

bool CustomPolicy::InSwap(uint32_t id) const {
  if (Of(id).chunk == nullptr) return false;
  const uint64_t word = Of(id).chunk->state.load(std::memory_order_acquire);
  return PhaseOf(word) == Phase::kSwapped && (word & kHasSlot) != 0;
}

void CustomPolicy::OnMiss(Chunk* chunk, uint32_t /*thread*/) {
  wants_ahead_ = true;
  Note(Event::kMissed, chunk);
}

void CustomPolicy::OnPrefetchHit(Chunk* chunk) {
  LeaveWindow(chunk);
  wants_ahead_ = true;
  Note(Event::kAheadUsed, chunk);
}

void CustomPolicy::OnPrefetchWasted(Chunk* chunk) { LeaveWindow(chunk); }

void CustomPolicy::LeaveWindow(Chunk* chunk) {
  preemptive_bytes_ = preemptive_bytes_ - std::min<uint64_t>(preemptive_bytes_, chunk->bytes);
}

bool CustomPolicy::Chosen::Holds(const Chunk* chunk) const {
  const auto end = out.begin() + static_cast<ptrdiff_t>(n);
  return std::find(out.begin(), end, chunk) != end;
}

void CustomPolicy::Chosen::Add(Chunk* chunk) {
  if (full() || Holds(chunk)) return;
  out[n++] = chunk;
  bytes += chunk->bytes;
}

bool CustomPolicy::TestAndClearUsed(uint32_t id) const {
  Chunk* c = Of(id).chunk;
  if (c == nullptr || !Has(c, kReferenced)) return false;
  ClearBits(c, kReferenced);
  return true;
}

size_t CustomPolicy::PickVictims(uint64_t bytes, std::span<Chunk*> out) {
  const auto& named = named_;
  const size_t room = std::min(out.size(), named.size());
  const size_t count = std::min(std::exchange(named_count_, 0), room);
  // A policy that knows nothing of pins may name the same objects again although they are pinned, and so for ever. That is
  // noticed where its names fill all places (with fewer, the engine asks for more bytes): then half of the places are the
  // sweep's, which goes on to others.
  const bool repeats_itself = count == room && named[0] == last_first_;
  last_first_ = count > 0 ? named[0] : UINT32_MAX;
  Chosen chosen{out};
  for (size_t i = 0; i < (repeats_itself ? (room + 1) / 2 : count); ++i) {
    if (MayLeave(named[i])) chosen.Add(chunks_->At(named[i]));
  }
  FillBySweep(repeats_itself ? UINT64_MAX : bytes, &chosen);
  return chosen.n;
}

// The policy named too few: who comes next in the table leaves, until there are `bytes` or all places are taken.
void CustomPolicy::FillBySweep(uint64_t bytes, Chosen* chosen) {
  const uint32_t ids = chunks_->ids();
  for (uint32_t steps = 0; steps < ids && !chosen->full() && (chosen->n == 0 || chosen->bytes < bytes); ++steps) {
    if (sweep_ >= ids) sweep_ = 0;
    const uint32_t id = sweep_++;
    if (MayLeave(id)) chosen->Add(chunks_->At(id));
  }
}

size_t CustomPolicy::PickReadAhead(std::span<Chunk*> out) {
  const size_t count = std::min(std::exchange(named_count_, 0), out.size());
  if (preemptive_bytes_ >= ahead_bytes_max_) return 0;
  const auto& named = named_;
  uint64_t left = ahead_bytes_max_ - preemptive_bytes_;
  Chosen chosen{out};
  for (size_t i = 0; i < count; ++i) {
    if (!Known(named[i]) || !MayReadAhead(chunks_->At(named[i]))) continue;
    Chunk* c = chunks_->At(named[i]);
    if (chosen.Holds(c)) continue;
    if (c->bytes > left) break;
    left -= c->bytes;
    chosen.Add(c);
  }
  wants_ahead_ = chosen.n > 0;
  return chosen.n;
}

std::string CustomPolicy::Describe() const {
  std::string text;
  for (uint32_t id = 0; id < chunks_->ids(); ++id) {
    if (!Known(id)) continue;
    text += std::to_string(id) + (MayLeave(id) ? " resident " : " swapped ") + std::to_string(chunks_->At(id)->bytes) + " B\n";
  }
  return text;
}

}  // namespace ramspan
