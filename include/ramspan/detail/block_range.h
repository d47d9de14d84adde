// BlockRange: the blocks of a managedArray or managedVector, in order: an input range that can be indexed. A block stays pinned as long as the object
// that *it and [i] gave. Private to Ramspan although installed (resident.h). Thread-safety: as the container's for reading.
#pragma once

#include <cstddef>
#include <iterator>
#include <utility>

#include "ramspan/detail/span.h"

namespace ramspan::detail {

template <typename Container>
class BlockRange {
 public:
  using value_type = decltype(std::declval<Container&>().block(0));

  class iterator {
   public:
    using value_type = BlockRange::value_type;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    iterator() = default;
    iterator(Container* container, size_t b) : container_(container), b_(b) {}
    value_type operator*() const { return container_->block(b_); }
    iterator& operator++() {
      ++b_;
      return *this;
    }
    void operator++(int) { ++b_; }
    bool operator==(const iterator& other) const { return container_ == other.container_ && b_ == other.b_; }
    bool operator!=(const iterator& other) const { return !(*this == other); }

   private:
    Container* container_ = nullptr;
    size_t b_ = 0;
  };

  BlockRange(Container* container) : container_(container) {}  // NOLINT: made by blocks() only
  iterator begin() const { return {container_, 0}; }
  iterator end() const { return {container_, size()}; }
  size_t size() const { return container_->block_count(); }
  value_type operator[](size_t b) const { return container_->block(b); }
  Container& container() const { return *container_; }

 private:
  Container* container_;
};

}  // namespace ramspan::detail
