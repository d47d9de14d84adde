// What lockstep.h is made of: one vector's share of a part. Private to Ramspan although installed (resident.h), but for steps and vectorPart.
// Thread-safety: as lockstep.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>

#include "ramspan/adhere_all.h"
#include "ramspan/detail/block_index.h"
#include "ramspan/detail/held_pin.h"
#include "ramspan/detail/lasting_advice.h"

namespace ramspan {

// Indices [first, end), and how far around each of them const vectors are read.
struct steps {
  size_t first, end, reach = 0;
};

namespace detail {

struct LockstepVector {
  const void* which;
  size_t size, block_elements;
  bool write;
};
// Error where these vectors have no such elements, or cannot be used so together.
RAMSPAN_API void CheckLockstep(const steps& all, const LockstepVector* vectors, size_t count);
[[noreturn]] RAMSPAN_API void ThrowOutsidePart(size_t index, size_t first, size_t end);

}  // namespace detail

// One vector's elements in a part, by their indices in the vector. Valid as long as the part.
template <typename T>
class vectorPart {
 public:
  using value_type = std::remove_const_t<T>;

  vectorPart() = default;
  vectorPart(T* elements, size_t first, size_t count) : elements_(elements), first_(first), count_(count) {}
  // Checked (Error) with _GLIBCXX_ASSERTIONS.
  T& operator[](size_t i) const {
#ifdef _GLIBCXX_ASSERTIONS
    if (__builtin_expect(i - first_ >= count_, 0)) detail::ThrowOutsidePart(i, first_, first_ + count_);
#endif
    return elements_[i - first_];
  }

 private:
  T* elements_ = nullptr;  // from first_ on
  size_t first_ = 0, count_ = 0;
};

namespace detail {

// What a part does to one vector.
template <typename V>
class LockstepPiece {
  static constexpr bool kWrite = !std::is_const_v<V>;
  using Element = typename V::value_type;
  static_assert(std::is_trivially_copyable_v<Element>, "elements that are not trivially copyable are used within their block: for (T& e : a.block(b))");

 public:
  // Where the elements are in one block, what is to be pinned; else a request of nothing, and a copy. Blocks and throws as a pull.
  PinRequest Begin(const V& vector, const steps& part) {
    const BlockIndex index(vector.block_elements());
    const size_t reach = kWrite ? 0 : part.reach;
    first_ = part.first - std::min(part.first, reach);
    count_ = std::min(vector.size() - part.end, reach) + part.end - first_;
    const size_t block = index.Block(first_);
    if (index.Block(first_ + count_ - 1) == block) {
      const Object object = detail::ObjectOf()(vector.chunk(block));
      offset_ = first_ - index.First(block);
      return {object.chunk(), object.offset(), kWrite};
    }
    Copy(vector, index);
    return {nullptr, 0, false};
  }
  using T = std::conditional_t<kWrite, Element, const Element>;
  vectorPart<T> Part(const PinRequest& pinned) const {
    T* const elements = pinned.chunk == nullptr ? copy_ : ElementsAt<T>(pinned.chunk->frame, pinned.offset) + offset_;
    return {elements, first_, count_};
  }
  // Of what the next blocks' parts will use; end: of all parts.
  void FetchNext(const V& vector, size_t end) const {
    const size_t next = BlockIndex(vector.block_elements()).Block(first_) + 1;
    if (next * vector.block_elements() < end && !AdviceOf::IsRandom(vector)) vector.chunk(next).prepareUse();
  }

 private:
  void Copy(const V& vector, const BlockIndex& index) {
    Element* const copy = count_ <= kInPlace ? in_place_ : (large_.reset(new Element[count_]), large_.get());
    for (size_t done = 0; done < count_;) {
      const auto [block, offset] = index.Locate(first_ + done);
      const size_t n = std::min(index.elements() - offset, count_ - done);
      const Object object = detail::ObjectOf()(vector.chunk(block));
      const HeldPin pin(object.chunk(), false);
      std::copy_n(ElementsAt<const Element>(pin.frame(), object.offset()) + offset, n, copy + done);
      done += n;
    }
    copy_ = copy;
  }

  static constexpr size_t kInPlace = kWrite ? 1 : std::max<size_t>(1, 64 / sizeof(Element));  // elements that need no heap: reaches of a few
  size_t first_ = 0, count_ = 0, offset_ = 0;
  Element* copy_ = nullptr;
  Element in_place_[kInPlace];
  std::unique_ptr<Element[]> large_;
};

}  // namespace detail

}  // namespace ramspan
