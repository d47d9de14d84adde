// std::span where the program is compiled as C++20; as C++17, as much of it as this interface needs, passed in the same
// way: pointer, then size. Private to Ramspan although installed.
#pragma once

#include "ramspan/detail/cxx17.h"

#include <cstddef>

#if defined(__cplusplus) && __cplusplus >= 202002L
#include <span>
#define RAMSPAN_HAS_STD_SPAN 1
#endif

namespace ramspan::detail {

#ifdef RAMSPAN_HAS_STD_SPAN
template <typename T>
using Span = std::span<T>;
static_assert(sizeof(Span<int>) == 2 * sizeof(void*), "a program compiled as C++17 passes a pointer and a size");
#else
template <typename T>
class Span {
 public:
  Span() = default;
  Span(T* data, size_t size) : data_(data), size_(size) {}
  T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};
#endif

}  // namespace ramspan::detail
