#include "common/wire.h"

#include <string>

#include "common/bytes.h"

namespace ramspan {
namespace {

constexpr uint32_t kMagic = 0x4e505352;  // "RSPN"

// Which fields a type carries; the others have to be zero.
struct Fields {
  bool lease = false, offset_and_bytes = false, minimum = false, free = false, any_bytes = false;
  uint32_t flags_min = 0, flags_max = 0;
};

bool FieldsOf(uint16_t type, Fields* fields) {
  switch (static_cast<WireType>(type)) {
    case WireType::kLeaseRequest: *fields = {.minimum = true, .flags_max = UINT32_MAX}; return true;
    case WireType::kLeaseReturn: *fields = {.lease = true}; return true;
    case WireType::kActivity: *fields = {.any_bytes = true}; return true;
    case WireType::kBye: *fields = {.flags_max = kByeTogether}; return true;
    case WireType::kLeaseGrant: *fields = {.lease = true, .offset_and_bytes = true, .free = true}; return true;
    case WireType::kFull: *fields = {.free = true, .flags_min = 1, .flags_max = static_cast<uint32_t>(FullReason::kSoon)}; return true;
    case WireType::kSpare: *fields = {}; return true;
  }
  return false;
}

bool IsLeaseSize(uint64_t bytes) { return bytes > 0 && bytes <= kPoolBytesMax && bytes % kLeaseGranule == 0; }

// The name of the first field that is wrong, or nullptr.
const char* WrongField(const WireMessage& m, const Fields& fields) {
  if (m.flags < fields.flags_min || m.flags > fields.flags_max) return "flags";
  if (fields.lease != (m.lease != 0)) return "lease";
  if (fields.minimum) {
    if (!IsLeaseSize(m.bytes)) return "bytes";
    if (!IsLeaseSize(m.minimum_bytes) || m.minimum_bytes > m.bytes) return "minimum_bytes";
  } else if (m.minimum_bytes != 0) {
    return "minimum_bytes";
  }
  if (fields.offset_and_bytes) {
    if (!IsLeaseSize(m.bytes)) return "bytes";
    if (m.offset % kLeaseGranule != 0 || m.offset > kPoolBytesMax - m.bytes) return "offset";
  } else {
    if (m.bytes > (fields.any_bytes ? kPoolBytesMax : 0) && !fields.minimum) return "bytes";
    if (m.offset != 0) return "offset";
  }
  if (m.free_bytes > kPoolBytesMax || (!fields.free && m.free_bytes != 0)) return "free_bytes";
  return nullptr;
}

// Who sends such a thing is refused also where there is no heap to say why.
template <typename F>
Status Wrong(const F& words) {
  return WithWords(StatusCode::kInvalidArgument, [&] { return "control message " + words(); }, StaticText("a control message that cannot be"));
}

}  // namespace

WireRecord Encode(const WireMessage& message) {
  WireRecord record{};
  PutLittle(record, 0, kMagic);
  PutLittle(record, 4, kWireVersion);
  PutLittle(record, 6, static_cast<uint16_t>(message.type));
  PutLittle(record, 8, message.sequence);
  PutLittle(record, 12, message.flags);
  PutLittle(record, 16, message.lease);
  PutLittle(record, 24, message.offset);
  PutLittle(record, 32, message.bytes);
  PutLittle(record, 40, message.minimum_bytes);
  PutLittle(record, 48, message.free_bytes);
  return record;
}

Result<WireMessage> Decode(std::span<const std::byte> record) {
  if (record.size() != kWireBytes) return Wrong([&] { return "of " + std::to_string(record.size()) + " bytes, not 64"; });
  if (GetLittle<uint32_t>(record, 0) != kMagic) return Wrong([] { return std::string("without Ramspan's magic number"); });
  const auto version = GetLittle<uint16_t>(record, 4);
  if (version != kWireVersion) {
    return Wrong([&] {
      return "of protocol version " + std::to_string(version) + ", this side speaks " + std::to_string(kWireVersion) + ": use one Ramspan version in a job";
    });
  }
  const auto type = GetLittle<uint16_t>(record, 6);
  Fields fields;
  if (!FieldsOf(type, &fields)) return Wrong([&] { return "of unknown type " + std::to_string(type); });
  const WireMessage message{.type = static_cast<WireType>(type),
                            .sequence = GetLittle<uint32_t>(record, 8),
                            .flags = GetLittle<uint32_t>(record, 12),
                            .lease = GetLittle<uint64_t>(record, 16),
                            .offset = GetLittle<uint64_t>(record, 24),
                            .bytes = GetLittle<uint64_t>(record, 32),
                            .minimum_bytes = GetLittle<uint64_t>(record, 40),
                            .free_bytes = GetLittle<uint64_t>(record, 48)};
  const char* wrong = WrongField(message, fields);
  if (wrong == nullptr && GetLittle<uint64_t>(record, 56) != 0) wrong = "padding";
  if (wrong != nullptr) return Wrong([&] { return "of type " + std::to_string(type) + " with a wrong field: " + wrong; });
  return message;
}

}  // namespace ramspan
