// Read-modify-write of chunks in random order, the same order in each run; shared by `random` and the experiment of that
// name. Owns its chunks. Thread-safety: none.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "bench/report.h"
#include "bench/roofline.h"
#include "ramspan/managed_ptr.h"

namespace ramspan::bench {

class RandomAccess {
 public:
  static constexpr uint64_t kSeed = 20240229;

  // `data` bytes in chunks of `chunk` bytes.
  RandomAccess(uint64_t data, uint64_t chunk) : count_(chunk / sizeof(uint64_t)), visits_(data / chunk) {
    for (size_t c = 0; c < visits_.size(); ++c) chunks_.emplace_back(count_, uint64_t{c});
  }

  // Seconds.
  double Round(uint64_t operations) {
    const double begin = Now();
    for (uint64_t k = 0; k < operations; ++k) {
      const size_t c = random_() % chunks_.size();
      adhereTo<uint64_t> glue(chunks_[c]);
      AddOne(glue, count_);
      ++visits_[c];
    }
    return Now() - begin;
  }

  // Reads chunks, so that those that leave are clean after a while; the seconds of each pull that had to wait.
  std::vector<double> MissSeconds(uint64_t operations) {
    // No pull of a chunk in memory takes as long, and no transfer over a network is as short.
    constexpr double kMissed = 4e-6;
    std::vector<double> seconds;
    for (uint64_t k = 0; k < operations; ++k) {
      const double begin = Now();
      const adhereTo<uint64_t> glue(chunks_[random_() % chunks_.size()]);
      const uint64_t* const elements = glue;
      const double took = Now() - begin;
      sink_ += elements[0];
      if (took > kMissed) seconds.push_back(took);
    }
    return seconds;
  }

  bool IsRight() const {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      const adhereTo<uint64_t> glue(chunks_[c]);
      const uint64_t* const elements = glue;
      for (size_t i = 0; i < count_; ++i) {
        if (elements[i] != c + visits_[c]) return false;
      }
    }
    return true;
  }

 private:
  const size_t count_;
  std::vector<uint64_t> visits_;
  std::vector<managedPtr<uint64_t>> chunks_;
  std::mt19937_64 random_{kSeed};
  uint64_t sink_ = 0;
};

}  // namespace ramspan::bench
