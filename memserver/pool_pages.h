// PoolPages: which part of a server's pool is resident. Faults the pages in here, before a client has them: NUMA
// placement and the cgroup's charge are then the server's, a client's first store does not pay for fresh pages (2 to 3 us
// each), and a store into a page that cannot be had, which would be a SIGBUS in the client, never happens.
// Leases are cut from the low end, so one mark tells what is resident.
//
// Thread-safety: none; the server's loop. Ownership: borrows the pool.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace ramspan {

class PoolPages {
 public:
  // `after_step` hears how long a step took; transfers of other clients stood still meanwhile.
  PoolPages(std::span<std::byte> pool, std::function<void(std::chrono::nanoseconds)> after_step)
      : pool_(pool), after_step_(std::move(after_step)) {}

  // For a lease. False: the system has no memory left.
  bool Populate(uint64_t offset, uint64_t bytes);
  // For the next lease: one step; false when there is nothing to do, or no memory for it.
  bool PopulateAhead();

 private:
  bool Step();

  const std::span<std::byte> pool_;
  const std::function<void(std::chrono::nanoseconds)> after_step_;
  uint64_t leased_end_ = 0;    // the highest end of a lease so far
  uint64_t resident_end_ = 0;  // [0, resident_end_) of the pool is in memory
};

}  // namespace ramspan
