// vectorSpan: any range of a managedVector's or managedArray's elements as one array. T is const for reading. It pins; the pins end with it.
// Thread-safety: each belongs to the thread that made it. None outlives its vector, or what changes the vector's capacity.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "ramspan/adhere_all.h"
#include "ramspan/detail/block_index.h"
#include "ramspan/detail/span.h"
#include "ramspan/detail/span_record.h"
#include "ramspan/detail/vector_element.h"
#include "ramspan/managed_ptr.h"

namespace ramspan {

// A range of elements, contiguous: in place where it lies in one block, else a copy beside the memory limit (std::bad_alloc where there is none),
// which goes back to the blocks when a span for writing ends. All its blocks are pinned as long as it lives. One that lies in a span across blocks that the same thread has
// shares its copy (of several such spans, of one), so each sees what the other writes; one that lies only partly in it shows what was there when it was made, and where both are for writing it is refused
// (Error). What is written by x[i], a view, a block, a span that was there before or another thread to elements that a span for writing across blocks has is overwritten when that ends.
inline namespace shared_spans {  // or the linker could take its functions for those of other spans, in objects that were compiled before there were these
template <typename T>
class vectorSpan {
  using Element = std::remove_const_t<T>;
  static_assert(std::is_trivially_copyable_v<Element>, "elements that are not trivially copyable are used within their block: for (T& e : a.block(b))");
  using Managed = std::conditional_t<std::is_const_v<T>, const managedPtr<Element>, managedPtr<Element>>;

 public:
  vectorSpan(const managedPtr<Element>* blocks, size_t first, size_t count, detail::BlockIndex index)
      : first_in_block_(first - index.First(index.Block(first))), count_(count), block_elements_(index.elements()) {
    if (count == 0) return;
    const size_t begin = index.Block(first), end = index.Block(first + count - 1) + 1;
    std::vector<detail::PinRequest> requests;
    requests.reserve(end - begin);
    pins_.reserve(end - begin);
    places_.reserve(end - begin);
    for (size_t b = begin; b < end; ++b) {
      const detail::Object object = detail::ObjectOf()(blocks[b]);
      requests.push_back({object.chunk(), object.offset(), !std::is_const_v<T>});
    }
    detail::PinTable* const table = detail::ThisThreadPins();
    detail::PinTogether(requests.data(), requests.size(), table);
    for (const detail::PinRequest& one : requests) {
      pins_.emplace_back(one.chunk, table, one.slot);
      places_.push_back(one.offset);
    }
    if (requests.size() > 1 || detail::g_span_records.load(std::memory_order_relaxed) > 0) ShareOrCopy(blocks, first, requests.size() > 1);
    if (record_.copy == nullptr) elements_ = PlaceOf(0) + first_in_block_;
  }
  vectorSpan(const vectorSpan&) = delete;
  vectorSpan& operator=(const vectorSpan&) = delete;
  ~vectorSpan() {
    if (record_.copy == nullptr) return;
    if constexpr (!std::is_const_v<T>) ForEachPart([&](T* part, size_t at, size_t n) { std::copy_n(elements_ + at, n, part); });
    detail::EndSpan(&record_);
  }

  T* data() const RAMSPAN_LIFETIMEBOUND { return elements_; }
  T* begin() const RAMSPAN_LIFETIMEBOUND { return elements_; }
  T* end() const RAMSPAN_LIFETIMEBOUND { return elements_ + count_; }
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  T& operator[](size_t i) const RAMSPAN_LIFETIMEBOUND { return elements_[i]; }
#ifdef RAMSPAN_HAS_STD_SPAN
  operator std::span<T>() const RAMSPAN_LIFETIMEBOUND { return {elements_, count_}; }  // NOLINT: it is one
#endif

 private:
  void ShareOrCopy(const void* blocks, size_t first, bool several) {
    record_.blocks = blocks;
    record_.first = first;
    record_.count = count_;
    record_.writes = !std::is_const_v<T>;
    const detail::ReadFromBlocks from = detail::FindCopy(&record_);
    const bool is_new = record_.copy == nullptr;
    if (is_new) {
      if (!several && from == detail::ReadFromBlocks::kAll) return;
      record_.copy = std::shared_ptr<void>(new Element[count_], std::default_delete<Element[]>());
      record_.copy_first = first;
      record_.copy_count = count_;
    }
    auto* const copy = static_cast<Element*>(record_.copy.get()) + (first - record_.copy_first);
    elements_ = copy;
    if (from != detail::ReadFromBlocks::kNone) ForEachPart([&](T* part, size_t at, size_t n) {
      for (size_t i = 0; from == detail::ReadFromBlocks::kSome && i < n; ++i) {
        const void* const newer = detail::NewerElement(record_, first + at + i, sizeof(T));
        if (newer != copy + at + i) copy[at + i] = newer != nullptr ? *static_cast<const Element*>(newer) : part[i];
      }
      // What is shared and the same already may be in use by other threads.
      if (from == detail::ReadFromBlocks::kAll && (is_new || std::memcmp(copy + at, part, n * sizeof(T)) != 0)) std::copy_n(part, n, copy + at);
    });
    detail::BeginSpan(&record_);
  }
  T* PlaceOf(size_t pin) const { return detail::ElementsAt<T>(pins_[pin].frame(), places_[pin]); }
  template <typename Do>
  void ForEachPart(const Do& part) const {
    size_t at = 0, offset = first_in_block_;
    for (size_t i = 0; i < pins_.size(); ++i, offset = 0) {
      const size_t n = std::min(block_elements_ - offset, count_ - at);
      part(PlaceOf(i) + offset, at, n);
      at += n;
    }
  }

  std::vector<detail::HeldPin> pins_;
  std::vector<uint32_t> places_;  // of the blocks' elements in their chunks
  detail::SpanRecord record_;
  T* elements_ = nullptr;
  size_t first_in_block_, count_, block_elements_;
};

}  // namespace shared_spans
}  // namespace ramspan
