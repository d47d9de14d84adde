// blockedArray<T, D>: a dense array of D = 2 or 3 dimensions in blocks that are swapped as one, so that algorithms which
// walk along any dimension (transposition, stencils, matrix products) use a whole block each time it is in memory.
//
//   blockedArray<double, 2> a({20000, 20000}, {512, 512});
//   for (size_t bi = 0; bi < a.block_counts()[0]; ++bi)
//     for (size_t bj = 0; bj < a.block_counts()[1]; ++bj) {
//       auto block = a.block({bi, bj});                       // pinned as long as it lives; a.read(...) for reading
//       for (size_t i = 0; i < block.shape()[0]; ++i)
//         for (size_t j = 0; j < block.shape()[1]; ++j) block(i, j) = f(block.origin()[0] + i, block.origin()[1] + j);
//     }
//
// Within a block the last index is contiguous. Blocks at the upper ends are as large as what is left. Thread-safety: as
// managedPtr; threads may use distinct blocks at one time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <vector>

#include "ramspan/detail/lasting_advice.h"
#include "ramspan/detail/span.h"
#include "ramspan/managed_ptr.h"

namespace ramspan {

// A block in memory. Row-major; T is const for reading. Move-only in spirit: a copy pins once more.
template <typename T, size_t D>
class arrayBlock {
  using Element = std::remove_const_t<T>;

 public:
  using Index = std::array<size_t, D>;

  // Blocks until it is in memory; throws as a pull does.
  arrayBlock(const managedPtr<Element>& chunk, const Index& origin, const Index& shape)
      : glue_(chunk), data_(static_cast<T*>(glue_)), size_(chunk.size()), origin_(origin), shape_(shape) {}

  const Index& shape() const { return shape_; }    // elements in each dimension
  const Index& origin() const { return origin_; }  // of its first element in the array
  T* data() const RAMSPAN_LIFETIMEBOUND { return data_; }
#ifdef RAMSPAN_HAS_STD_SPAN
  std::span<T> span() const RAMSPAN_LIFETIMEBOUND { return {data_, size_}; }
#endif

  // Indices within the block, below shape(). They are checked (Error) where the standard library's containers check theirs, with
  // _GLIBCXX_ASSERTIONS, and not otherwise: a stencil of 128 x 128 took 1.8 (-O2) to 4 times (-O3) as long with the check.
  template <size_t E = D, std::enable_if_t<E == 2, int> = 0>
  T& operator()(size_t i, size_t j) const RAMSPAN_LIFETIMEBOUND {
    Check({i, j});
    return data_[i * shape_[1] + j];
  }
  template <size_t E = D, std::enable_if_t<E == 3, int> = 0>
  T& operator()(size_t i, size_t j, size_t k) const RAMSPAN_LIFETIMEBOUND {
    Check({i, j, k});
    return data_[(i * shape_[1] + j) * shape_[2] + k];
  }

 private:
  void Check([[maybe_unused]] const Index& at) const {
#ifdef _GLIBCXX_ASSERTIONS
    for (size_t d = 0; d < D; ++d) {
      if (__builtin_expect(at[d] >= shape_[d], 0)) detail::ThrowNoElement(at.data(), shape_.data(), D);
    }
#endif
  }

  adhereTo<Element> glue_;
  T* data_;
  size_t size_;
  Index origin_, shape_;
};

template <typename T, size_t D>
class blockedArray {
  static_assert(D == 2 || D == 3, "a blockedArray has two or three dimensions");

 public:
  using Index = std::array<size_t, D>;

  // Elements are default-constructed (indeterminate for arithmetic types). Throws as managedPtr where they are more than an
  // address can say; Error where an extent of the blocks is 0.
  blockedArray(const Index& shape, const Index& block_shape) : shape_(shape), block_shape_(block_shape) {
    if (std::find(block_shape.begin(), block_shape.end(), size_t{0}) != block_shape.end()) {
      detail::ThrowEmptyBlocks(block_shape.data(), D);
    }
    // Extents whose product fits have products of parts that do.
    const size_t elements_max = std::numeric_limits<size_t>::max() / 2 / sizeof(T);
    const bool is_empty = std::find(shape.begin(), shape.end(), size_t{0}) != shape.end();
    size_t blocks = 1, all = 1;
    for (size_t d = 0; d < D && !is_empty; ++d) {
      if (shape[d] > elements_max / all) detail::ThrowTooLarge(shape[d], all * sizeof(T));
      all *= shape[d];
    }
    for (size_t d = 0; d < D; ++d) {
      counts_[d] = shape[d] / block_shape[d] + (shape[d] % block_shape[d] != 0 ? 1 : 0);
      blocks *= counts_[d];
    }
    detail::RefuseTooManyBlocks(blocks, all / std::max<size_t>(blocks, 1) * sizeof(T));
    chunks_.reserve(blocks);
    for (size_t i = 0; i < blocks; ++i) {
      size_t elements = 1;
      for (size_t extent : ShapeOf(BlockAt(i))) elements *= extent;
      chunks_.emplace_back(elements);
    }
  }

  // A copy shares the elements, as a managedPtr's does. What is moved from is empty.
  blockedArray(const blockedArray&) = default;
  blockedArray& operator=(const blockedArray& other) {
    chunks_ = other.chunks_;  // the others cannot fail
    shape_ = other.shape_;
    block_shape_ = other.block_shape_;
    counts_ = other.counts_;
    return *this;
  }
  blockedArray(blockedArray&& other) noexcept
      : shape_(std::exchange(other.shape_, {})), block_shape_(other.block_shape_), counts_(std::exchange(other.counts_, {})), chunks_(std::move(other.chunks_)) {}
  blockedArray& operator=(blockedArray&& other) noexcept {
    blockedArray from(std::move(other));
    chunks_.swap(from.chunks_);
    shape_ = from.shape_;
    block_shape_ = from.block_shape_;
    counts_ = from.counts_;
    return *this;
  }

  const Index& shape() const { return shape_; }
  const Index& block_shape() const { return block_shape_; }
  const Index& block_counts() const { return counts_; }

  // All but the hint throw Error where b[d] >= block_counts()[d].
  arrayBlock<T, D> block(const Index& b) RAMSPAN_LIFETIMEBOUND { return {chunk(b), OriginOf(b), ShapeOf(b)}; }
  arrayBlock<const T, D> read(const Index& b) const RAMSPAN_LIFETIMEBOUND { return {chunk(b), OriginOf(b), ShapeOf(b)}; }
  arrayBlock<const T, D> block(const Index& b) const RAMSPAN_LIFETIMEBOUND { return read(b); }
  // A hint that the block will be needed soon; of one beyond the end none.
  void prepareUse(const Index& b) const noexcept {
    if (Has(b)) chunks_[Number(b)].prepareUse();
  }
  // What the program knows of the use of all elements (advice.h). Does not wait for them.
  void advise(advice what) noexcept { detail::AdviseAll(chunks_, what); }
  managedPtr<T>& chunk(const Index& b) { return chunks_[Checked(b)]; }
  const managedPtr<T>& chunk(const Index& b) const { return chunks_[Checked(b)]; }

 private:
  bool Has(const Index& b) const {
    bool has = true;
    for (size_t d = 0; d < D; ++d) has &= b[d] < counts_[d];
    return has;
  }
  size_t Checked(const Index& b) const {
    if (__builtin_expect(!Has(b), 0)) detail::ThrowNoBlock(b.data(), counts_.data(), D);
    return Number(b);
  }
  size_t Number(const Index& b) const {
    size_t number = 0;
    for (size_t d = 0; d < D; ++d) number = number * counts_[d] + b[d];
    return number;
  }
  Index BlockAt(size_t number) const {
    Index b;
    for (size_t d = D; d-- > 0; number /= counts_[d]) b[d] = number % counts_[d];
    return b;
  }
  Index OriginOf(const Index& b) const {
    Index origin;
    for (size_t d = 0; d < D; ++d) origin[d] = b[d] * block_shape_[d];
    return origin;
  }
  Index ShapeOf(const Index& b) const {
    Index shape;
    for (size_t d = 0; d < D; ++d) shape[d] = std::min(block_shape_[d], shape_[d] - b[d] * block_shape_[d]);
    return shape;
  }

  Index shape_, block_shape_, counts_{};
  std::vector<managedPtr<T>> chunks_;
};

}  // namespace ramspan
