#include "memserver/pool_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ramspan {
namespace {

// Fresh pages cost 2 to 3 us each: steps that keep nobody waiting for long.
constexpr uint64_t kStepBytes = uint64_t{256} << 10;
// Made resident ahead: as much again as was ever leased, so that a job that needs little takes little.
constexpr uint64_t kAheadMin = uint64_t{16} << 20, kAheadMax = uint64_t{256} << 20;

}  // namespace

bool PoolPages::Populate(uint64_t offset, uint64_t bytes) {
  leased_end_ = std::max(leased_end_, offset + bytes);
  while (resident_end_ < leased_end_) {
    if (Step()) continue;
    leased_end_ = std::min(leased_end_, offset);
    return false;
  }
  return true;
}

bool PoolPages::PopulateAhead() {
  const uint64_t wanted = std::min<uint64_t>(pool_.size(), leased_end_ + std::clamp(leased_end_, kAheadMin, kAheadMax));
  return resident_end_ < wanted && Step();
}

bool PoolPages::Step() {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uint64_t step = std::min<uint64_t>(kStepBytes, pool_.size() - resident_end_);
  const auto begin = reinterpret_cast<uintptr_t>(pool_.data() + resident_end_) & ~(page - 1);
  const auto end = reinterpret_cast<uintptr_t>(pool_.data() + resident_end_ + step);
  const auto started = std::chrono::steady_clock::now();
  // Kernels before 5.14 do not know the call: then the first store makes the page, as without all this.
  if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) return false;
  resident_end_ += step;
  after_step_(std::chrono::steady_clock::now() - started);
  return true;
}

}  // namespace ramspan
