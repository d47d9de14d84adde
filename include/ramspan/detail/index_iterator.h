// IndexIterator: random access over what has an operator[]; each dereference is one. Private to Ramspan although installed (resident.h).
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

#include "ramspan/detail/span.h"

namespace ramspan::detail {

template <typename Range, typename Value, typename Reference, typename Category>
class IndexIterator {
 public:
  using value_type = Value;
  using difference_type = std::ptrdiff_t;
  using reference = Reference;
  using pointer = void;
  using iterator_category = Category;  // of C++17
#ifdef RAMSPAN_HAS_STD_SPAN            // C++20
  using iterator_concept = std::random_access_iterator_tag;
#endif

  IndexIterator() = default;
  IndexIterator(Range* range, size_t i) : range_(range), i_(i) {}
  // A mutable one is good for reading.
  template <typename R, typename V, typename C, typename = std::enable_if_t<std::is_same_v<const R, Range> && !std::is_same_v<R, Range>>>
  IndexIterator(const IndexIterator<R, Value, V, C>& other) : range_(other.range_), i_(other.i_) {}  // NOLINT: as std::vector's

  reference operator*() const { return (*range_)[i_]; }
  // For it->member: a pointer to what is referred to, or to a copy that lives as long as the expression.
  auto operator->() const {
    if constexpr (std::is_lvalue_reference_v<Reference>) {
      return std::addressof(**this);
    } else if constexpr (std::is_same_v<Reference, Value>) {
      struct Copy {
        Value value;
        const Value* operator->() const { return &value; }
      };
      return Copy{**this};
    } else {
      return (**this).operator->();
    }
  }
  reference operator[](difference_type n) const { return (*range_)[i_ + static_cast<size_t>(n)]; }
  IndexIterator& operator++() { return *this += 1; }
  IndexIterator& operator--() { return *this -= 1; }
  IndexIterator operator++(int) { return std::exchange(*this, *this + 1); }
  IndexIterator operator--(int) { return std::exchange(*this, *this - 1); }
  IndexIterator& operator+=(difference_type n) {
    i_ += static_cast<size_t>(n);
    return *this;
  }
  IndexIterator& operator-=(difference_type n) { return *this += -n; }
  friend IndexIterator operator+(IndexIterator a, difference_type n) { return a += n; }
  friend IndexIterator operator+(difference_type n, IndexIterator a) { return a += n; }
  friend IndexIterator operator-(IndexIterator a, difference_type n) { return a -= n; }
  friend difference_type operator-(const IndexIterator& a, const IndexIterator& b) { return static_cast<difference_type>(a.i_ - b.i_); }
  friend bool operator==(const IndexIterator& a, const IndexIterator& b) { return a.i_ == b.i_; }
  friend bool operator!=(const IndexIterator& a, const IndexIterator& b) { return a.i_ != b.i_; }
  friend bool operator<(const IndexIterator& a, const IndexIterator& b) { return a.i_ < b.i_; }
  friend bool operator>(const IndexIterator& a, const IndexIterator& b) { return a.i_ > b.i_; }
  friend bool operator<=(const IndexIterator& a, const IndexIterator& b) { return a.i_ <= b.i_; }
  friend bool operator>=(const IndexIterator& a, const IndexIterator& b) { return a.i_ >= b.i_; }

 private:
  template <typename, typename, typename, typename>
  friend class IndexIterator;
  Range* range_ = nullptr;
  size_t i_ = 0;
};

}  // namespace ramspan::detail
