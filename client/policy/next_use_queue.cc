#include "client/policy/next_use_queue.h"

#include <algorithm>

namespace ramspan {

NextUseQueue::NextUseQueue(const ChunkTable* chunks) : chunks_(chunks) {
  for (uint32_t i = 0; i < heads_.size(); ++i) heads_[i] = {kLists + i, kLists + i};
}

void NextUseQueue::Link(uint32_t list, uint32_t chunk, bool in_front) {
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
  Next(Prev(chunk)) = Next(chunk);
  Prev(Next(chunk)) = Prev(chunk);
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

// `left` of `interval` from now on. The buckets reach as far as it may be late.
void NextUseQueue::Place(uint32_t chunk, uint32_t left, uint32_t interval) {
  while (((left + Slack(interval, kSlackMost)) >> shift_) + 2 >= kBuckets) Widen();
  LinkAt(now_ + left, chunk);
}

void NextUseQueue::LinkAt(uint32_t time, uint32_t chunk) {
  reach_ = std::max(reach_, ((time >> shift_) - (now_ >> shift_)) & (kBuckets - 1));
  Link(BucketOf(time), chunk, false);
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

// Twice the time a bucket: each two neighbours become one, in order.
void NextUseQueue::Widen() {
  const uint32_t first = now_ >> shift_;
  // The lists are moved out first: the heads of the old places are those of new ones.
  for (uint32_t i = 0; i < kBuckets; ++i) {
    const uint32_t list = kLists + ((first + i) & (kBuckets - 1));
    spare_[i] = Next(list) == list ? Head{kNobody, kNobody} : heads_[list - kLists];
    Prev(list) = Next(list) = list;
  }
  ++shift_;
  reach_ = reach_ / 2 + 1;
  for (uint32_t i = 0; i < kBuckets; ++i) {
    if (spare_[i].next == kNobody) continue;
    const uint32_t list = kLists + (((first + i) >> 1) & (kBuckets - 1));
    Next(Prev(list)) = spare_[i].next;
    Prev(spare_[i].next) = Prev(list);
    Next(spare_[i].prev) = list;
    Prev(list) = spare_[i].prev;
  }
}

// The time of this list has passed. Who is here for the first time is waited for.
void NextUseQueue::Pass(uint32_t list) {
  if (Next(list) == list) return;
  // Out of the list first: whatever is put back into it is for the next time round.
  const uint32_t first = Next(list), last = Prev(list);
  Prev(list) = Next(list) = list;
  for (uint32_t chunk = first, next;; chunk = next) {
    next = Next(chunk);
    const Times& times = times_[chunk];
    const uint32_t slack = Slack(Interval(chunk), slack_);
    if (now_ - times.at < slack) {
      LinkAt(now_ + slack, chunk);
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
    reach_ -= std::min(reach_, 1u);
    Pass(kLists + ((first + i) & (kBuckets - 1)));
  }
  now_ = now;
  if (buckets == kBuckets) reach_ = kBuckets - 1;
}

uint32_t NextUseQueue::NextUnknown(uint32_t chunk) const { return NextIn(kUnknown, chunk); }
uint32_t NextUseQueue::NextOverdue(uint32_t chunk) const { return NextIn(kOverdue, chunk); }
uint32_t NextUseQueue::NextYoung(uint32_t chunk) const { return NextIn(kYoung, chunk); }
uint32_t NextUseQueue::NextAside(uint32_t chunk) const { return NextIn(kAside, chunk); }

// Behind the last of a bucket comes the one before it in time.
uint32_t NextUseQueue::NextFarthest(uint32_t chunk) const {
  const uint32_t first = (now_ >> shift_) & (kBuckets - 1);
  uint32_t list = kLists + ((first + reach_) & (kBuckets - 1));
  if (chunk != kNobody) {
    uint32_t next = Next(chunk);
    if (next < kLists) return next;
    list = next;
    if (list == kLists + first) return kNobody;
    list = kLists + ((list - kLists - 1) & (kBuckets - 1));
  }
  for (;; list = kLists + ((list - kLists - 1) & (kBuckets - 1))) {
    if (Next(list) != list) return Next(list);
    if (list == kLists + first) return kNobody;
    if (chunk == kNobody) --reach_;
  }
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
