#include "bench/swap_targets_accesses.h"

#include <random>
#include <stdexcept>

#include "bench/policy_reference.h"
#include "bench/policy_trace.h"

namespace ramspan::bench {
namespace {

constexpr TargetAccess kTargetAccesses[] = {
    {"sequential", "an iterated sweep that reads and writes each chunk"},
    {"random", "reads and writes chunks in random order"},
    {"read-mostly", "an iterated sweep that reads each chunk and writes one in 16"},
    {"mixed", "in turns the next chunk in order, read, and a random one, written: 4 of 5 of these among a tenth of the data"},
};

// At the end of a trace MIN has no future to care for and moves less, which shows in the mean of a few passes.
constexpr int kPassesOfMean = 8;

constexpr uint32_t kReadMostlyWrites = 16;
constexpr uint32_t kHotPart = 10, kHotOf = 5;  // a tenth of the data takes 4 of 5 random uses

}  // namespace

std::span<const TargetAccess> TargetAccesses() { return kTargetAccesses; }

std::vector<TargetStep> StepsOfPass(const std::string& access, const TargetLayout& layout, int thread, uint64_t pass) {
  const uint32_t begin = layout.PartBegin(thread), count = layout.PartBegin(thread + 1) - begin;
  std::mt19937_64 random(pass * 1024 + static_cast<uint64_t>(thread));
  std::vector<TargetStep> steps;
  steps.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (access == "sequential") {
      steps.push_back({begin + i, true});
    } else if (access == "random") {
      steps.push_back({begin + static_cast<uint32_t>(random() % count), true});
    } else if (access == "read-mostly") {
      steps.push_back({begin + i, (i + pass) % kReadMostlyWrites == 0});
    } else if (access != "mixed") {
      throw std::runtime_error("there is no access \"" + access + "\"");
    } else if (i % 2 == 0) {
      // Half a sweep a pass, so the next pass goes on where this one ends.
      steps.push_back({begin + (i / 2 + (pass % 2 != 0 ? (count + 1) / 2 : 0)) % count, false});
    } else {
      const bool hot = random() % kHotOf != 0;
      const uint32_t among = hot ? count / kHotPart + 1 : count;
      steps.push_back({begin + static_cast<uint32_t>(random() % among), true});
    }
  }
  return steps;
}

double LeastBytesMoved(const std::string& access, const TargetLayout& layout, uint64_t limit) {
  PolicyTrace trace;
  trace.threads = static_cast<uint32_t>(layout.threads);
  for (uint32_t c = 0; c < layout.chunks; ++c) trace.Create(layout.chunk_bytes);
  // The threads take turns. The first half of the touches, which fills memory, is not counted.
  const auto add = [&](const std::vector<std::vector<TargetStep>>& parts) {
    size_t longest = 0;
    for (const auto& part : parts) longest = std::max(longest, part.size());
    for (size_t i = 0; i < longest; ++i) {
      for (size_t t = 0; t < parts.size(); ++t) {
        if (i < parts[t].size()) trace.Touch(parts[t][i].chunk, parts[t][i].write, static_cast<uint16_t>(t));
      }
    }
  };
  for (int pass = 0; pass < 2 * kPassesOfMean; ++pass) {
    std::vector<std::vector<TargetStep>> parts;
    for (int t = 0; t < layout.threads; ++t) parts.push_back(StepsOfPass(pass == 0 ? "sequential" : access, layout, t, static_cast<uint64_t>(pass)));
    add(parts);
  }
  const PolicyTraffic least = ReplayReference(trace, std::max(limit, trace.least_limit()), Reference::kMin, true);
  return static_cast<double>(least.bytes_in + least.bytes_out) / kPassesOfMean;
}

void FillField(uint32_t chunk, double* elements, size_t count) {
  const double phase = static_cast<double>(chunk % 1009) / 1009;
  const double slope = 0.5 * phase, bend = 0.3 * (1 - phase), step = 1 / static_cast<double>(count);
  for (size_t i = 0; i < count; ++i) {
    const double t = static_cast<double>(i) * step;
    elements[i] = 1.1 + t * (slope + bend * t);
  }
  if (chunk % 2 == 0) return;
  for (size_t i = 0; i < count; ++i) elements[i] = static_cast<float>(elements[i]);
}

[[gnu::noinline]] void AddOneTo(double* elements, size_t count) {
  for (size_t i = 0; i < count; ++i) elements[i] += 1;
}

// By eight sums: one alone waits for each addition, and the loop would be slower than memory.
[[gnu::noinline]] double SumOf(const double* elements, size_t count) {
  double sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (size_t k = 0; k < 8; ++k) sums[k] += elements[i + k];
  }
  for (; i < count; ++i) sums[0] += elements[i];
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum;
}

}  // namespace ramspan::bench
