// pinnedSpan<T>: the elements of a managedPtr, in memory as long as this lives: a pin and a span in one.
//
//   auto x = data.read();                      // a pinnedSpan<const double>: what is only read is not written to swap
//   auto y = other.write();                    // a pinnedSpan<double>
//   for (size_t i = 0; i < x.size(); ++i) y[i] += x[i];
//
// Made by managedPtr's read() and write(), which block until the data is in memory and throw as a pull does; of a managedPtr without elements it
// is empty. Thread-safety: as adhereTo. A copy pins once more. The managedPtr must outlive it.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ramspan/adhere_to.h"
#include "ramspan/detail/span.h"
#include "ramspan/managed_ptr.h"

namespace ramspan {

template <typename T>
class pinnedSpan {
  using Element = std::remove_const_t<T>;

 public:
  explicit pinnedSpan(const managedPtr<Element>& data) : pinnedSpan(data, data.size()) {}
  // The first `count` of its elements.
  pinnedSpan(const managedPtr<Element>& data, size_t count)
      : glue_(adhereTo<Element>::template Pinned<!std::is_const_v<T>>(data)), elements_(const_cast<T*>(glue_.Elements()), count) {}
  // That a pin holds already; of T const perhaps for reading only.
  pinnedSpan(adhereTo<Element> pin, size_t count) : glue_(std::move(pin)), elements_(static_cast<T*>(glue_), count) {}

#ifdef RAMSPAN_HAS_STD_SPAN
  std::span<T> span() const RAMSPAN_LIFETIMEBOUND { return elements_; }
  operator std::span<T>() const RAMSPAN_LIFETIMEBOUND { return elements_; }  // NOLINT: it is one
#endif
  T* data() const RAMSPAN_LIFETIMEBOUND { return elements_.data(); }
  T* begin() const RAMSPAN_LIFETIMEBOUND { return data(); }
  T* end() const RAMSPAN_LIFETIMEBOUND { return data() + size(); }
  size_t size() const { return elements_.size(); }
  bool empty() const { return size() == 0; }
  // Checked (Error) with _GLIBCXX_ASSERTIONS.
  T& operator[](size_t i) const RAMSPAN_LIFETIMEBOUND {
#ifdef _GLIBCXX_ASSERTIONS
    if (const size_t count = size(); __builtin_expect(i >= count, 0)) detail::ThrowNoElement(&i, &count, 1);
#endif
    return data()[i];
  }

 private:
  adhereTo<Element> glue_;
  detail::Span<T> elements_;
};

template <typename T>
pinnedSpan<const T> managedPtr<T>::read() const {
  return pinnedSpan<const T>(*this);
}
template <typename T>
pinnedSpan<T> managedPtr<T>::write() {
  return pinnedSpan<T>(*this);
}

}  // namespace ramspan
