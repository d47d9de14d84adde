// RepeatedMapping: a writable range of addresses of any length that takes little memory, because the same few pages stand
// there again and again. For receiving what nobody wants: a message has to be received whole, and a stranger chose its
// length.
//
// Thread-safety: none. Ownership: owns the range; unmapped with the object.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/status.h"

namespace ramspan {

class RepeatedMapping {
 public:
  // At least `bytes` of addresses over a window of 2 MiB, or of bytes / 16384 where that is more (the system allows a
  // process 65530 mappings). kResourceExhausted: no addresses or no memory for it.
  static Result<RepeatedMapping> Make(uint64_t bytes);
  ~RepeatedMapping();
  RepeatedMapping(RepeatedMapping&& other) noexcept;
  RepeatedMapping& operator=(RepeatedMapping&&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t window_bytes() const { return window_bytes_; }  // what it can take of memory

 private:
  RepeatedMapping(std::byte* data, uint64_t bytes, uint64_t window_bytes)
      : data_(data), bytes_(bytes), window_bytes_(window_bytes) {}

  std::byte* data_;
  uint64_t bytes_;
  uint64_t window_bytes_;
};

}  // namespace ramspan
