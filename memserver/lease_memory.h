// LeaseMemory: the memory of a server's leases where each lease has memory of its own, at addresses of its own: both are made for one
// lease. The memory is given back to the system with it, the addresses are never used again (there are 128 TiB: a pool of 64 GiB
// can be lent two thousand times over). So the next client finds zeros, a client that keeps an old mapping or registration, or
// whose write is still under way, reaches nothing of others, and a server takes no more than was leased. Addresses are taken one
// after the other, so that what is left of neighbours is one mapping: the system allows 65530 of them (vm.max_map_count).
//
// Private leases are anonymous memory of this process, for one-sided transfers. Shared ones are sealed memory files (memfd) for
// clients of this host, which map them; this process stores nothing there. What a client has mapped may outlive its link (Leave).
//
// A lease lies on the NUMA node of the thread that makes it, where the process has no memory policy; from others what that one has no room for.
// Huge pages are asked for.
//
// Making a lease costs 1 to 2 us a page (2 to 4 GB/s is the best that was seen), so it is done in steps between which others may
// be served. All pages are there when Make returns: a store of a client that finds no memory would be its SIGBUS.
//
// Giving pages back costs as well: 10 to 17 GB/s where they are small. The leases of a client that ends may be all of a terabyte, so what is dropped is
// given back in steps, too (FreeSome), while others are served. A new lease gives back as much before it takes memory.
//
// Thread-safety: none; the server's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "common/descriptor.h"
#include "common/status.h"

namespace ramspan {

class LeaseMemory {
 public:
  // For offsets below `bytes`. `between_steps` is called while a lease is made.
  LeaseMemory(uint64_t bytes, std::function<void()> between_steps) : bytes_(bytes), between_steps_(std::move(between_steps)) {}
  ~LeaseMemory();
  LeaseMemory(const LeaseMemory&) = delete;
  LeaseMemory& operator=(const LeaseMemory&) = delete;

  uint64_t bytes() const { return bytes_; }

  // kResourceExhausted: the system has no memory for it. REQUIRES: a multiple of the page size, within bytes(), and no lease
  // there now.
  Status MakePrivate(uint64_t offset, uint64_t bytes);
  Status MakeShared(uint64_t offset, uint64_t bytes);
  // What was made there, and all of it: a client that keeps a mapping of a shared one finds zeros, once FreeSome has come to it.
  void Drop(uint64_t offset) { Drop(offset, false); }
  // As Drop, but a client that has mapped a shared lease keeps it with its bytes, until it unmaps it or ends.
  void Leave(uint64_t offset) { Drop(offset, true); }
  // Gives back the next step of what was dropped: some MiB, or a shared lease that was left.
  void FreeSome();
  bool has_dropped() const { return !dropped_.empty(); }

  std::span<std::byte> private_memory(uint64_t offset) const;
  int shared_descriptor(uint64_t offset) const;

 private:
  struct Made {
    uint64_t bytes = 0;
    std::byte* begin = nullptr;  // of a private one
    Descriptor shared;  // empty: private
  };
  struct Dropped {
    Made lease;
    bool mappings_keep_bytes = false;
    uint64_t freed = 0;  // bytes
  };

  void Drop(uint64_t offset, bool mappings_keep_bytes);
  bool TakeArea(uint64_t bytes);
  Status Populate(std::byte* begin, uint64_t bytes);
  void Entomb(std::span<std::byte> memory);

  const uint64_t bytes_;
  const std::function<void()> between_steps_;
  std::map<uint64_t, Made> made_;
  std::deque<Dropped> dropped_;              // and not yet given back
  std::vector<std::span<std::byte>> areas_;  // of addresses; leases come out of the last one
  uint64_t area_used_ = 0;                   // of the last one
  std::deque<std::span<std::byte>> graves_;  // the last ones that were dropped
};

}  // namespace ramspan
