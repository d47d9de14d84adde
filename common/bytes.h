// Bytes. Little-endian numbers in byte buffers, whatever the host's order and the place's alignment; compilers make one move of each.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

namespace ramspan {

// REQUIRES: the buffer holds `at` + sizeof(T) bytes.
template <std::unsigned_integral T>
void PutLittle(std::span<std::byte> buffer, size_t at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) buffer[at + i] = static_cast<std::byte>(value >> (8 * i));
}

template <std::unsigned_integral T>
T GetLittle(std::span<const std::byte> buffer, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<T>(buffer[at + i]) << (8 * i));
  return value;
}

// As libraries of C want their bytes.
inline unsigned char* Raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
inline const unsigned char* Raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

}  // namespace ramspan
