// The format of traces (RAMSPAN_TRACE): what a program did with its chunks, for `ramspan bench policy`. This file is all that knows it.
//
// A header of 16 bytes: "RSPTRACE", the version (4 bytes, the least significant first), 4 bytes 0. Then records, each a number of 64
// bits at most as LEB128 (seven bits a byte, the lowest first; the highest bit says that another byte follows): the kind in its three
// lowest bits, and above them a value.
//
//   kind     value                       then             meaning
//   kCreate  id                          bytes (LEB128)   a chunk of so many bytes; ids are used again after kFree
//   kFree    id                                           its end
//   kRead    id                                           touched by the thread that is current
//   kWrite   id                                           touched to be written
//   kDirty   id                                           written since it came in, by its last touch: told when it is to leave
//   kThread  number                                       the touches that follow are this thread's; at first it is 0
//
// An id stands as its difference to the one before it, zigzag (0, -1, 1, -2 are 0, 1, 2, 3), so that touches of neighbours take one byte.
//
// Thread-safety: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ramspan {

enum class TraceKind : uint8_t { kCreate, kFree, kRead, kWrite, kDirty, kThread };

struct TraceRecord {
  TraceKind kind{};
  uint32_t value = 0;  // an id, or a thread
  uint64_t bytes = 0;  // of kCreate
};

namespace trace_format {

inline constexpr char kMagic[8] = {'R', 'S', 'P', 'T', 'R', 'A', 'C', 'E'};
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kHeaderBytes = 16;
inline constexpr size_t kRecordBytesMax = 6 + 10;  // 35 bits, 64 bits
inline constexpr int kKindBits = 3;

inline void PutHeader(std::byte* out) {
  std::memset(out, 0, kHeaderBytes);
  std::memcpy(out, kMagic, sizeof kMagic);
  for (size_t i = 0; i < 4; ++i) out[8 + i] = static_cast<std::byte>(kVersion >> 8 * i);
}

inline bool HasMagic(std::span<const std::byte> file) {
  return file.size() >= kHeaderBytes && std::memcmp(file.data(), kMagic, sizeof kMagic) == 0;
}
// REQUIRES: HasMagic.
inline uint32_t VersionOf(std::span<const std::byte> file) {
  uint32_t version = 0;
  for (size_t i = 0; i < 4; ++i) version |= static_cast<uint32_t>(file[8 + i]) << 8 * i;
  return version;
}

inline size_t PutNumber(uint64_t number, std::byte* out) {
  size_t n = 0;
  for (; number >= 128; number >>= 7) out[n++] = static_cast<std::byte>(number | 128);
  out[n++] = static_cast<std::byte>(number);
  return n;
}

// The bytes that it took; 0: there is no whole number of 64 bits.
inline size_t TakeNumber(std::span<const std::byte> in, uint64_t* number) {
  *number = 0;
  for (size_t n = 0; n < in.size() && n < 10; ++n) {
    const uint64_t seven = static_cast<uint64_t>(in[n]) & 127;
    if (n == 9 && seven > 1) return 0;
    *number |= seven << 7 * n;
    if ((in[n] & std::byte{128}) == std::byte{0}) return n + 1;
  }
  return 0;
}

// The id before the next one; the same at both ends.
class Ids {
 public:
  uint64_t Encode(uint32_t id) {
    const int64_t difference = int64_t{id} - last_;
    last_ = id;
    return static_cast<uint64_t>(difference) << 1 ^ static_cast<uint64_t>(difference >> 63);
  }
  // False: this is no id.
  bool Decode(uint64_t value, uint32_t* id) {
    const auto difference = static_cast<int64_t>(value >> 1 ^ (0 - (value & 1)));
    if (difference > UINT32_MAX || difference < -int64_t{UINT32_MAX}) return false;
    if (last_ + difference < 0 || last_ + difference > UINT32_MAX) return false;
    last_ += difference;
    *id = static_cast<uint32_t>(last_);
    return true;
  }

 private:
  int64_t last_ = 0;
};

// The bytes that it took of `out`, which has kRecordBytesMax.
inline size_t PutRecord(const TraceRecord& record, Ids* ids, std::byte* out) {
  const uint64_t value = record.kind == TraceKind::kThread ? record.value : ids->Encode(record.value);
  const size_t n = PutNumber(value << kKindBits | static_cast<uint64_t>(record.kind), out);
  return record.kind == TraceKind::kCreate ? n + PutNumber(record.bytes, out + n) : n;
}

enum class Taken { kRecord, kCutShort, kGarbled };

// *bytes: those that the record took. kCutShort: the file ends within it.
inline Taken TakeRecord(std::span<const std::byte> in, Ids* ids, TraceRecord* record, size_t* bytes) {
  const auto broken = [](size_t left) { return left < 10 ? Taken::kCutShort : Taken::kGarbled; };
  uint64_t number;
  size_t n = TakeNumber(in, &number);
  if (n == 0) return broken(in.size());
  const uint64_t kind = number & ((1 << kKindBits) - 1), value = number >> kKindBits;
  if (kind > static_cast<uint64_t>(TraceKind::kThread)) return Taken::kGarbled;
  record->kind = static_cast<TraceKind>(kind);
  if (record->kind == TraceKind::kThread) {
    if (value > UINT32_MAX) return Taken::kGarbled;
    record->value = static_cast<uint32_t>(value);
  } else if (!ids->Decode(value, &record->value)) {
    return Taken::kGarbled;
  }
  if (record->kind == TraceKind::kCreate) {
    const size_t more = TakeNumber(in.subspan(n), &record->bytes);
    if (more == 0) return broken(in.size() - n);
    n += more;
  }
  *bytes = n;
  return Taken::kRecord;
}

}  // namespace trace_format
}  // namespace ramspan
