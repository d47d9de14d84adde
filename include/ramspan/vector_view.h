// vectorView: the elements of a managedVector or managedArray in loops, at any index. T is const for reading. It pins; the pins end with it.
// Thread-safety: each belongs to the thread that made it. None outlives its vector, or what changes the vector's capacity.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include "ramspan/detail/block_cache.h"
#include "ramspan/detail/block_index.h"
#include "ramspan/detail/index_iterator.h"
#include "ramspan/detail/live_views.h"
#include "ramspan/detail/vector_element.h"
#include "ramspan/detail/span.h"
#include "ramspan/managed_ptr.h"

namespace ramspan {

// A cursor: v[i] is as good as a pointer's while i stays in one block, and little worse in the blocks that it holds: up to all of them where all views
// together hold no more than a quarter of the memory limit (seven eighths, where all data is in memory). A view keeps them while its thread does something else; so it ends before that
// waits for another thread. v[i] of a view for reading is a T; of one for writing it is a T&, which is valid until
// the view has come to two other blocks: enough for `v[i] = v[j]` and `std::swap(v[i], v[j])`. A view for writing makes each block that
// it comes to one that was changed, so what is only read is read by another one. Two to five blocks of a view must be in memory at one time.
// size() is the vector's when the view was made.
template <typename T>
class vectorView {
  using Element = std::remove_const_t<T>;
  static_assert(std::is_trivially_copyable_v<Element>, "elements that are not trivially copyable are used within their block: for (T& e : a.block(b))");

 public:
  using value_type = Element;
  using reference = std::conditional_t<std::is_const_v<T>, Element, T&>;
  // Random access. Two iterators of one view can be dereferenced in one expression.
  using iterator = detail::IndexIterator<const vectorView, Element, reference, std::conditional_t<std::is_const_v<T>, std::input_iterator_tag, std::random_access_iterator_tag>>;

  vectorView(const managedPtr<Element>* blocks, size_t size, bool random, detail::BlockIndex index, const detail::LiveViews* alive)
      : counted_(alive), blocks_(blocks), size_(size), gathers_(std::is_const_v<T> && random), index_(index), held_(index.Count(size), !std::is_const_v<T>, gathers_), thread_(detail::ThisThreadPins()) {}
  vectorView(const vectorView&) = delete;
  vectorView& operator=(const vectorView&) = delete;

  // Blocks, and throws as a pull, where i is in another block than the last one. Checked (Error) with _GLIBCXX_ASSERTIONS.
  template <typename E = T, std::enable_if_t<!std::is_const_v<E>, int> = 0>
  RAMSPAN_INLINE E& operator[](size_t i) const RAMSPAN_LIFETIMEBOUND { return *QuickAt(i); }
  template <typename E = T, std::enable_if_t<std::is_const_v<E>, int> = 0>
  RAMSPAN_INLINE Element operator[](size_t i) const { return *QuickAt(i); }
  // Of [i, i + count) what lies in one block with i, at least one element: inner loops over ranges (rows of a sparse matrix, edges of a vertex) take them run by run, as arrays.
  // Valid as a reference of a view for writing, also of one for reading. Blocks, throws and is checked as [i]. REQUIRES: count > 0.
  detail::Span<T> run(size_t i, size_t count) const RAMSPAN_LIFETIMEBOUND {
    if (const size_t at = i - first_; __builtin_expect(at < count_, 1)) return {elements_ + at, std::min(count, count_ - at)};
    CheckIndex(i);
    T* const begin = OrThrow(TryAt(i, /*to_hold=*/true));
    const size_t block = index_.Block(i);
    held_.NoteFound(block);
    return {begin, std::min({count, index_.First(block) + index_.elements() - i, size_ - i})};
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  iterator begin() const { return {this, 0}; }
  iterator end() const { return {this, size_}; }

 private:
  // Also in loops of dozens of accesses, of which compilers would make calls by themselves. How many lookups wait for memory at a time is bounded by the
  // instructions between them, so these are as few as where all blocks have room.
  RAMSPAN_INLINE T* QuickAt(size_t i) const {
    if (__builtin_expect(i - first_ < count_, 1)) return elements_ + (i - first_);
    CheckIndex(i);
    const size_t block = i >> shift_;
    T* const elements = static_cast<T*>(table_[block]);
    if (__builtin_expect(elements == nullptr || held_.IsCalled(), 0)) return OrThrow(TryAt(i, false));
    if constexpr (!std::is_const_v<T>) held_.NoteFound(block);
    const size_t offset = i & offset_mask_;
    // Whether more elements of the block follow is not to be foreseen; where all do, this one is the first.
    if (__builtin_expect(offset == 0, 0)) {
      if (__builtin_expect(IsOfOtherThread(), 0)) ThrowForOtherThread();
      held_.MakeLatest(block);
      BeginRun(elements, block);
    }
    return elements + offset;
  }
  void CheckIndex([[maybe_unused]] size_t i) const {
#ifdef _GLIBCXX_ASSERTIONS
    if (__builtin_expect(i >= size_, 0)) detail::ThrowNone("element", i, size_);
#endif
  }
  static T* OrThrow(T* element) {
    if (__builtin_expect(element == nullptr, 0)) detail::ThrowOfTry();
    return element;
  }
  // Null: ThrowOfTry says why. What throws would keep a loop's sum out of registers, where a call that comes back may not (TryHeldPin).
  __attribute__((noinline)) T* TryAt(size_t i, bool to_hold) const noexcept {
    const auto [block, offset] = index_.Locate(i);
    held_.HearCalls();
    bool again = false;
    T* const elements = static_cast<T*>(held_.Find(block, &again));
    if (__builtin_expect(elements == nullptr, 0)) return Miss(block, offset, to_hold);
    if (__builtin_expect(again, 0)) {
      if (__builtin_expect(IsOfOtherThread(), 0)) return detail::FailForOtherThread(), nullptr;
      BeginRun(elements, block);
    }
    return elements + offset;
  }
  bool IsOfOtherThread() const { return detail::t_pins != thread_; }
  // The block's elements are the nearest from here on. (EnterRun looked who calls, which objects that were compiled before rely on: another name.) REQUIRES: !IsOfOtherThread().
  void BeginRun(T* elements, size_t block) const {
    if (gathers_) return;  // as BlockCache::Find: elements are looked for at one place then
    elements_ = elements;
    first_ = index_.First(block);
    count_ = std::min(index_.elements(), size_ - first_);
  }
  [[noreturn]] __attribute__((noinline, cold)) static void ThrowForOtherThread() {
    detail::FailForOtherThread();
    detail::ThrowOfTry();
  }
  __attribute__((noinline, cold)) T* Miss(size_t block, size_t offset, bool to_hold) const noexcept {
    if (IsOfOtherThread()) return detail::FailForOtherThread(), nullptr;
    const detail::Object object = detail::ObjectOf()(blocks_[block]);
    if constexpr (std::is_const_v<T>) {
      // Where no more can be held, an element is read where it is. Only a block that is used for long takes another one's place.
      run_ = std::exchange(missed_, block) == block ? run_ + 1 : 0;
      if (!to_hold && held_.is_full() && run_ < kRun) {
        held_.NoteRead(index_.elements() * sizeof(T));
        return detail::TryReadElement(object, offset, &once_.value) ? &once_.value : nullptr;
      }
    }
    count_ = 0;  // in case that this fails
    T* const elements = static_cast<T*>(held_.TryEnter(block, object));
    if (elements == nullptr) return nullptr;
    if (void* const* const table = held_.table(); table != nullptr && index_.is_power_of_two()) {
      table_ = table;
      shift_ = index_.shift();
      offset_mask_ = index_.elements() - 1;
    }
    BeginRun(elements, block);
    return elements + offset;
  }

  static constexpr size_t kRun = 64;  // elements whose reading takes as long as to let one block go and hold another one

  const detail::LiveViews::Counted counted_;
  const managedPtr<Element>* const blocks_;
  const size_t size_;
  const bool gathers_;  // values, at random
  const detail::BlockIndex index_;
  mutable T* elements_ = nullptr;  // of the latest block that it came to
  mutable size_t first_ = 0, count_ = 0;
  mutable size_t missed_ = SIZE_MAX, run_ = 0;  // the block of the last element that was in none that is held, and how often in a row
  // What was read where nothing is held; a view for writing has no need of it.
  struct Value {
    Element value{};
  };
  struct None {};
  mutable std::conditional_t<std::is_const_v<T>, Value, None> once_;
  mutable detail::BlockCache held_;
  // Behind what objects have that were compiled before: the linker may take either's functions.
  static constexpr void* kNowhere = nullptr;
  mutable void* const* table_ = &kNowhere;  // of the blocks' first elements, by i >> shift_
  mutable unsigned shift_ = 8 * sizeof(size_t) - 1;
  mutable size_t offset_mask_ = 0;
  const detail::PinTable* const thread_;  // whose it is
};

}  // namespace ramspan
