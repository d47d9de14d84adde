#include "client/engine/loss_log.h"

#include <bit>
#include <cstdio>
#include <utility>

#include "common/log.h"

namespace ramspan {

namespace {
constexpr uint64_t kLossesTold = 16;  // one by one; a program that goes on may lose thousands
}  // namespace

void LossLog::Note(uint32_t chunk, uint64_t bytes, const char* tier, bool wrong) {
  ++sum_;
  if (untold_ == kMost) return;
  Loss& loss = losses_[untold_++];
  loss = {.chunk = chunk, .bytes = bytes, .tier = {}, .wrong = wrong};
  std::snprintf(loss.tier, sizeof loss.tier, "%s", tier);
}

LossLog::News LossLog::TakeNews() { return {.losses = losses_, .n = std::exchange(untold_, 0), .sum = sum_}; }

void LossLog::News::Tell() const {
  for (size_t i = 0; i < n && sum <= kLossesTold; ++i) {
    LogWarning("chunk %u of %llu bytes is lost: %s %s swap", losses[i].chunk,
               static_cast<unsigned long long>(losses[i].bytes),
               losses[i].wrong ? "it was read twice, and twice its checksum was wrong, from" : "its place is gone in",
               losses[i].tier);
  }
  if (n > 0 && sum > kLossesTold && std::bit_floor(sum) > sum - n) {
    LogWarning("%llu chunks are lost so far, the last one in %s swap", static_cast<unsigned long long>(sum),
               losses[n - 1].tier);
  }
}

}  // namespace ramspan
