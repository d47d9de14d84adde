// managedVector<T>: a std::vector whose elements leave memory in blocks while nobody uses them.
//
//   managedVector<double> x(n, 0.0), y;                    // blocks of 64 KiB; of 8 KiB for {.access = access::random}
//   y.push_back(3); x[i] += x[j] * y[0];                   // anywhere: an access pins its block for its own length only
//   auto v = x.view();                                     // in loops: v[i] is a double&, at nearly a std::vector's speed
//   const auto r = std::as_const(x).view();                // ... a double, to read
//   for (auto block : x.blocks())                          // at the raw speed; blocks are contiguous
//     for (double& e : block) e = f(e);
//   auto s = x.span(first, count);                         // contiguous, whatever block boundaries are in between
//
// What differs from std::vector: x[i] of a mutable vector is no T& (detail/vector_element.h): write `double& e = v[i]` with a view, `T e = x[i]`
// instead of `auto e = x[i]`; there is no data(). T is trivially copyable. Other types of elements: managedArray, managedPtr.
// A copy is a copy, as std::vector's (and not as managedPtr's, which names the same elements).
//
// Thread-safety: as std::vector: distinct elements may be written at one time, also in one block. Blocking: whatever touches elements
// waits for their block and throws as a pull (OutOfMemory, OutOfSwap, DataLost, SwapUnavailable). What changes the capacity ends views, spans and
// blocks; none may be alive then.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ramspan/detail/lasting_advice.h"
#include "ramspan/detail/vector_element.h"
#include "ramspan/managed_array.h"
#include "ramspan/vector_span.h"
#include "ramspan/vector_view.h"

namespace ramspan {

inline namespace literals {
constexpr size_t operator""_KiB(unsigned long long n) { return static_cast<size_t>(n) << 10; }
constexpr size_t operator""_MiB(unsigned long long n) { return static_cast<size_t>(n) << 20; }
constexpr size_t operator""_GiB(unsigned long long n) { return static_cast<size_t>(n) << 30; }
}  // namespace literals

// How a vector is mostly used.
enum class access {
  automatic,
  sequential,
  random,  // small blocks, and none is fetched because of its neighbour
};

struct VectorOptions {
  size_t chunk = 0;  // bytes of a block, rounded down to a power of two of elements, of which there is at least one; 0: by `access`
  ramspan::access access = ramspan::access::automatic;
};

template <typename T>
class managedVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>,
                "the elements of a managedVector are trivially copyable and have a default constructor: instead of a std::pair or std::tuple write a "
                "struct, instead of vectors within a vector a std::vector<managedVector<T>>; a managedArray or managedPtrs take other types (see "
                "is_relocatable)");
  static_assert(!std::is_same_v<T, bool>, "a managedVector<bool> would have a byte for each: write char");

 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using reference = detail::VectorElement<T>;
  using const_reference = T;
  using iterator = detail::IndexIterator<managedVector, T, reference, std::random_access_iterator_tag>;
  using const_iterator = detail::IndexIterator<const managedVector, T, const_reference, std::random_access_iterator_tag>;

  managedVector() : managedVector(VectorOptions{}) {}
  explicit managedVector(VectorOptions options)
      : shift_(ShiftFor(options)), mask_((size_t{1} << shift_) - 1) {
    if (options.access == access::random) advised_.Note(advice::random);
  }
  explicit managedVector(size_t n, VectorOptions options = {}) : managedVector(options) { resize(n); }
  managedVector(size_t n, const T& value, VectorOptions options = {}) : managedVector(options) { resize(n, value); }
  managedVector(size_t n, uninitialized_t, VectorOptions options = {}) : managedVector(options) {
    reserve(n);
    size_ = n;
  }
  template <typename Iterator, typename = typename std::iterator_traits<Iterator>::iterator_category>
  managedVector(Iterator first, Iterator last, VectorOptions options = {}) : managedVector(options) {
    assign(first, last);
  }
  managedVector(std::initializer_list<T> values, VectorOptions options = {}) : managedVector(values.begin(), values.end(), options) {}

  managedVector(const managedVector& other) : managedVector(other.Like()) { CopyFrom(other); }
  // What is moved from is empty.
  managedVector(managedVector&& other) noexcept : managedVector(other.Like()) { swap(other); }
  // Error, and the end of the process where nothing may be thrown, while there is a view of what is here: its elements would be gone.
  // The elements of the other one, in blocks of this one's size and with its advice. A move takes the other's blocks, as they are.
  managedVector& operator=(const managedVector& other) {
    if (this == &other) return *this;
    managedVector fresh(Like());
    fresh.advised_ = advised_;
    fresh.CopyFrom(other);
    Take(std::move(fresh));
    return *this;
  }
  managedVector& operator=(managedVector&& other) noexcept {
    if (this != &other) Take(std::move(other));
    return *this;
  }
  // Views stay what they are: of the same elements, which are the other vector's then.
  void swap(managedVector& other) noexcept {
    std::swap(blocks_, other.blocks_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(shift_, other.shift_);
    std::swap(mask_, other.mask_);
    std::swap(advised_, other.advised_);
    views_.swap(other.views_);
  }
  friend void swap(managedVector& a, managedVector& b) noexcept { a.swap(b); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t capacity() const { return capacity_; }
  size_t block_elements() const { return mask_ + 1; }  // of all blocks but perhaps the last
  size_t block_count() const { return (size_ + block_elements() - 1) >> shift_; }

  reference operator[](size_t i) { return {ObjectOf(i), i & mask_}; }
  T operator[](size_t i) const { return detail::ReadElement<T>(ObjectOf(i), i & mask_); }
  // std::out_of_range.
  reference at(size_t i) { return (*this)[Checked(i)]; }
  T at(size_t i) const { return (*this)[Checked(i)]; }
  reference front() { return (*this)[0]; }
  T front() const { return (*this)[0]; }
  reference back() { return (*this)[size_ - 1]; }
  T back() const { return (*this)[size_ - 1]; }

  // Iterators of random access, each dereferenced by itself as operator[]. For algorithms; loops have view() and blocks().
  iterator begin() { return {this, 0}; }
  iterator end() { return {this, size_}; }
  const_iterator begin() const { return {this, 0}; }
  const_iterator end() const { return {this, size_}; }
  const_iterator cbegin() const { return begin(); }
  const_iterator cend() const { return end(); }

  // Of the elements that there are now. A view of a const vector is for reading; cview() is the same of any.
  vectorView<T> view() RAMSPAN_LIFETIMEBOUND { return vectorView<T>(blocks_.data(), size_, advised_.is_random(), Index(), &views_); }
  vectorView<const T> view() const RAMSPAN_LIFETIMEBOUND { return vectorView<const T>(blocks_.data(), size_, advised_.is_random(), Index(), &views_); }
  vectorView<const T> cview() const RAMSPAN_LIFETIMEBOUND { return view(); }

  // REQUIRES: first + count <= size(). Pins all blocks that it touches, or none and throws.
  vectorSpan<T> span(size_t first, size_t count) RAMSPAN_LIFETIMEBOUND { return vectorSpan<T>(blocks_.data(), first, count, Index()); }
  vectorSpan<const T> span(size_t first, size_t count) const RAMSPAN_LIFETIMEBOUND { return vectorSpan<const T>(blocks_.data(), first, count, Index()); }

  // What is swapped as one; the last one may have room for more elements than there are.
  managedPtr<T>& chunk(size_t b) { return blocks_[b]; }
  const managedPtr<T>& chunk(size_t b) const { return blocks_[b]; }
  // One block, pinned as long as it lives. Fetches the one behind it in the background, unless access is random.
  pinnedBlock<T> block(size_t b) RAMSPAN_LIFETIMEBOUND { return BlockOf<T>(b); }
  pinnedBlock<const T> block(size_t b) const RAMSPAN_LIFETIMEBOUND { return BlockOf<const T>(b); }
  detail::BlockRange<managedVector> blocks() RAMSPAN_LIFETIMEBOUND { return {this}; }
  detail::BlockRange<const managedVector> blocks() const RAMSPAN_LIFETIMEBOUND { return {this}; }

  // What the program knows of the use of all elements, those that are yet to come too (advice.h). Does not wait for them. One that is made as a copy has none of it but `random`.
  void advise(advice what) noexcept {
    advised_.Note(what);
    detail::AdviseAll(blocks_, what);
  }

  // Blocks for n elements; their memory is used when they are. These calls throw Error where they would change the capacity and a view is alive.
  void reserve(size_t n) {
    if (n <= capacity_) return;
    RefuseBesideViews();
    if (n > SIZE_MAX / 2 / sizeof(T)) detail::ThrowTooLarge(n, sizeof(T));
    const size_t before = blocks_.size(), needed = ((n - 1) >> shift_) + 1;
    detail::RefuseTooManyBlocks(needed, sizeof(T) << shift_);
    const auto elements_in = [&](size_t b) { return std::min(block_elements(), n - (b << shift_)); };
    try {
      if (needed > blocks_.capacity()) blocks_.reserve(std::max(needed, 2 * blocks_.capacity()));
      if (before > 0) EnlargeLast(elements_in(before - 1));
      for (size_t b = before; b < needed; ++b) {
        blocks_.emplace_back(elements_in(b), uninitialized);
        advised_.GiveTo(blocks_.back());
      }
    } catch (const std::bad_alloc&) {
      DropBlocks(before);
      detail::ThrowOutOfHeap();
    } catch (...) {  // with less the program may be able to go on
      DropBlocks(before);
      throw;
    }
    capacity_ = ((needed - 1) << shift_) + blocks_.back().size();
  }
  void resize(size_t n) {
    Resize(n, [](T* elements, size_t count) { std::uninitialized_value_construct_n(elements, count); });
  }
  void resize(size_t n, const T& value) {
    const T copy = value;  // it may be an element
    Resize(n, [&](T* elements, size_t count) { std::fill_n(elements, count, copy); });
  }
  void push_back(const T& value) {
    const T copy = value;
    if (size_ == capacity_) reserve(std::max(size_ + 1, Grown()));
    detail::UseElement<T>(detail::ObjectOf()(blocks_[size_ >> shift_]), size_ & mask_, [&](T& element) { element = copy; });
    ++size_;
  }
  template <typename... Args>
  reference emplace_back(Args&&... args) {
    push_back(T(std::forward<Args>(args)...));
    return back();
  }
  void pop_back() { --size_; }
  void clear() { resize(0); }  // keeps one block
  void assign(size_t n, const T& value) {
    managedVector fresh(Like());
    fresh.advised_ = advised_;
    fresh.resize(n, value);
    Take(std::move(fresh));
  }
  template <typename Iterator, typename = typename std::iterator_traits<Iterator>::iterator_category>
  void assign(Iterator first, Iterator last) {
    managedVector fresh(Like());
    fresh.advised_ = advised_;
    for (; first != last; ++first) fresh.push_back(*first);
    Take(std::move(fresh));
  }

  // Declared for their error messages.
  template <typename... Any>
  void erase(const Any&...) {
    static_assert(detail::kAlwaysFalse<Any...>, "a managedVector has no erase: x.resize(std::remove_if(x.begin(), x.end(), is_to_go) - x.begin())");
  }
  template <typename... Any>
  void insert(const Any&...) {
    static_assert(detail::kAlwaysFalse<Any...>, "a managedVector has no insert: push_back the elements of the other one in a loop over its view");
  }
  template <typename Any = T>
  T* data() const {
    static_assert(detail::kAlwaysFalse<Any>, "a managedVector is not contiguous: x.span(first, count) is, or one of x.blocks()");
    return nullptr;
  }

 private:
  friend struct detail::AdviceOf;
  void Take(managedVector&& other) {
    RefuseBesideViews();
    managedVector(std::move(other)).swap(*this);
  }
  void RefuseBesideViews() const {
    if (__builtin_expect(views_.any(), 0)) detail::ThrowBesideViews();
  }
  detail::BlockIndex Index() const { return detail::BlockIndex(block_elements()); }
  static unsigned ShiftFor(const VectorOptions& options) {
    const size_t bytes = options.chunk != 0 ? options.chunk : options.access == access::random ? 8_KiB : 64_KiB;
    unsigned shift = 0;
    while (shift < 48 && sizeof(T) <= bytes >> (shift + 1)) ++shift;
    return shift;
  }
  // Within the first block by doubling, as std::vector; then by whole blocks, which cost what is in them.
  size_t Grown() const { return std::min(2 * size_, (size_ | mask_) + 1); }
  VectorOptions Like() const {
    return {sizeof(T) << shift_, advised_.is_random() ? access::random : access::automatic};
  }
  size_t Checked(size_t i) const {
    if (i >= size_) {
      throw std::out_of_range("managedVector::at: there is no element " + std::to_string(i) + ": there are " + std::to_string(size_) + ", counted from 0");
    }
    return i;
  }
  detail::Object ObjectOf(size_t i) const {
#ifdef _GLIBCXX_ASSERTIONS
    if (__builtin_expect(i >= size_, 0)) detail::ThrowNone("element", i, size_);
#endif
    return detail::ObjectOf()(blocks_[i >> shift_]);
  }
  template <typename E>
  pinnedBlock<E> BlockOf(size_t b) const {
    if (__builtin_expect(b >= block_count(), 0)) detail::ThrowNone("block", b, block_count());
    pinnedBlock<E> block(blocks_[b], b << shift_, std::min(block_elements(), size_ - (b << shift_)));
    if (!advised_.is_random() && b + 1 < block_count()) blocks_[b + 1].prepareUse();
    return block;
  }
  // Room in the last block for so many elements in all.
  void EnlargeLast(size_t elements) {
    managedPtr<T>& last = blocks_.back();
    const size_t room = last.size(), first = (blocks_.size() - 1) << shift_;
    if (room >= elements) return;
    try {
      managedPtr<T> larger(elements, uninitialized);
      if (size_ > first) {
        const adhereTo<T> from(last);
        adhereTo<T> to(larger);
        const T* const begin = from;
        std::copy_n(begin, std::min(size_ - first, room), static_cast<T*>(to));
      }
      last = std::move(larger);
    } catch (const OutOfMemory& e) {
      detail::ThrowWhileGrowing(room * sizeof(T), elements * sizeof(T), e.what());
    }
    advised_.GiveTo(last);
    capacity_ = first + elements;
  }
  template <typename Make>
  void Resize(size_t n, const Make& make) {
    if (n > capacity_) reserve(size_ == 0 ? n : std::max(n, Grown()));
    const size_t needed = std::max<size_t>(1, (n + mask_) >> shift_);
    for (size_t first = size_, end; first < n; first = end) {
      const size_t b = first >> shift_;
      end = std::min(n, (b + 1) << shift_);
      adhereTo<T> glue(blocks_[b]);
      make(static_cast<T*>(glue) + (first & mask_), end - first);
    }
    if (n < size_ && needed < blocks_.size()) {  // whole blocks at the end are given back
      RefuseBesideViews();
      DropBlocks(needed);
    }
    size_ = n;
  }
  // All but the first ones.
  void DropBlocks(size_t first) {
    blocks_.resize(first, managedPtr<T>(nullptr));
    capacity_ = first == 0 ? 0 : ((first - 1) << shift_) + blocks_.back().size();
  }
  void CopyFrom(const managedVector& other) {
    reserve(other.size_);
    const size_t step = std::min(block_elements(), other.block_elements());
    for (size_t i = 0; i < other.size_; i += step) {
      const adhereTo<T> from(other.blocks_[i >> other.shift_]);
      adhereTo<T> to(blocks_[i >> shift_]);
      const T* const begin = from;
      std::copy_n(begin + (i & other.mask_), std::min(step, other.size_ - i), static_cast<T*>(to) + (i & mask_));
    }
    size_ = other.size_;
  }

  std::vector<managedPtr<T>> blocks_;  // the last one may be smaller than the others
  size_t size_ = 0, capacity_ = 0;
  detail::LiveViews views_;
  unsigned shift_;  // of an index, to its block
  size_t mask_;     // of an index, to its place there
  detail::LastingAdvice advised_;
};

}  // namespace ramspan
