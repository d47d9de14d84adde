// The control messages between a client and a memory server: fixed-size little-endian records of 64 bytes, the same on
// every transport. Encode writes every byte; Decode believes nothing: a record that it returns has a known version and
// type, sizes and offsets that are multiples of the lease granule and cannot overflow, and zeros in every field that
// its type does not use. Whether a lease or an offset belongs to the sender is the lease table's question.
//
// byte  0 magic "RSPN"   4 version u16   6 type u16   8 sequence u32   12 flags u32
//      16 lease u64     24 offset u64   32 bytes u64  40 minimum_bytes u64  48 free_bytes u64  56 zero u64
//
// Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/status.h"

namespace ramspan {

inline constexpr size_t kWireBytes = 64;
inline constexpr uint16_t kWireVersion = 3;
// Leases begin and end on multiples of this in a server's pool.
inline constexpr uint64_t kLeaseGranule = uint64_t{64} << 10;
// No pool is larger; keeps every sum of two sizes far from overflow.
inline constexpr uint64_t kPoolBytesMax = uint64_t{1} << 46;

enum class WireType : uint16_t {
  // Client to server.
  kLeaseRequest = 1,  // bytes: wanted; minimum_bytes: what would still help; flags: of bytes, what somebody waits for, in granules (0: nobody yet), and kNoOtherPlace
  kLeaseReturn = 2,   // lease
  kActivity = 3,      // "I am using RMA now": an off-node client, again and again while it is busy; bytes: what one call
                      // into MPI will bring, during which it can say nothing, or 0
  kBye = 4,           // flags bit 0: everybody is alive, leave MPI together
  // Server to client; `sequence` is the request's.
  kLeaseGrant = 16,  // lease, offset, bytes; free_bytes: what this client could still get
  kFull = 17,        // flags: FullReason; free_bytes
  kSpare = 18,       // no answer: others need memory, so give back what you do not use
};

// In a request's flags: who waits fails if it gets nothing.
inline constexpr uint32_t kNoOtherPlace = uint32_t{1} << 31;
inline constexpr uint32_t kByeTogether = 1;
// kSoon: others have been asked to make room for this client, or to give back what they do not use.
enum class FullReason : uint32_t { kPool = 1, kQuota = 2, kNoMemory = 3, kSoon = 4 };

struct WireMessage {
  WireType type = WireType::kActivity;
  uint32_t sequence = 0;
  uint32_t flags = 0;
  uint64_t lease = 0;  // never 0 in a message that carries one
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t minimum_bytes = 0;
  uint64_t free_bytes = 0;
  bool operator==(const WireMessage&) const = default;
};

using WireRecord = std::array<std::byte, kWireBytes>;

WireRecord Encode(const WireMessage& message);

// kInvalidArgument names the field that is wrong. `record` may have any length.
Result<WireMessage> Decode(std::span<const std::byte> record);

}  // namespace ramspan
