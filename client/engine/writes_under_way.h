// WritesUnderWay: the account of frames that are being written out, and which of them may be counted upon. As long as writes end, those
// under way are memory that comes back soon; when none has ended for a while (a server that stands still, a disk whose writes take long
// however many there are), those are not expected any more, and only what is begun from then on is.
//
// A wire, a disk and a server end first what was begun first. So the end of any write is news of all, also of one that is not expected any
// more: what is behind it comes next. Else the first batch after a pause of some ms would be overdue behind what the pause held up, the next
// one behind both, and so on. And so patience is that of the largest that is under way: the others may be behind it.
//
// That one itself comes back in one piece, late. Who misses something much smaller does not count on it for as long: most of memory may be
// chunks that can leave at once.
//
// While none ends, each is given twice the time of the last one: else memory would be full of writes to a server that stands still
// before anybody can know that it does, and what could leave for elsewhere is among them.
//
// Thread-safety: none of its own; guarded by the engine's mutex.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>

namespace ramspan {

class WritesUnderWay {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // What a write belongs to; its own to keep until it ends.
  using Spell = uint32_t;
  Spell Begin(uint64_t bytes, Time now) {
    if (sizes_ == 0) last_news_ = now;
    bytes_ += bytes;
    expected_[SizeOf(bytes)] += bytes;
    sizes_ |= uint64_t{1} << SizeOf(bytes);
    return spell_;
  }
  void End(uint64_t bytes, Spell spell, Time now) {
    last_news_ = std::max(last_news_, now);  // who took note of an end may come later than who took note of the next one
    in_vain_ = 0;
    TakeBack(bytes, spell);
  }
  // It was not necessary: which says nothing of others.
  void TakeBack(uint64_t bytes, Spell spell) {
    bytes_ -= bytes;
    if (spell != spell_) return;
    uint64_t& left = expected_[SizeOf(bytes)];
    left -= bytes;
    if (left == 0) sizes_ &= ~(uint64_t{1} << SizeOf(bytes));
  }

  uint64_t bytes() const { return bytes_; }
  // Of bytes() those that are expected by who misses `missed` bytes: unless no write has ended for as long as the largest of them may take
  // on a slow wire, or for longer where what was begun before has been waited for in vain. Of much larger ones none, after as long as a write
  // that is not may take; but two of them at once are enough.
  uint64_t Expected(Time now, uint64_t missed) {
    if (sizes_ == 0) return 0;
    const auto silence = now - last_news_;
    const uint64_t largest = std::bit_floor(sizes_);
    if (silence > std::min(PatienceFor(largest) * (1 << in_vain_), PatienceFor(largest) + kLongestMore)) {
      Forget();
      in_vain_ = std::min(in_vain_ + 1, kDoublingsMax);
      return 0;
    }
    uint64_t much_larger = 0, others = 0;
    for (uint64_t sizes = sizes_; sizes != 0; sizes &= sizes - 1) {
      const auto size = static_cast<unsigned>(std::countr_zero(sizes));
      (size > SizeOf(kMuchLarger * missed) ? much_larger : others) += expected_[size];
    }
    const bool comes_late = silence > PatienceFor(kMuchLarger * missed) && much_larger < 2 * largest;
    return comes_late ? others : others + much_larger;
  }

  // Whether patience has ended since a write has.
  bool in_vain() const { return in_vain_ > 0; }

  // A tenth of what one adapter of 10 Gbit/s moves, and never less than what a busy server takes to answer.
  static std::chrono::nanoseconds PatienceFor(uint64_t bytes) {
    return std::max(std::chrono::nanoseconds(std::chrono::milliseconds(1)), std::chrono::nanoseconds(bytes * 10));
  }

 private:
  static constexpr uint64_t kMuchLarger = 16;
  static constexpr unsigned kSizes = 64;
  static constexpr int kDoublingsMax = 7;  // of the least patience: more than kLongestMore
  static constexpr std::chrono::milliseconds kLongestMore{100};  // by then swap knows that a server stands still (lease_keeper.h)

  // By powers of two: of those with size s, each has at least 2^s bytes and fewer than 2^(s+1).
  static unsigned SizeOf(uint64_t bytes) { return static_cast<unsigned>(std::bit_width(bytes | 1)) - 1; }

  void Forget() {
    for (; sizes_ != 0; sizes_ &= sizes_ - 1) expected_[static_cast<unsigned>(std::countr_zero(sizes_))] = 0;
    ++spell_;  // to be mistaken for one of old, a write would have to outlast 2^32 of them
  }

  uint64_t bytes_ = 0;
  std::array<uint64_t, kSizes> expected_{};  // bytes by size
  uint64_t sizes_ = 0;                       // of which some are expected, a bit each: 2^s
  Spell spell_ = 0;
  Time last_news_{};  // an end, or the first that is expected
  int in_vain_ = 0;   // times that patience has ended since a write has; more than kDoublingsMax count as that many
};

}  // namespace ramspan
