// One access to an element: the chunk is pinned for as long as its bytes are copied. Nothing stays pinned, so loops over any number of
// vectors in any number of threads need one chunk a thread. Private to Ramspan although installed (resident.h).
#pragma once

#include <cstddef>
#include <atomic>
#include <type_traits>
#include <utility>

#include "ramspan/detail/held_pin.h"
#include "ramspan/detail/object.h"

namespace ramspan::detail {

// Which of the thread's slots an access tries next. kUsed: none, it is done. kInNone: the element cannot be used at once.
enum NextSlot : unsigned { kUsed = 0, kInNone = PinTable::kInlineSlots };

// use(element), pinned in this slot, if that is empty and the element can be used at once. Inlined into loops it is 25 instructions and three stores, of
// which the processor has the more under way, waiting for memory, the fewer they are.
template <typename T, typename Use>
inline unsigned UseElementIn(unsigned slot, PinTable* table, Object object, size_t i, const Use& use) {
  // As Pin, whose slow path may throw.
  if (__builtin_expect(table->slots[slot].load(std::memory_order_acquire) != nullptr, 0)) return slot + 1;
  struct Unpinned {
    std::atomic<ChunkHead*>& slot;
    ~Unpinned() { slot.store(nullptr, std::memory_order_release); }
  } const pin{table->slots[slot]};
  ChunkHead* const chunk = object.chunk();
  if (__builtin_expect(!StorePinForOneUse<!std::is_const_v<T>>(chunk, table, slot), 0)) return kInNone;
  use(ElementsAt<T>(chunk->frame, object.offset())[i]);
  return kUsed;
}
template <typename T, typename Use>
inline unsigned UseElementAtOnce(Object object, size_t i, const Use& use) {
  PinTable* const table = t_pins;
  if (__builtin_expect(table == nullptr, 0)) return kInNone;
  return UseElementIn<T>(0, table, object, i, use);
}

// use(element) in `slot` or a later one, or with a pin of another kind. Blocks until the chunk is in memory. False: ThrowOfTry() throws what a pull does.
template <typename T, typename Use>
__attribute__((noinline)) bool TryUseElementFrom(unsigned slot, Object object, size_t i, Use use) noexcept(noexcept(use(std::declval<T&>()))) {
  while (slot < kInNone) {
    slot = UseElementIn<T>(slot, t_pins, object, i, use);
    if (slot == kUsed) return true;
  }
  HeldPin pin;
  if (!TryHeldPin(object.chunk(), !std::is_const_v<T>, &pin, PinFor::kOnce)) return false;
  use(ElementsAt<T>(pin.frame(), object.offset())[i]);
  return true;
}

// use(element), of element i of the object; blocks, and throws, as a pull. What `use` changes beside the element it has by reference.
template <typename T, typename Use>
void UseElement(Object object, size_t i, const Use& use) {
  const unsigned slot = UseElementAtOnce<T>(object, i, use);
  if (__builtin_expect(slot != kUsed, 0) && !TryUseElementFrom<T>(slot, object, i, use)) ThrowOfTry();
}
// False: ThrowOfTry() throws what a pull does.
template <typename T>
__attribute__((noinline)) bool TryReadElement(Object object, size_t i, T* value) noexcept {
  const auto read = [value](const T& element) noexcept { *value = element; };
  const unsigned slot = UseElementAtOnce<const T>(object, i, read);
  return slot == kUsed || TryUseElementFrom<const T>(slot, object, i, read);
}
template <typename T>
__attribute__((noinline)) T ReadElementFrom(unsigned slot, Object object, size_t i) {
  T value;
  if (!TryUseElementFrom<const T>(slot, object, i, [&value](const T& element) noexcept { value = element; })) ThrowOfTry();
  return value;
}
template <typename T>
T ReadElement(Object object, size_t i) {
  T value;  // its address does not leave this function, so that it can be in a register
  const unsigned slot = UseElementAtOnce<const T>(object, i, [&value](const T& element) noexcept { value = element; });
  return __builtin_expect(slot == kUsed, 1) ? value : ReadElementFrom<T>(slot, object, i);
}

// use(element, value), where `value` is the program's. By value where that is small, so that it can be in a register; large ones would take their size of
// stack again. A named type: programs have objects compiled with other versions of this header beside, whose closures would have the same names.
template <typename T, typename V, typename Use>
struct UseWithValue {
  std::conditional_t<sizeof(V) <= 64, const V, const V&> value;
  void operator()(T& element) const { Use()(element, value); }
};
struct AssignValue {
  template <typename T>
  void operator()(T& element, const T& value) const {
    element = value;
  }
};

// What x[i].member needs: the element, pinned to the end of the expression.
template <typename T>
class PinnedElement {
 public:
  PinnedElement(Object object, size_t i)
      : pin_(object.chunk(), !std::is_const_v<T>), at_(ElementsAt<T>(pin_.frame(), object.offset()) + i) {}
  T* operator->() const { return at_; }

 private:
  HeldPin pin_;
  T* at_;
};

// What x[i] of a mutable vector is: read, it is a T; assigned to, it writes. As std::vector<bool>'s reference it is no T&: `auto y = x[i]`
// names the element, `T y = x[i]` has its value. Valid until the vector's capacity changes.
template <typename T>
class VectorElement {
 public:
  using value_type = T;

  VectorElement(Object object, size_t i) : object_(object), i_(i) {}
  VectorElement(const VectorElement& other) : object_(other.object_), i_(other.i_) {}  // not trivial: printf does not take one

  operator T() const { return ReadElement<T>(object_, i_); }  // NOLINT: it stands for its value
  T value() const { return ReadElement<T>(object_, i_); }
  PinnedElement<T> operator->() const { return {object_, i_}; }

  // Through a const one as well: what is changed is the vector's.
  const VectorElement& operator=(const T& value) const {
    const T copy = value;  // it may be in swap
    UseElement<T>(object_, i_, UseWithValue<T, T, AssignValue>{copy});
    return *this;
  }
  const VectorElement& operator=(const VectorElement& other) const { return *this = other.value(); }
  VectorElement& operator=(const VectorElement& other) {
    std::as_const(*this) = other.value();
    return *this;
  }

#define RAMSPAN_COMPOUND_(name, op)                                                          \
  struct name {                                                                              \
    template <typename U>                                                                    \
    void operator()(T& element, const U& value) const {                                      \
      element op value;                                                                      \
    }                                                                                        \
  };                                                                                         \
  template <typename U>                                                                      \
  const VectorElement& operator op(const U& operand) const {                                 \
    const auto value = Plain(operand);                                                       \
    UseElement<T>(object_, i_, UseWithValue<T, std::decay_t<decltype(value)>, name>{value});  \
    return *this;                                                                            \
  }
  RAMSPAN_COMPOUND_(AddTo, +=)
  RAMSPAN_COMPOUND_(SubtractFrom, -=)
  RAMSPAN_COMPOUND_(MultiplyBy, *=)
  RAMSPAN_COMPOUND_(DivideBy, /=)
  RAMSPAN_COMPOUND_(TakeRemainder, %=)
  RAMSPAN_COMPOUND_(AndWith, &=)
  RAMSPAN_COMPOUND_(OrWith, |=)
  RAMSPAN_COMPOUND_(XorWith, ^=)
  RAMSPAN_COMPOUND_(ShiftLeft, <<=)
  RAMSPAN_COMPOUND_(ShiftRight, >>=)
#undef RAMSPAN_COMPOUND_
  const VectorElement& operator++() const {
    UseElement<T>(object_, i_, [](T& element) { ++element; });
    return *this;
  }
  const VectorElement& operator--() const {
    UseElement<T>(object_, i_, [](T& element) { --element; });
    return *this;
  }
  T operator++(int) const {
    const T before = value();
    ++*this;
    return before;
  }
  T operator--(int) const {
    const T before = value();
    --*this;
    return before;
  }
  // Those that T has as members are not found by what stands for a T.
#define RAMSPAN_COMPARISON_(op)                                                                                             \
  friend bool operator op(const VectorElement& a, const VectorElement& b) { return a.value() op b.value(); }                \
  template <typename U, std::enable_if_t<std::is_same_v<U, T> && std::is_class_v<U>, int> = 0>                              \
  friend bool operator op(const VectorElement& a, const U& b) {                                                             \
    return a.value() op b;                                                                                                  \
  }                                                                                                                         \
  template <typename U, std::enable_if_t<std::is_same_v<U, T> && std::is_class_v<U>, int> = 0>                              \
  friend bool operator op(const U& a, const VectorElement& b) {                                                             \
    return a op b.value();                                                                                                  \
  }
  RAMSPAN_COMPARISON_(==)
  RAMSPAN_COMPARISON_(!=)
  RAMSPAN_COMPARISON_(<)
  RAMSPAN_COMPARISON_(>)
  RAMSPAN_COMPARISON_(<=)
  RAMSPAN_COMPARISON_(>=)
#undef RAMSPAN_COMPARISON_
  // By value, so that it is better than std::swap for named ones, too, which would change what they name and not their values.
  friend void swap(VectorElement a, VectorElement b) {
    const T before = a.value();
    a = b.value();
    b = before;
  }

 private:
  template <typename U>
  static const U& Plain(const U& operand) {
    return operand;
  }
  template <typename U>
  static U Plain(const VectorElement<U>& operand) {
    return operand.value();
  }

  Object object_;
  size_t i_;
};

}  // namespace ramspan::detail
