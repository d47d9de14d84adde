#include "client/policy/next_use_queue.h"

#include <algorithm>
#include <bit>

namespace ramspan {

NextUseQueue::NextUseQueue(const ChunkTable* chunks) : chunks_(chunks) {
  for (uint32_t i = 0; i < heads_.size(); ++i) heads_[i] = {kLists + i, kLists + i};
}

void NextUseQueue::Link(uint32_t list, uint32_t chunk, bool in_front) {
  if (IsBucket(list)) occupied_[(list - kLists) / 64] |= uint64_t{1} << (list - kLists) % 64;
  const uint32_t before = in_front ? list : Prev(list), behind = Next(before);
  Prev(chunk) = before;
  Next(chunk) = behind;
  Next(before) = Prev(behind) = chunk;
}

void NextUseQueue::Remove(uint32_t chunk) {
  if (times_[chunk].young) {
    times_[chunk].young = 0;
    --young_;
  }
  const uint32_t before = Prev(chunk), behind = Next(chunk);
  if (far_ == chunk) far_ = before;
  if (before == behind && IsBucket(before)) NoteEmpty(before);
  Next(before) = behind;
  Prev(behind) = before;
  Prev(chunk) = Next(chunk) = chunk;
}

void NextUseQueue::Expect(uint32_t chunk, uint32_t interval) {
  Remove(chunk);
  Times& times = times_[chunk];
  interval = std::min(interval, kFarthest);
  times.since = now_ & kSinceMask;
  times.at = now_ + interval;
  if (interval == 0) return Link(kUnknown, chunk, true);
  Place(chunk, interval, interval);
}

// `left` of `interval` from now on.
void NextUseQueue::Place(uint32_t chunk, uint32_t left, uint32_t interval) {
  const uint32_t latest = left + Slack(interval, kSlackMost);
  ++by_time_[std::bit_width(latest)];
  placed_far_ += Reaches(latest) ? 0 : 1;
  Put(chunk, left);
  if (++placed_ >= window_ || placed_far_ > window_ / kFarPart) LookAtScale();
}

void NextUseQueue::Put(uint32_t chunk, uint32_t left) {
  if (Reaches(left)) return Link(BucketOf(now_ + left), chunk, true);
  Link(kFar, chunk, true);
}

// Is the one that is looked at still far? From the back to the front, each in its turn.
void NextUseQueue::VisitFar() {
  if (far_ == kFar) far_ = Prev(kFar);
  if (far_ == kFar) return;
  const uint32_t chunk = far_;
  far_ = Prev(chunk);
  const uint32_t late = now_ - times_[chunk].at, left = times_[chunk].at - now_;
  if (left <= kFarthest && !Reaches(left)) return;
  if (left > kFarthest && late < Slack(Interval(chunk), slack_)) return;
  Remove(chunk);
  if (left <= kFarthest) return Link(BucketOf(times_[chunk].at), chunk, true);
  Link(kOverdue, chunk, false);
}

void NextUseQueue::Use(uint32_t chunk, uint32_t interval) {
  Remove(chunk);
  Times& times = times_[chunk];
  interval = std::min(interval, kFarthest);
  times.since = now_ & kSinceMask;
  times.at = now_ + interval;
  times.young = 1;
  Link(kYoung, chunk, false);
  ++young_;
  Ripen();
}

void NextUseQueue::SetAside(uint32_t chunk) {
  Remove(chunk);
  Link(kAside, chunk, false);
}

void NextUseQueue::SetYoung(uint32_t most) {
  young_most_ = most;
  Ripen();
}

void NextUseQueue::Ripen() {
  while (young_ > young_most_) {
    const uint32_t chunk = Next(kYoung);
    Remove(chunk);
    const uint32_t interval = Interval(chunk), age = Age(chunk);
    if (interval == 0) {
      Link(kUnknown, chunk, true);
    } else if (age < interval + Slack(interval, slack_)) {
      Place(chunk, age < interval ? interval - age : interval + Slack(interval, slack_) - age, interval);
    } else {
      Link(kOverdue, chunk, false);
    }
  }
}

// As fine as it can be with few that are far. Half as fine is no reason for the work.
void NextUseQueue::LookAtScale() {
  uint32_t bits = 32, later = by_time_[32];
  while (bits > 0 && later <= placed_ / kFarPart) later += by_time_[--bits];
  constexpr uint32_t kBits = std::bit_width(kBuckets) - 2;  // of a time that surely is within reach
  const uint32_t shift = bits > kBits ? bits - kBits : 0;
  const uint32_t moved = shift > shift_ || shift + 1 < shift_ ? Rescale(shift) : 0;
  window_ = std::max(kWindowLeast, moved);
  placed_ = placed_far_ = 0;
  by_time_ = {};
}

// How many were moved.
uint32_t NextUseQueue::Rescale(uint32_t shift) {
  const auto take_all = [this](uint32_t list) {
    while (Next(list) != list) {
      const uint32_t chunk = Prev(list);  // the earliest first
      Remove(chunk);
      Link(kSpare, chunk, false);
    }
  };
  for (uint32_t i = 0; i < kBuckets; ++i) take_all(kLists + (((now_ >> shift_) + i) & (kBuckets - 1)));
  take_all(kFar);
  shift_ = shift;
  uint32_t moved = 0;
  for (; Next(kSpare) != kSpare; ++moved) {
    const uint32_t chunk = Next(kSpare), late = now_ - times_[chunk].at;
    Remove(chunk);
    Put(chunk, late > kFarthest ? times_[chunk].at - now_ : Slack(Interval(chunk), slack_) - std::min(late, Slack(Interval(chunk), slack_)));
  }
  return moved;
}

// The time of this list has passed. Who is here for the first time is waited for.
void NextUseQueue::Pass(uint32_t list) {
  if (Next(list) == list) return;
  // Out of the list first: whatever is put back into it is for the next time round.
  const uint32_t first = Next(list), last = Prev(list);
  Prev(list) = Next(list) = list;
  NoteEmpty(list);
  for (uint32_t chunk = first, next;; chunk = next) {
    next = Next(chunk);
    const Times& times = times_[chunk];
    const uint32_t slack = Slack(Interval(chunk), slack_);
    if (now_ - times.at < slack) {
      Put(chunk, slack);
    } else {
      Link(kOverdue, chunk, false);
    }
    if (chunk == last) return;
  }
}

void NextUseQueue::Advance(uint32_t now) {
  const uint32_t times = UINT32_MAX >> shift_, first = now_ >> shift_;
  // Longer than all of them reach: each is passed once, and those that are waited for are put where the next ones will be.
  const uint32_t buckets = std::min(((now >> shift_) - first) & times, kBuckets);
  for (uint32_t i = 0; i < buckets; ++i) {
    now_ = i + 1 == buckets ? now : (first + i + 1) << shift_;
    Pass(kLists + ((first + i) & (kBuckets - 1)));
    VisitFar();
  }
  now_ = now;
}

uint32_t NextUseQueue::NextUnknown(uint32_t chunk) const { return NextIn(kUnknown, chunk); }
uint32_t NextUseQueue::NextOverdue(uint32_t chunk) const { return NextIn(kOverdue, chunk); }
uint32_t NextUseQueue::NextYoung(uint32_t chunk) const { return NextIn(kYoung, chunk); }
uint32_t NextUseQueue::NextAside(uint32_t chunk) const { return NextIn(kAside, chunk); }

// The last bucket of the `count` in time from that of `now_` on that has something; kNobody: none has.
uint32_t NextUseQueue::LastOccupied(uint32_t count) const {
  const uint32_t first = now_ >> shift_;
  while (count > 0) {
    const uint32_t last = (first + count - 1) & (kBuckets - 1), in_word = std::min(last % 64 + 1, count);
    const auto empty = static_cast<uint32_t>(std::countl_zero(occupied_[last / 64] << (63 - last % 64)));
    if (empty < in_word) return kLists + last - empty;
    count -= in_word;
  }
  return kNobody;
}

// Those that are far, and then behind the last of a bucket the one before it in time.
uint32_t NextUseQueue::NextFarthest(uint32_t chunk) const {
  const uint32_t next = Next(chunk == kNobody ? kFar : chunk);
  if (next < kLists) return next;
  const uint32_t list = LastOccupied(next == kFar ? kBuckets : (next - kLists - (now_ >> shift_)) & (kBuckets - 1));
  return list == kNobody ? kNobody : Next(list);
}

bool NextUseQueue::IsInTime(uint32_t chunk, uint32_t slack_shift) const {
  const Times& times = times_[chunk];
  const uint32_t interval = Interval(chunk), slack = Slack(interval, slack_shift);
  return interval != 0 && now_ + 1 - times.at + slack <= 2 * slack;
}

uint32_t NextUseQueue::Distance(uint32_t chunk) const {
  const uint32_t distance = times_[chunk].at - now_;
  return distance > kFarthest ? 0 : distance;  // its time has come
}

}  // namespace ramspan
