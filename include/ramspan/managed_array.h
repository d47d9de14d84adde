// managedArray<T>: a long array in chunks, to be walked with range-for: chunk by chunk, the next one fetched meanwhile.
//
//   managedArray<double> a(1'000'000'000, 0.0);
//   for (auto block : a.blocks())                     // pinned as long as `block` lives; to be written
//     for (double& x : block) x = f(x);
//   for (double x : std::as_const(a)) sum += x;       // element by element; read only, so nothing is written to swap
//
// At any moment a loop pins one chunk. Thread-safety: as managedPtr; threads may walk distinct blocks at one time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ramspan/detail/block_range.h"
#include "ramspan/detail/lasting_advice.h"
#include "ramspan/detail/span.h"
#include "ramspan/detail/vector_element.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/vector_span.h"
#include "ramspan/vector_view.h"

namespace ramspan {

// Bytes of a chunk; a chunk is what is pinned and swapped as one.
struct ChunkBytes {
  size_t value = size_t{1} << 20;
};

// Part of an array that is in memory as long as this lives. T is const for reading.
template <typename T>
class pinnedBlock : public pinnedSpan<T> {
  using Element = std::remove_const_t<T>;

 public:
  // Blocks until the chunk is in memory; throws as a pull does. `first` is the index of its first element in the array.
  pinnedBlock(const managedPtr<Element>& chunk, size_t first) : pinnedSpan<T>(chunk), first_(first) {}
  // Of its first `count` elements.
  pinnedBlock(const managedPtr<Element>& chunk, size_t first, size_t count) : pinnedSpan<T>(chunk, count), first_(first) {}
  // That a pin holds already.
  pinnedBlock(adhereTo<Element> pin, size_t first, size_t count) : pinnedSpan<T>(std::move(pin), count), first_(first) {}
  size_t first_index() const { return first_; }

 private:
  size_t first_;
};

// What element by element ends with.
#ifdef RAMSPAN_HAS_STD_SPAN  // C++20
using ArrayEnd = std::default_sentinel_t;
#else
struct ArrayEnd {};
#endif

template <typename T>
class managedArray {
 public:
  using value_type = T;

  managedArray() = default;
  // n elements, default-constructed (indeterminate for arithmetic types) or copies of `value`. REQUIRES: chunk > 0.
  explicit managedArray(size_t n, ChunkBytes chunk = {}) { Make(n, chunk); }
  managedArray(size_t n, const T& value, ChunkBytes chunk = {}) { Make(n, chunk, value); }
  managedArray(size_t n, uninitialized_t, ChunkBytes chunk = {}) { Make(n, chunk, uninitialized); }  // no constructor runs

  // Chunks that exist. REQUIRES: all have `chunk_elements` elements but the last, which has those that are left of n.
  managedArray(std::vector<managedPtr<T>> chunks, size_t n, size_t chunk_elements)
      : chunks_(std::move(chunks)), size_(n), chunk_elements_(chunk_elements) {}

  // A copy shares the elements, as a managedPtr's does. What is moved from is empty.
  managedArray(const managedArray&) = default;
  managedArray& operator=(const managedArray&) = default;
  managedArray(managedArray&& other) noexcept
      : chunks_(std::move(other.chunks_)), size_(std::exchange(other.size_, 0)), chunk_elements_(other.chunk_elements_), advised_(other.advised_) {}
  managedArray& operator=(managedArray&& other) noexcept {
    managedArray from(std::move(other));
    chunks_.swap(from.chunks_);
    std::swap(size_, from.size_);
    chunk_elements_ = from.chunk_elements_;
    advised_ = from.advised_;
    return *this;
  }

  size_t size() const { return size_; }
  size_t chunk_elements() const { return chunk_elements_; }  // of all chunks but perhaps the last
  size_t chunk_count() const { return chunks_.size(); }
  size_t block_elements() const { return chunk_elements_; }  // the same, as a managedVector has them
  size_t block_count() const { return chunks_.size(); }
  // These and block(): Error where there is no i-th.
  managedPtr<T>& chunk(size_t i) { return chunks_[Checked(i)]; }
  const managedPtr<T>& chunk(size_t i) const { return chunks_[Checked(i)]; }

  // Elements anywhere, as a managedVector's: x[i] pins its chunk for its own length only, and of a mutable array it is no T&
  // (detail/vector_element.h); loops have a view. For trivially copyable T; others are used by block.
  detail::VectorElement<T> operator[](size_t i) { return {ObjectOf(i), i % chunk_elements_}; }
  T operator[](size_t i) const { return detail::ReadElement<T>(ObjectOf(i), i % chunk_elements_); }
  // std::out_of_range.
  detail::VectorElement<T> at(size_t i) { return (*this)[CheckedElement(i)]; }
  T at(size_t i) const { return (*this)[CheckedElement(i)]; }
  vectorView<T> view() RAMSPAN_LIFETIMEBOUND { return vectorView<T>(chunks_.data(), size_, advised_.is_random(), detail::BlockIndex(chunk_elements_), nullptr); }
  vectorView<const T> view() const RAMSPAN_LIFETIMEBOUND { return vectorView<const T>(chunks_.data(), size_, advised_.is_random(), detail::BlockIndex(chunk_elements_), nullptr); }
  vectorView<const T> cview() const RAMSPAN_LIFETIMEBOUND { return view(); }
  // REQUIRES: first + count <= size().
  vectorSpan<T> span(size_t first, size_t count) RAMSPAN_LIFETIMEBOUND { return vectorSpan<T>(chunks_.data(), first, count, detail::BlockIndex(chunk_elements_)); }
  vectorSpan<const T> span(size_t first, size_t count) const RAMSPAN_LIFETIMEBOUND { return vectorSpan<const T>(chunks_.data(), first, count, detail::BlockIndex(chunk_elements_)); }

  // One block, pinned. Fetches the one behind it in the background.
  pinnedBlock<T> block(size_t i) RAMSPAN_LIFETIMEBOUND { return BlockOf<T>(*this, i); }
  pinnedBlock<const T> block(size_t i) const RAMSPAN_LIFETIMEBOUND { return BlockOf<const T>(*this, i); }

  // What the program knows of the use of all elements (advice.h). Does not wait for them.
  void advise(advice what) noexcept {
    advised_.Note(what);
    detail::AdviseAll(chunks_, what);
  }

  detail::BlockRange<managedArray> blocks() RAMSPAN_LIFETIMEBOUND { return {this}; }
  detail::BlockRange<const managedArray> blocks() const RAMSPAN_LIFETIMEBOUND { return {this}; }

  template <typename Array>
  class ElementIterator;
  ElementIterator<managedArray> begin() { return {this}; }
  ElementIterator<const managedArray> begin() const { return {this}; }
  ArrayEnd end() const { return {}; }

 private:
  friend struct detail::AdviceOf;
  template <typename... Value>
  void Make(size_t n, ChunkBytes chunk, const Value&... value) {
    size_ = n;
    chunk_elements_ = std::max<size_t>(1, chunk.value / sizeof(T));
    if (n > SIZE_MAX / 2 / sizeof(T)) detail::ThrowTooLarge(n, sizeof(T));
    detail::RefuseTooManyBlocks(n / chunk_elements_, chunk_elements_ * sizeof(T));
    chunks_.reserve(n / chunk_elements_ + 1);
    for (size_t done = 0; done < n; done += chunk_elements_) {
      chunks_.emplace_back(std::min(chunk_elements_, n - done), value...);
    }
  }

  size_t Checked(size_t i) const {
    if (__builtin_expect(i >= chunks_.size(), 0)) detail::ThrowNone("block", i, chunks_.size());
    return i;
  }

  size_t CheckedElement(size_t i) const {
    if (i >= size_) {
      throw std::out_of_range("managedArray::at: there is no element " + std::to_string(i) + ": there are " + std::to_string(size_) + ", counted from 0");
    }
    return i;
  }
  detail::Object ObjectOf(size_t i) const {
    static_assert(std::is_trivially_copyable_v<T>, "an element that is not trivially copyable is used within its block: for (T& e : a.block(b))");
#ifdef _GLIBCXX_ASSERTIONS
    if (__builtin_expect(i >= size_, 0)) detail::ThrowNone("element", i, size_);
#endif
    return detail::ObjectOf()(chunks_[i / chunk_elements_]);
  }

  template <typename E, typename Array>
  static pinnedBlock<E> BlockOf(Array& array, size_t i) {
    pinnedBlock<E> block(array.chunk(i), i * array.chunk_elements_);
    if (!array.advised_.is_random() && i + 1 < array.chunks_.size()) array.chunks_[i + 1].prepareUse();
    return block;
  }

  std::vector<managedPtr<T>> chunks_;
  size_t size_ = 0, chunk_elements_ = 1;
  detail::LastingAdvice advised_;
};

// Element by element: an input iterator. The chunk of the current element is pinned by the iterator, so a reference is
// valid until the iterator has left the chunk.
template <typename T>
template <typename Array>
class managedArray<T>::ElementIterator {
  using Element = std::conditional_t<std::is_const_v<Array>, const T, T>;

 public:
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  ElementIterator(Array* array) : array_(array) { Enter(0); }  // NOLINT: made by begin() only
  ElementIterator(ElementIterator&&) = default;
  ElementIterator& operator=(ElementIterator&&) = default;

  Element& operator*() const { return *at_; }
  Element* operator->() const { return at_; }
  ElementIterator& operator++() {
    if (++at_ == end_) Enter(chunk_ + 1);
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(ArrayEnd) const { return at_ == nullptr; }
  bool operator!=(ArrayEnd) const { return at_ != nullptr; }

 private:
  // Leaves the old chunk before the new one is fetched: one pinned chunk is all that a loop needs.
  void Enter(size_t chunk) {
    block_.reset();
    at_ = end_ = nullptr;
    chunk_ = chunk;
    if (chunk >= array_->chunk_count()) return;
    block_.emplace(array_->block(chunk));
    at_ = block_->begin();
    end_ = block_->end();
  }

  Array* array_;
  size_t chunk_ = 0;
  Element* at_ = nullptr;
  Element* end_ = nullptr;
  std::optional<pinnedBlock<Element>> block_;
};

}  // namespace ramspan
