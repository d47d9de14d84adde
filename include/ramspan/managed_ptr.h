// managedPtr<T>: n objects of type T that may leave memory while no adhereTo holds them (the interface of Rambrain,
// arXiv 1510.06358, section 2). Copies share the objects; the last one destroys them.
//
// Thread-safety: like std::shared_ptr: one managedPtr may be read by many threads, distinct copies may be used freely.
// Element count is a size_t; n = 0 is a null managedPtr. T must survive a move of its bytes (see is_relocatable).
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "ramspan/detail/held_pin.h"
#include "ramspan/detail/object.h"
#include "ramspan/errors.h"

namespace ramspan {

// True when an object of type T may be copied to another address byte by byte and used there (and its old bytes
// forgotten). Holds for trivially copyable types and for managedPtr. Specialise it for your own types that hold no
// pointer into themselves:  template <> struct ramspan::is_relocatable<MyType> : std::true_type {};
template <typename T>
struct is_relocatable : std::is_trivially_copyable<T> {};

template <typename T>
class managedPtr;
template <typename T>
struct is_relocatable<managedPtr<T>> : std::true_type {};

template <typename T>
class adhereTo;
template <typename T>
class pinnedSpan;
namespace detail {
struct PinAccess;  // adhere_all.h
}

namespace detail {
// What is behind a managedPtr, for the layers above it in include/.
struct ObjectOf {
  template <typename T>
  Object operator()(const managedPtr<T>& data) const {
    return data.object_;
  }
  // Takes over the one reference of an object.
  template <typename T>
  static managedPtr<T> Adopt(Object object) {
    managedPtr<T> data(nullptr);
    data.object_ = object;
    return data;
  }
};

// Whether T's namespace has an OnLastRelease for it.
template <typename T, typename = void>
struct HasOnLastRelease : std::false_type {};
template <typename T>
struct HasOnLastRelease<T, std::void_t<decltype(OnLastRelease(static_cast<T*>(nullptr), Object()))>> : std::true_type {};

// One construction of elements of the calling thread, which may be within another one's. A class that makes another of
// itself without end is refused here, long before the stack's end.
class Construction {
 public:
  // Lists that make themselves from end to end are some hundred deep. Beside what the program's constructor has, a level takes 160 bytes
  // of stack (g++ -O3) to 600 (-O0, Rambrain's headers): threads of less than 1 MiB may come to its end first.
  static constexpr uint32_t kDepthMax = 1000;
  Construction() : depth_(&ThisThreadPins()->constructions) {
    if (*depth_ == kDepthMax) ThrowTooDeep(kDepthMax);
    ++*depth_;
  }
  Construction(const Construction&) = delete;
  ~Construction() { --*depth_; }

 private:
  uint32_t* const depth_;
};

// For a static_assert that is about a use of a template, not about the template.
template <typename...>
inline constexpr bool kAlwaysFalse = false;
}  // namespace detail

// managedPtr<Cell> p(n, uninitialized), managedVector<double> x(n, uninitialized): elements that are to be overwritten, for which no constructor runs.
struct uninitialized_t {};
inline constexpr uninitialized_t uninitialized{};

// T may be incomplete until the first elements are made, so a class may have managedPtrs to its own type.
template <typename T>
class managedPtr {
 public:
  using element_type = T;

  // One element, default-constructed (indeterminate for arithmetic types, as with new T).
  managedPtr() : managedPtr(size_t{1}) {}

  // No elements, and no constructor of T is needed: a tree's "no child". So managedPtr<T>(0) needs none either.
  managedPtr(std::nullptr_t) noexcept {}  // NOLINT: implicit, as std::shared_ptr's

  // n elements, each constructed from the same arguments. Blocks while room is made if T has a constructor to run.
  // Throws OutOfMemory, OutOfSwap, Error where constructors make managedPtrs within each other a thousand deep, and what
  // T's constructor throws; then nothing is left behind.
  template <typename... Args>
  explicit managedPtr(size_t n, const Args&... args) {
    MakeRoom(n);
    if (n == 0) return;
    if constexpr (sizeof...(Args) > 0 || !std::is_trivially_default_constructible_v<T>) {
      try {
        ConstructAll(n, args...);
      } catch (...) {
        detail::FreeObject(object_);
        throw;
      }
    }
  }

  // n elements, indeterminate, also of a type that has a constructor. Does not block.
  managedPtr(size_t n, uninitialized_t) {
    static_assert(std::is_trivially_destructible_v<T>, "a destructor would meet elements that were never constructed");
    MakeRoom(n);
  }

  managedPtr(const managedPtr& other) noexcept : object_(other.object_) {
    if (object_) object_.refs().fetch_add(1, std::memory_order_relaxed);
  }
  managedPtr(managedPtr&& other) noexcept : object_(std::exchange(other.object_, {})) {}
  managedPtr& operator=(managedPtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  // May block (to fetch elements whose destructors must run). REQUIRES for the last copy: no adhereTo is left.
  ~managedPtr() { Release(); }

  size_t size() const { return object_ ? object_.bytes() / sizeof(T) : 0; }
  explicit operator bool() const { return static_cast<bool>(object_); }
  bool operator==(const managedPtr& other) const { return object_ == other.object_; }
  bool operator!=(const managedPtr& other) const { return object_ != other.object_; }
  // C++17 does not try the sides of a comparison the other way round.
  friend bool operator==(std::nullptr_t, const managedPtr& data) { return !data; }
  friend bool operator!=(std::nullptr_t, const managedPtr& data) { return static_cast<bool>(data); }

  // The elements, in memory as long as the result lives (pinned_span.h). What is to be written or not is in the name.
  pinnedSpan<const T> read() const RAMSPAN_LIFETIMEBOUND;
  pinnedSpan<T> write() RAMSPAN_LIFETIMEBOUND;

  // A hint that the data will be needed soon. Does not wait for it.
  void prepareUse() const noexcept {
    if (object_) detail::PrefetchChunk(object_.chunk());
  }

  // What the program knows of the use of all elements (advice.h). Does not wait for them.
  void advise(advice what) const noexcept {
    if (object_) detail::AdviseChunk(object_.chunk(), what);
  }

  // Declared for its error message. An element's reference would be good for no longer than the pin that gave it.
  template <typename Index>
  T& operator[](const Index&) const {
    static_assert(detail::kAlwaysFalse<Index>,
                  "a managedPtr has no operator[], its elements may be out of memory: glue it and pull a pointer, "
                  "adhereTo<T> glue(data); T* x = glue; x[i]");
    __builtin_unreachable();
  }

 private:
  friend class adhereTo<T>;
  friend struct detail::PinAccess;
  friend struct detail::ObjectOf;

  void MakeRoom(size_t n) {
    static_assert(is_relocatable<T>::value,  // here and not in the class: T is complete now
                  "T must survive a move of its bytes: make it trivially copyable, use managedPtr members instead of "
                  "owning containers, or, if it holds no pointer into itself, declare "
                  "template <> struct ramspan::is_relocatable<T> : std::true_type {};");
    static_assert(alignof(T) <= 4096, "alignment over one page is not supported");
    if (n == 0) return;
    if (n > std::numeric_limits<size_t>::max() / 2 / sizeof(T)) detail::ThrowTooLarge(n, sizeof(T));
    object_ = detail::CreateObject(n * sizeof(T), alignof(T));
  }
  template <typename... Args>
  void ConstructAll(size_t n, const Args&... args) {
    const detail::Construction construction;
    const detail::HeldPin pin(object_.chunk(), true);
    T* const elements = detail::ElementsAt<T>(pin.frame(), object_.offset());
    size_t made = 0;
    try {
      for (; made < n; ++made) ::new (static_cast<void*>(elements + made)) T(args...);
    } catch (...) {
      std::destroy_n(elements, made);
      throw;
    }
  }

  void Release() noexcept {
    // acq_rel: the last owner sees all that the others did to the elements before they let go.
    if (!object_ || object_.refs().fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if constexpr (detail::HasOnLastRelease<T>::value) {
      OnLastRelease(static_cast<T*>(nullptr), object_);  // found by T's namespace: its bookkeeping ends here
    }
    if constexpr (!std::is_trivially_destructible_v<T>) {
      try {
        const detail::HeldPin pin(object_.chunk(), true);
        std::destroy_n(detail::ElementsAt<T>(pin.frame(), object_.offset()), size());
      } catch (const std::exception& e) {  // also of other kinds than Error: nothing may leave a destructor
        detail::ReportLostDestructors(object_, e.what());
      }
    }
    detail::FreeObject(object_);
  }

  detail::Object object_;
};

}  // namespace ramspan

#include "ramspan/adhere_to.h"  // they are used together; Rambrain's programs include only managedPtr.h
#include "ramspan/pinned_span.h"
