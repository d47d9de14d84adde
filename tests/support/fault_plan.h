// FaultPlan: what goes wrong, and when: scripted for the next requests, else drawn at seeded rates. Shared by FakeTier
// and FaultTier.
//
// Thread-safety: any thread. One seed and one order of calls give one sequence of faults.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <random>

namespace ramspan {

enum class Fault {
  kNone,
  kFails,        // kUnavailable: worth a retry
  kFull,         // kResourceExhausted (writes)
  kShort,        // claims success with half of the bytes
  kFlippedByte,  // claims success with one wrong byte
};

// Probabilities a request; the rest succeeds.
struct FaultRates {
  double write_fails = 0, write_full = 0, write_short = 0, write_flipped = 0;
  double read_fails = 0, read_short = 0, read_flipped = 0;
  double reserve_full = 0;
};

class FaultPlan {
 public:
  explicit FaultPlan(uint64_t seed, const FaultRates& rates = {}) : random_(seed), rates_(rates) {}

  void SetRates(const FaultRates& rates) {
    std::lock_guard lock(mutex_);
    rates_ = rates;
  }
  // The next `count` requests of this kind, before any rate is asked.
  void NextWrites(Fault fault, size_t count = 1) {
    std::lock_guard lock(mutex_);
    writes_.insert(writes_.end(), count, fault);
  }
  void NextReads(Fault fault, size_t count = 1) {
    std::lock_guard lock(mutex_);
    reads_.insert(reads_.end(), count, fault);
  }
  void NextReservesAreFull(size_t count = 1) {
    std::lock_guard lock(mutex_);
    full_reserves_ += count;
  }

  Fault ForWrite() {
    std::lock_guard lock(mutex_);
    if (!writes_.empty()) return TakeFirst(&writes_);
    return Draw({{rates_.write_fails, Fault::kFails},
                 {rates_.write_full, Fault::kFull},
                 {rates_.write_short, Fault::kShort},
                 {rates_.write_flipped, Fault::kFlippedByte}});
  }
  Fault ForRead() {
    std::lock_guard lock(mutex_);
    if (!reads_.empty()) return TakeFirst(&reads_);
    return Draw({{rates_.read_fails, Fault::kFails},
                 {rates_.read_short, Fault::kShort},
                 {rates_.read_flipped, Fault::kFlippedByte}});
  }
  bool ForReserve() {
    std::lock_guard lock(mutex_);
    if (full_reserves_ > 0) return full_reserves_-- > 0;
    return Draw({{rates_.reserve_full, Fault::kFull}}) == Fault::kFull;
  }

 private:
  struct Chance {
    double rate;
    Fault fault;
  };

  static Fault TakeFirst(std::deque<Fault>* faults) {
    const Fault first = faults->front();
    faults->pop_front();
    return first;
  }
  Fault Draw(std::initializer_list<Chance> chances) {
    double left = std::uniform_real_distribution<double>(0, 1)(random_);
    for (const Chance& chance : chances) {
      if (left < chance.rate) return chance.fault;
      left -= chance.rate;
    }
    return Fault::kNone;
  }

  std::mutex mutex_;
  std::mt19937_64 random_;
  FaultRates rates_;
  std::deque<Fault> writes_, reads_;
  size_t full_reserves_ = 0;
};

}  // namespace ramspan
