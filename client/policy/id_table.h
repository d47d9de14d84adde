// IdTable: a value for each chunk id. Values begin as zeros, and take memory when they are written first. Needs no heap. Thread-safety: none; the policy's.
#pragma once

#include <cstdint>
#include <new>

#include "common/zero_array.h"

namespace ramspan {

template <typename T>
class IdTable {
 public:
  // Room for ids below `ids`. Throws std::bad_alloc, and is as it was.
  void Reserve(uint32_t ids) {
    if (ids <= values_.size()) return;
    if (!values_.Grow(ids)) throw std::bad_alloc();
    values_.KeepSmallPages();
  }
  T& operator[](uint32_t id) { return values_[id]; }
  const T& operator[](uint32_t id) const { return values_[id]; }

 private:
  ZeroArray<T> values_;
};

}  // namespace ramspan
