// IdTable: a value for each chunk id, in slabs like those of ChunkTable: growing costs no more than what is added, and moves nothing.
// Values begin as zeros. Thread-safety: none; the policy's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace ramspan {

template <typename T>
class IdTable {
 public:
  // Room for ids below `ids`. Throws std::bad_alloc, and is as it was.
  void Reserve(uint32_t ids) {
    while (slabs_.size() * kSlab < ids) slabs_.push_back(std::make_unique<T[]>(kSlab));
  }
  T& operator[](uint32_t id) { return slabs_[id / kSlab][id % kSlab]; }
  const T& operator[](uint32_t id) const { return slabs_[id / kSlab][id % kSlab]; }

 private:
  static constexpr uint32_t kSlab = 1024;
  std::vector<std::unique_ptr<T[]>> slabs_;
};

}  // namespace ramspan
