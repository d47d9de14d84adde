// What `ramspan ctl` says to a memory server that stands by itself, and what the server answers: one report of the server, and
// before it, when it is asked for a list, one for each client and one for each quota of a job. They travel in frames of
// common/link_frame.h; who sends an order has proved the secret as a controller, a role of its own. Values; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace ramspan {

// kLook changes nothing, like kList, and is answered by the server's own report alone, as all others but kList are.
enum class ServiceOrder : uint8_t { kList = 1, kStop = 2, kDrain = 3, kUndrain = 4, kShrink = 5, kQuota = 6, kLook = 7, kNoOwnQuota = 8 };
inline constexpr uint8_t kServiceOrderMax = 8;

struct ServiceCommand {
  ServiceOrder order = ServiceOrder::kList;
  uint64_t bytes = 0;  // kShrink: what the server lends from now on; kQuota: the most that a job may hold
  std::string job;     // kQuota: which one; empty: each that has no quota of its own. kNoOwnQuota: which one is like these again
  bool operator==(const ServiceCommand&) const = default;
};

// What clients have moved to and from a server, by their own account, and how fast of late.
struct ServiceUsage {
  uint64_t written_bytes = 0, read_bytes = 0;
  uint64_t written_per_second = 0, read_per_second = 0;
  ServiceUsage& operator+=(const ServiceUsage& other) {
    written_bytes += other.written_bytes;
    read_bytes += other.read_bytes;
    written_per_second += other.written_per_second;
    read_per_second += other.read_per_second;
    return *this;
  }
  bool operator==(const ServiceUsage&) const = default;
};

// What a client says may be any number.
inline uint64_t PerSecond(uint64_t bytes, double seconds) {
  if (!(seconds > 0)) return 0;
  const double rate = static_cast<double>(bytes) / seconds;
  return rate < 0x1p64 ? static_cast<uint64_t>(rate) : UINT64_MAX;
}

struct ServiceReport {
  // kQuota: of a job that has one of its own, whether or not its clients are there.
  enum class Of : uint8_t { kClient = 0, kServer = 1, kQuota = 2 };
  Of of = Of::kClient;
  uint64_t held_bytes = 0;  // leased to it; of the server: to all
  uint64_t lent_bytes = 0;  // what the server lends; 0 of others
  uint64_t quota_bytes = UINT64_MAX;  // of a client's job; of the server: of each job that has none of its own. UINT64_MAX: no limit
  uint32_t clients = 0;     // of the server
  bool draining = false;    // of the server
  ServiceUsage usage;
  std::string label;        // who it is
  std::string job;          // of a client; empty: it has said none. Of a quota: whose
  bool operator==(const ServiceReport&) const = default;
};

}  // namespace ramspan
