// LeaseMemory: the memory of a server's leases where each lease has memory of its own. An offset stands for the same place for
// ever, but the memory behind it is made for one lease and given back to the system with it. So the next client finds zeros, a
// client that keeps an old mapping or an old registration finds nothing of others, and a server takes no more than was leased.
//
// Private leases are anonymous memory of this process, for one-sided transfers. Shared ones are sealed memory files (memfd) for
// clients of this host, which map them; this process never touches those.
//
// Making a lease costs 1 to 2 us a page (2 to 4 GB/s is the best that was seen), so it is done in steps between which others may
// be served. All pages are there when Make returns: a store of a client that finds no memory would be its SIGBUS.
//
// Thread-safety: none; the server's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "common/descriptor.h"
#include "common/status.h"

namespace ramspan {

class LeaseMemory {
 public:
  // Reserves addresses, no memory. `between_steps` is called while a lease is made.
  static Result<std::unique_ptr<LeaseMemory>> Reserve(uint64_t bytes, std::function<void()> between_steps);
  ~LeaseMemory();
  LeaseMemory(const LeaseMemory&) = delete;
  LeaseMemory& operator=(const LeaseMemory&) = delete;

  uint64_t bytes() const { return bytes_; }

  // kResourceExhausted: the system has no memory for it. REQUIRES: a multiple of the page size, within bytes(), and no lease
  // there now.
  Status MakePrivate(uint64_t offset, uint64_t bytes);
  Status MakeShared(uint64_t offset, uint64_t bytes);
  // What was made there, and all of it.
  void Drop(uint64_t offset);

  std::span<std::byte> private_memory(uint64_t offset) const;
  int shared_descriptor(uint64_t offset) const;

 private:
  struct Made {
    uint64_t bytes = 0;
    Descriptor shared;  // empty: private
  };

  LeaseMemory(std::byte* base, uint64_t bytes, std::function<void()> between_steps)
      : base_(base), bytes_(bytes), between_steps_(std::move(between_steps)) {}
  Status Populate(std::byte* begin, uint64_t bytes);

  std::byte* const base_;
  const uint64_t bytes_;
  const std::function<void()> between_steps_;
  std::map<uint64_t, Made> made_;
};

}  // namespace ramspan
