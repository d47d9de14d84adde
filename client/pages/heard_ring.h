// HeardRing: of which blocks that are at home policies have heard last, and which of them is due to leave home in order to be heard of again (page_hearing.cc).
//
// A block is due when some others, `late`, have been heard of after it. Where one that has left is touched again soon, that was too early, and twice as many have
// to come first; each so many that are heard of, it is one less. Where a sweep turns back, all that left just before it come early, and as one.
//
// And blocks may leave only as often as it can be worth: each block that came from swap pays for some, and one that was too early costs as many.
//
// Thread-safety: any thread; what threads do at once may count once, and publishes nothing. Ownership: of nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace ramspan {

class HeardRing {
 public:
  static constexpr uint32_t kMost = 255;  // blocks that are heard of before one is due
  static constexpr uint32_t kLateLeast = 8;
  enum class Came { kFromSwap, kToBeHeard };  // how it came home

  // A block has been heard of, whose number is not UINT32_MAX. `at`: its own, the place in the ring. `most`: `late`, at least kLateLeast, at most kMost. The
  // number of who is due, if he is in `place` still; UINT32_MAX: nobody.
  uint32_t Note(uint32_t number, std::atomic<uint32_t>* at, Came came, uint32_t most, uint32_t* place) {
    const uint32_t now = next_.fetch_add(1, std::memory_order_relaxed), before = at->exchange(now, std::memory_order_relaxed);
    const uint32_t late = std::clamp(late_.load(std::memory_order_relaxed), kLateLeast, most);
    const bool is_early = came == Came::kToBeHeard && now - before <= 2 * late;
    Pay(came, is_early, static_cast<int32_t>(kPaidFor * most));
    const uint32_t later = Adapt(late, is_early, now, before, most);
    numbers_[now % kPlaces].store(number + 1, std::memory_order_relaxed);
    *place = now - later;
    return numbers_[*place % kPlaces].exchange(0, std::memory_order_relaxed) - 1;
  }
  bool MayHide() const { return paid_.load(std::memory_order_relaxed) > 0; }
  void CountHidden() { paid_.fetch_sub(1, std::memory_order_relaxed); }
  // Nothing was ever heard of.
  bool IsUnused() const { return next_.load(std::memory_order_relaxed) == 0; }
  uint32_t late() const { return late_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kPlaces = kMost + 1;
  static constexpr uint32_t kDecays = 16;  // one less with each so many
  static constexpr int32_t kPaidFor = 8;   // a fault of 5 to 20 us each, beside the 100 to 250 of a transfer; at an eighth of the data in swap, all that is in memory is heard of

  void Pay(Came came, bool is_early, int32_t most) {
    const int32_t left = paid_.load(std::memory_order_relaxed);
    if (came == Came::kFromSwap && left < most) paid_.fetch_add(kPaidFor, std::memory_order_relaxed);
    if (is_early && left > 0) paid_.fetch_sub(kPaidFor, std::memory_order_relaxed);
  }
  // One that was heard of before the last time that it was doubled may have left as early as it was then.
  uint32_t Adapt(uint32_t late, bool is_early, uint32_t now, uint32_t before, uint32_t most) {
    const bool doubles = is_early && now - before < now - doubled_at_.load(std::memory_order_relaxed);
    if (doubles) doubled_at_.store(now, std::memory_order_relaxed);
    const uint32_t decays = now % kDecays == 0 ? 1 : 0, later = doubles ? std::min(2 * late, most) : std::max(late - decays, kLateLeast);
    late_.store(later, std::memory_order_relaxed);
    return later;
  }

  std::atomic<uint32_t> numbers_[kPlaces] = {};  // + 1, by place; 0: nobody, or who was due
  std::atomic<uint32_t> next_{0};                // the place of who is heard of next
  std::atomic<uint32_t> late_{0}, doubled_at_{0};
  std::atomic<int32_t> paid_{0};  // for so many more
};

}  // namespace ramspan
