// What client and memory server say to each other on their stream once they trust each other: one frame after the other,
// each a kind and what belongs to it. The records of common/wire.h travel in frames of their own; a grant carries besides how
// its memory is reached, which only the two ends of this transport need to know.
//
// EncodeFrame writes at most kFrameBytesMax bytes; DecodeFrame believes nothing: what it returns has a known kind, exactly the
// length of its kind, and lengths and texts within bounds. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "common/fabric.h"
#include "common/service_order.h"
#include "common/status.h"
#include "common/wire.h"

namespace ramspan {

inline constexpr size_t kFrameBytesMax = 640;
inline constexpr size_t kFrameTextMax = 107;

// The first frame of each side.
struct Introduction {
  uint64_t instance = 0;        // of the process: a number of its own, made at its start
  uint64_t capacity_bytes = 0;  // a server's pool; 0 from a client
  bool near = false;            // a server: leases come as descriptors of memory, for load and store
  FabricAddress fabric;         // empty (no bytes): none
  std::string local_name;       // a server: where clients on its own host find it ("@name"); may be empty
  std::string label;            // for messages and lists: who this is
  std::string job;              // a client: the job that it belongs to, whose processes share what a server lends
  bool operator==(const Introduction&) const = default;
};

// Of a lease: for one-sided transfers, or for load and store by the descriptor that comes with the frame.
struct LeaseAccess {
  uint64_t key = 0, address = 0;
  bool has_descriptor = false;
  bool operator==(const LeaseAccess&) const = default;
};

struct LinkFrame {
  // What was moved is told about once a second. kPing is answered by kPong. kRecord and kGrant hold a record as it came, not decoded. kOrder comes from controllers only.
  enum class Kind : uint8_t { kIntroduction = 1, kRecord = 2, kGrant = 3, kPing = 4, kPong = 5, kOrder = 6, kReport = 7, kDraining = 8, kGiveBack = 9, kUsage = 10 };
  Kind kind = Kind::kPing;
  WireRecord record{};
  LeaseAccess access;
  Introduction introduction;
  ServiceCommand order;
  ServiceReport report;
  bool draining = false;  // kDraining, from a server: whether clients should leave
  uint64_t bytes = 0;     // kGiveBack, from a server: leases, until so much was returned over this link in all
  ServiceUsage usage;     // kUsage, from a client: what it has moved so far; rates are the server's business
};

using FrameBuffer = std::array<std::byte, kFrameBytesMax>;

// A text as frames take it: printable ASCII, each other byte as '?', cut at kFrameTextMax.
std::string FrameText(std::string text);
// The number of bytes. REQUIRES: texts and address within their bounds.
size_t EncodeFrame(const LinkFrame& frame, FrameBuffer* out);
// kInvalidArgument says what is wrong. The frame's texts are allocated for introductions and reports only.
Status DecodeFrame(std::span<const std::byte> bytes, LinkFrame* frame);

}  // namespace ramspan
