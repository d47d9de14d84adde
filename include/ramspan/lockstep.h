// lockstep: vectors that a loop uses at the same indices, part by part. In each part all of them are arrays, so the inner loop is compiled as over
// pointers, and vectorised where that would be:
//
//   for (auto [first, end, x, y] : lockstep({0, x_.size()}, x_, std::as_const(y_))) {         // managedVectors, managedArrays
//     for (size_t i = first; i < end; ++i) x[i] += y[i];                                       // by their indices in the vectors
//   }
//   parallelFor(lockstep({1, n, 1}, x_, std::as_const(y_)), [dt](auto& part) {              // OpenMP's threads; reach 1: y[i - 1], y[i + 1]
//     auto& [first, end, x, y] = part;
//     for (size_t i = first; i < end; ++i) x[i] += dt * y[i - 1];
//   });
//
// A part pins one block of each vector, all or none, and fetches the next ones meanwhile: the least that such a loop can do with. A vector that is not
// const is changed at [first, end), and used nowhere else; a const one is read at `reach` more before and behind that. Near the end of a block,
// where these lie in two, the part has a copy of them.
//
// Thread-safety: threads may have different parts. Blocking: a part waits for its blocks and throws as a pull; OutOfMemory where the limit has no room
// for one block of each. A part belongs to its thread, must not outlive the vectors, and ends before their capacity changes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ramspan/adhere_all.h"
#include "ramspan/detail/lockstep_piece.h"
#include "ramspan/loops.h"

namespace ramspan {

// auto [first, end, x, y...] = part.
template <typename... V>
class lockstepPart {
  using Pieces = std::tuple<detail::LockstepPiece<V>...>;
  using Indices = std::index_sequence_for<V...>;

 public:
  lockstepPart(const std::tuple<V*...>& vectors, const steps& part, bool fetch_next, size_t end) : first_(part.first), end_(part.end) {
    if (first_ < end_) Pin(vectors, part, fetch_next, end, Indices());
  }
  lockstepPart(const lockstepPart&) = delete;
  lockstepPart& operator=(const lockstepPart&) = delete;
  ~lockstepPart() {
    for (const detail::PinRequest& one : requests_) {
      if (one.slot != detail::kNoPin) detail::Unpin(one.chunk, table_, one.slot);
    }
  }

  // By value, so that what a structured binding names is the loop's own, and may stay in registers whatever the loop writes.
  template <size_t I>
  auto get() const {
    if constexpr (I == 0) {
      return first_;
    } else if constexpr (I == 1) {
      return end_;
    } else {
      return std::get<I - 2>(pieces_).Part(requests_[I - 2]);
    }
  }

 private:
  template <size_t... I>
  void Pin(const std::tuple<V*...>& vectors, const steps& part, bool fetch_next, size_t end, std::index_sequence<I...>) {
    ((requests_[I] = std::get<I>(pieces_).Begin(*std::get<I>(vectors), part)), ...);
    detail::PinTogether(requests_, sizeof...(V), table_);
    if (fetch_next) (std::get<I>(pieces_).FetchNext(*std::get<I>(vectors), end), ...);
  }

  const size_t first_, end_;
  detail::PinTable* const table_ = detail::ThisThreadPins();
  detail::PinRequest requests_[sizeof...(V)] = {};
  Pieces pieces_;
};

// What lockstep() returns: an input range that can be indexed. A part is pinned as long as the object that *it and [k] gave.
template <typename... V>
class lockstepParts {
 public:
  using value_type = lockstepPart<V...>;

  class iterator {
   public:
    using value_type = lockstepParts::value_type;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    iterator() = default;
    iterator(const lockstepParts* parts, size_t k) : parts_(parts), k_(k) {}
    value_type operator*() const { return (*parts_)[k_]; }
    iterator& operator++() {
      ++k_;
      return *this;
    }
    void operator++(int) { ++k_; }
    bool operator==(const iterator& other) const { return k_ == other.k_; }
    bool operator!=(const iterator& other) const { return k_ != other.k_; }

   private:
    const lockstepParts* parts_ = nullptr;
    size_t k_ = 0;
  };

  lockstepParts(const steps& all, V&... vectors) : vectors_(&vectors...), all_(all), block_(std::min({vectors.block_elements()...})) {
    const detail::LockstepVector checked[] = {{&vectors, vectors.size(), vectors.block_elements(), !std::is_const_v<V>}...};
    detail::CheckLockstep(all_, checked, sizeof...(V));
    all_.first = std::min(all_.first, all_.end);
    first_block_ = all_.first / block_;
    if (all_.first < all_.end) blocks_ = (all_.end - 1) / block_ + 1 - first_block_;
    // The parts of a block are its middle, whose reach is within it, and its two ends. Those of the first block and of the last one may be outside of the loop.
    if (all_.reach > 0 && all_.reach < (block_ + 1) / 2) parts_ = 3;
    count_ = parts_ * blocks_;
    while (count_ > 0 && IsEmpty(skipped_)) ++skipped_, --count_;
    while (count_ > 0 && IsEmpty(skipped_ + count_ - 1)) --count_;
  }
  iterator begin() const { return {this, 0}; }
  iterator end() const { return {this, size()}; }
  size_t size() const { return count_; }  // none is empty
  // REQUIRES: k < size(). Blocks, and throws as a pull.
  value_type operator[](size_t k) const {
    const steps part = PartAt(skipped_ + k);
    return {vectors_, part, parts_ == 1 || (skipped_ + k) % parts_ == 1, all_.end};
  }

 private:
  bool IsEmpty(size_t k) const {
    const steps part = PartAt(k);
    return part.first >= part.end;
  }
  steps PartAt(size_t k) const {
    const size_t begin = (first_block_ + k / parts_) * block_, end = begin + block_;
    const size_t at = k % parts_;
    steps part = all_;
    if (parts_ == 3) {
      part.first = at == 0 ? begin : at == 1 ? begin + all_.reach : end - all_.reach;
      part.end = at == 0 ? begin + all_.reach : at == 1 ? end - all_.reach : end;
    } else {
      part.first = begin;
      part.end = end;
    }
    part.first = std::max(part.first, all_.first);
    part.end = std::max(part.first, std::min(part.end, all_.end));
    return part;
  }

  std::tuple<V*...> vectors_;
  steps all_;
  size_t block_;  // elements; the vectors' blocks have this many, or a multiple
  size_t first_block_ = 0, blocks_ = 0, parts_ = 1;
  size_t skipped_ = 0, count_ = 0;
};

// REQUIRES: each vector has `end` elements at least (Error), and blocks of a multiple of the elements that the smallest have (Error; managedVectors' are).
template <typename... V>
[[nodiscard]] lockstepParts<V...> lockstep(const steps& all, V&... vectors) {
  return {all, vectors...};
}

}  // namespace ramspan

template <typename... V>
struct std::tuple_size<ramspan::lockstepPart<V...>> : std::integral_constant<size_t, sizeof...(V) + 2> {};
template <size_t I, typename... V>
struct std::tuple_element<I, ramspan::lockstepPart<V...>> {
  using type = decltype(std::declval<const ramspan::lockstepPart<V...>&>().template get<I>());
};
