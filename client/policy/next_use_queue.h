// NextUseQueue: chunks by when their next use is expected, for who wants the one that is farthest. Taking a place, leaving it and the passing
// of time cost O(1) a chunk, on average. Times are kept to a 256th of the longest one but for an eighth of the chunks, those that are
// expected last: they are far, the latest in front, until they are not any more. Of times that are the same, the latest is in front.
//
// A chunk whose time has come stays where it is for a part of the time for which it was expected: an order with small disturbances is one
// all the same. After that it is overdue. A chunk of which nothing is known stands apart, the one that came last in front.
//
// Time is counted as the caller likes, modulo 2^32; no chunk is expected later than kFarthest from now.
// Memory: 8 bytes a chunk beside its descriptor, whose links it uses. Nothing but Reserve allocates. Thread-safety: none; the policy's.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "client/chunk/chunk_table.h"
#include "client/policy/id_table.h"

namespace ramspan {

class NextUseQueue {
 public:
  static constexpr uint32_t kNobody = UINT32_MAX;
  static constexpr uint32_t kFarthest = uint32_t{1} << 29;

  explicit NextUseQueue(const ChunkTable* chunks);
  static constexpr uint64_t kBytesAChunk = 8;

  // Room for ids below this. Throws std::bad_alloc.
  void Reserve(uint32_t chunks) { times_.Reserve(chunks); }
  // Takes a chunk, which may be here already, to its new place. `interval` from now on; 0: unknown.
  void Expect(uint32_t chunk, uint32_t interval);
  // The same of a chunk that is used now: it is young until so many others are younger.
  void Use(uint32_t chunk, uint32_t interval);
  void SetYoung(uint32_t most);
  void Remove(uint32_t chunk);
  // Takes one out of its order that cannot leave now, behind all that were put there before. It comes back with its next use.
  void SetAside(uint32_t chunk);
  bool Has(uint32_t chunk) const { return chunks_->At(chunk)->next != chunk; }
  // The time is `now`, which is not before the last one.
  void Advance(uint32_t now);

  // Walks: the next one behind a chunk of the same kind, in the order in which they should leave; kNobody at its end. With kNobody: the first.
  uint32_t NextUnknown(uint32_t chunk) const;
  uint32_t NextOverdue(uint32_t chunk) const;
  uint32_t NextFarthest(uint32_t chunk) const;
  uint32_t NextYoung(uint32_t chunk) const;  // the oldest first
  uint32_t NextAside(uint32_t chunk) const;
  // The one in front of it where it is now; kNobody: it is the first one of its kind.
  uint32_t Before(uint32_t chunk) const {
    const uint32_t before = chunks_->At(chunk)->prev;
    return before >= kLists ? kNobody : before;
  }
  // Whether one of them is expected later than this chunk, as far as the oldest and the youngest tell.
  bool IsYoungFarther(uint32_t chunk) const {
    return young_ > 0 && std::max(Distance(Next(kYoung)), Distance(heads_[kYoung - kLists].prev)) > Distance(chunk);
  }
  // From now on; of one that is expected.
  uint32_t Distance(uint32_t chunk) const;
  // Whether it is expected now, give or take an interval >> slack; of one that is here.
  bool IsInTime(uint32_t chunk, uint32_t slack) const;
  // A chunk may be late by its interval >> slack before it is overdue.
  static constexpr uint32_t kSlackMost = 2, kSlackLeast = 4;
  void SetSlack(uint32_t slack) { slack_ = slack; }
  // A bit of the caller's for each chunk.
  void SetMark(uint32_t chunk, bool mark) { times_[chunk].mark = mark ? 1 : 0; }
  bool mark(uint32_t chunk) const { return times_[chunk].mark != 0; }
  bool IsYoung(uint32_t chunk) const { return times_[chunk].young != 0; }
  // Since it was put here, and how long it was expected to be until its use. Also of one that is not here any more.
  uint32_t Age(uint32_t chunk) const { return (now_ - times_[chunk].since) & kSinceMask; }
  uint32_t Interval(uint32_t chunk) const { return (times_[chunk].at - times_[chunk].since) & kSinceMask; }

 private:
  static constexpr uint32_t kBuckets = 1024;
  static constexpr uint32_t kLists = 1u << 31;  // numbers of lists begin here: places of their heads
  static constexpr uint32_t kUnknown = kLists + kBuckets, kOverdue = kUnknown + 1, kYoung = kOverdue + 1, kAside = kYoung + 1, kFar = kAside + 1,
                            kSpare = kFar + 1;
  static constexpr uint32_t kFarPart = 8;
  static constexpr uint32_t kWindowLeast = 256;  // places taken before the scale is looked at

  static constexpr uint32_t kSinceMask = ~0u >> 2;
  struct Times {
    uint32_t at = 0;     // when it is expected
    uint32_t since : 30 = 0;  // when it was put here
    uint32_t young : 1 = 0;
    uint32_t mark : 1 = 0;
  };
  struct Head {
    uint32_t prev, next;
  };
  static uint32_t Slack(uint32_t interval, uint32_t slack) { return 4 + (interval >> slack); }
  static bool IsBucket(uint32_t list) { return list - kLists < kBuckets; }
  void NoteEmpty(uint32_t bucket) { occupied_[(bucket - kLists) / 64] &= ~(uint64_t{1} << (bucket - kLists) % 64); }
  uint32_t LastOccupied(uint32_t count) const;
  uint32_t BucketOf(uint32_t time) const { return kLists + ((time >> shift_) & (kBuckets - 1)); }
  void Link(uint32_t list, uint32_t chunk, bool in_front);
  void Place(uint32_t chunk, uint32_t left, uint32_t interval);
  bool Reaches(uint32_t left) const { return (left >> shift_) + 2 < kBuckets; }
  void Put(uint32_t chunk, uint32_t left);
  void VisitFar();
  void Ripen();
  void LookAtScale();
  uint32_t Rescale(uint32_t shift);
  void Pass(uint32_t list);

  uint32_t NextIn(uint32_t list, uint32_t chunk) const {
    const uint32_t next = Next(chunk == kNobody ? list : chunk);
    return next == list ? kNobody : next;
  }
  uint32_t& Next(uint32_t place) { return place >= kLists ? heads_[place - kLists].next : chunks_->At(place)->next; }
  uint32_t& Prev(uint32_t place) { return place >= kLists ? heads_[place - kLists].prev : chunks_->At(place)->prev; }
  uint32_t Next(uint32_t place) const { return place >= kLists ? heads_[place - kLists].next : chunks_->At(place)->next; }

  const ChunkTable* const chunks_;
  IdTable<Times> times_;
  std::array<Head, kBuckets + 6> heads_;
  uint32_t now_ = 0;
  uint32_t slack_ = kSlackLeast;
  uint32_t young_ = 0, young_most_ = 0;
  uint32_t shift_ = 0;  // a bucket is for 2^shift uses
  uint32_t far_ = kFar;  // the far one that is looked at next
  // Since the scale was looked at: places taken, those of them that were far, by the logarithm of the time.
  uint32_t placed_ = 0, placed_far_ = 0, window_ = kWindowLeast;
  std::array<uint32_t, 33> by_time_{};
  std::array<uint64_t, kBuckets / 64> occupied_{};  // a bit for each bucket that has something
};

}  // namespace ramspan
