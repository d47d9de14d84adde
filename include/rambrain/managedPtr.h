// managedPtr, adhereTo, the ADHERETO macros and LISTOFINGREDIENTS under Rambrain's names, over ramspan's classes of the
// same purpose. What a program sees differently is listed in docs/porting.md.
//
// Thread-safety: as ramspan/managed_ptr.h and ramspan/adhere_to.h say.
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "rambrain/exceptions.h"
#include "rambrain/managedMemory.h"
#include "ramspan/adhere_to.h"
#include "ramspan/managed_ptr.h"

namespace rambrain {

namespace rambrain_detail {

// Objects that are known one by one: those with destructors (which run at exit, too), and, while the hierarchy is
// tracked, all. The rest costs a relaxed load.
struct ObjectNode;
extern RAMSPAN_API std::atomic<int> g_object_tracking;  // 0: never; 1: it was on; 2: it is on
// The object that the calling thread constructs from now on; its parent is the one that it was constructing before.
// `destroy` is null where elements have no destructor. Null in a child of fork, which notes nothing.
RAMSPAN_API ObjectNode* BeginObject(global_bytesize elements, void (*destroy)(void*, size_t));
RAMSPAN_API void EndObject(ObjectNode* node, ramspan::detail::Object object) noexcept;  // null: it was not made
RAMSPAN_API void ObjectGone(ramspan::detail::Object object) noexcept;

// Pins the chunk of an object until the thread has used others (elements.cc); its elements. Throws as a pull.
RAMSPAN_API void* HoldElements(ramspan::detail::Object object, bool write);
// Ends that for the calling thread, of all objects or of one; whether there were any.
RAMSPAN_API bool LetElementsGo() noexcept;
RAMSPAN_API void LetElementsGo(ramspan::detail::Object object) noexcept;

// A pull: what operator[] left pinned must not be what there is no memory for.
template <typename F>
auto Pulled(F&& pull) -> decltype(pull()) {
  return Translated([&] {
    try {
      return pull();
    } catch (const ramspan::OutOfMemory&) {
      if (!LetElementsGo()) throw;
    }
    return pull();
  });
}

// One T, made as Rambrain makes it: value-initialised (0 for arithmetic types), or from the managedPtr's own copies of
// the arguments, which T's constructor may take by non-const reference (hence the const_casts). Rambrain also moved
// objects of any class byte by byte; so the check of ramspan::is_relocatable is passed over.
template <typename T>
struct Element {
  Element() : value() {}
  template <typename A, typename... Args>
  explicit Element(const A& first, const Args&... rest)
      : value(const_cast<A&>(first), const_cast<Args&>(rest)...) {}
  T value;

  // Ramspan calls it when the last managedPtr goes, before the destructors.
  friend void OnLastRelease(Element*, ramspan::detail::Object object) noexcept {
    LetElementsGo(object);
    if (!std::is_trivially_destructible_v<T> || g_object_tracking.load(std::memory_order_relaxed) != 0) ObjectGone(object);
  }
};

template <typename T>
void DestroyElements(void* elements, size_t n) {
  if constexpr (!std::is_trivially_destructible_v<T>) std::destroy_n(static_cast<Element<T>*>(elements), n);
}

inline unsigned int Count(global_bytesize n) {
  if (n <= std::numeric_limits<unsigned int>::max()) return static_cast<unsigned int>(n);
  throw unexpectedStateException("size() of more elements than an unsigned int can count; use size64()");
}

class Construction {
 public:
  template <typename T>
  Construction(std::in_place_type_t<T>, global_bytesize n) {
    if (n == 0) return;
    if (!std::is_trivially_destructible_v<T> || g_object_tracking.load(std::memory_order_relaxed) == 2) {
      node_ = BeginObject(n, std::is_trivially_destructible_v<T> ? nullptr : &DestroyElements<T>);
    }
  }
  Construction(const Construction&) = delete;
  ~Construction() {
    if (node_) EndObject(node_, object_);
  }
  void Done(ramspan::detail::Object object) { object_ = object; }

 private:
  ObjectNode* node_ = nullptr;
  ramspan::detail::Object object_;
};

}  // namespace rambrain_detail

template <class T>
class adhereTo;

// dim dimensions: rows of managedPtr<T, dim - 1>, each of the last dimension's rows swapped on its own. A copy has rows
// of its own that share their elements with the original's.
template <class T, int dim = 1>
class managedPtr {
  static_assert(dim >= 1, "a managedPtr has at least one dimension");
  using Row = managedPtr<T, dim - 1>;

 public:
  managedPtr() : managedPtr(1) {}
  // n rows, each made from the further arguments: sizes, then the elements' constructor arguments. Throws memoryException, and
  // what T's constructor throws; then nothing is left behind.
  template <typename... Args>
  managedPtr(global_bytesize n, Args... args) : rows_(RoomFor(n)) {  // NOLINT: implicit in Rambrain
    for (global_bytesize i = 0; i < n; ++i) rows_.emplace_back(args...);
  }

  // A move is a copy: Rambrain's programs use what they moved from. Both throw memoryException (the rows' handles are on the
  // heap); then what was to be assigned to has the rows that it had.
  managedPtr(const managedPtr& other) : rows_(RoomFor(other.rows_.size())) {
    for (const Row& row : other.rows_) rows_.push_back(row);
  }
  managedPtr& operator=(const managedPtr& other) {
    managedPtr copy(other);
    rows_.swap(copy.rows_);
    return *this;
  }

  // Throws memoryException where there is no i-th row.
  Row& operator[](global_bytesize i) { return rows_[Checked(i)]; }
  const Row& operator[](global_bytesize i) const { return rows_[Checked(i)]; }

  unsigned int size() const { return rambrain_detail::Count(rows_.size()); }  // of this dimension

 private:
  // What of the rows needs heap: they are put there without any.
  static std::vector<Row> RoomFor(global_bytesize n) {
    return rambrain_detail::TranslatedAll([n] {
      std::vector<Row> rows;
      if (n > rows.max_size()) ramspan::detail::ThrowTooLarge(n, sizeof(Row));
      rows.reserve(n);
      return rows;
    });
  }

  global_bytesize Checked(global_bytesize i) const {
    if (__builtin_expect(i >= rows_.size(), 0)) {
      rambrain_detail::Translated([i, count = rows_.size()] { ramspan::detail::ThrowNone("row", i, count); });
    }
    return i;
  }

  std::vector<Row> rows_;
};

template <class T>
class managedPtr<T, 1> {
 public:
  managedPtr() : managedPtr(1) {}
  // No elements; no constructor of T is needed. So managedPtr<T>(0) needs none either.
  managedPtr(std::nullptr_t) : data_(NoElements()) {}  // NOLINT: implicit as the next
  // n elements, each made from copies of the arguments. Throws memoryException, and what T's constructor throws.
  template <typename... Args>
  managedPtr(global_bytesize n, Args... args) : data_(Make(n, args...)) {}  // NOLINT: implicit in Rambrain

  // A move is a copy, which shares the elements: Rambrain's programs use what they moved from.
  managedPtr(const managedPtr&) = default;
  managedPtr& operator=(const managedPtr&) = default;

  // Elements. unsigned int as in Rambrain, since programs compare it with and deduce types from it; throws
  // unexpectedStateException where they are more than that holds.
  unsigned int size() const { return rambrain_detail::Count(data_.size()); }
  global_bytesize size64() const { return data_.size(); }

  // Whether there are none.
  friend bool operator==(const managedPtr& data, std::nullptr_t) { return data.data_ == nullptr; }
  friend bool operator==(std::nullptr_t, const managedPtr& data) { return data.data_ == nullptr; }
  friend bool operator!=(const managedPtr& data, std::nullptr_t) { return data.data_ != nullptr; }
  friend bool operator!=(std::nullptr_t, const managedPtr& data) { return data.data_ != nullptr; }

  // A hint that the data will be needed soon. Always true.
  bool prepareUse() const {
    data_.prepareUse();
    return true;
  }

  // A pin that lasts until unsetUse, from whichever thread, through any copy. With a tracker: only if *tracker was false,
  // which then becomes true; returns whether it pinned.
  bool setUse(bool writable = true, bool* tracker = nullptr) const {
    if (tracker && __atomic_exchange_n(tracker, true, __ATOMIC_ACQ_REL)) return false;
    const ramspan::detail::Object object = Behind();
    if (!object) return true;
    try {
      rambrain_detail::Pulled([&] { return ramspan::detail::AddUse(object, writable); });
    } catch (...) {
      if (tracker) __atomic_store_n(tracker, false, __ATOMIC_RELEASE);
      throw;
    }
    return true;
  }
  // Ends `loaded` pins of setUse. Throws memoryException when there are not so many.
  bool unsetUse(unsigned int loaded = 1) const {
    const ramspan::detail::Object object = Behind();
    if (object && !ramspan::detail::EndUses(object, loaded)) throw memoryException("unsetUse without a setUse before it");
    return true;
  }

  // The data's place in memory, which is fetched if it is not there; null for 0 elements. It stays there only while
  // setUse or an adhereTo holds it.
  T* getLocPtr() const {
    adhereTo<T> glue(*this);
    return glue;
  }
  const T* getConstLocPtr() const {
    const adhereTo<T> glue(*this);
    return glue;
  }

  // One element. The reference is good until the thread has used elements of eight other managedPtrs this way (of fewer
  // where they are large: two at least), or pulls an adhereTo for which there is no memory otherwise. Slow: use an adhereTo. Throws memoryException. REQUIRES: i < size().
  T& operator[](global_bytesize i) { return Elements(true)[i].value; }
  const T& operator[](global_bytesize i) const { return Elements(false)[i].value; }

 private:
  friend class adhereTo<T>;
  using Data = ramspan::managedPtr<rambrain_detail::Element<T>>;

  template <typename... Args>
  static Data Make(global_bytesize n, const Args&... args) {
    static_assert(sizeof(rambrain_detail::Element<T>) == sizeof(T), "elements lie like an array of T");
    managedMemory::RequireManager();
    return rambrain_detail::Translated([&] {
      rambrain_detail::Construction construction(std::in_place_type<T>, n);
      Data data(n, args...);
      construction.Done(ramspan::detail::ObjectOf()(data));
      return data;
    });
  }
  static Data NoElements() {
    managedMemory::RequireManager();
    return nullptr;
  }
  friend class managedMemory;
  rambrain_detail::Element<T>* Elements(bool write) const {
    return rambrain_detail::Translated([&] { return static_cast<rambrain_detail::Element<T>*>(rambrain_detail::HoldElements(Behind(), write)); });
  }
  ramspan::detail::Object Behind() const { return ramspan::detail::ObjectOf()(data_); }

  Data data_;
};

#define RAMSPAN_PULL_OF_TEMPORARY_ \
  "a pointer that is pulled from a temporary adhereTo dangles behind this line, where its pin has ended: name it, adhereTo<T> glue(data); T* x = glue;"

template <class T>
class adhereTo {
 public:
  // loadImmediately starts to fetch the data in the background; otherwise the first pull fetches it.
  adhereTo(const managedPtr<T>& data, bool loadImmediately = true)  // NOLINT: implicit in Rambrain
      : glue_(data.data_, loadImmediately), empty_(data.size64() == 0) {}
  adhereTo(const managedPtr<T>* data, bool loadImmediately = true)  // NOLINT
      : adhereTo(*data, loadImmediately) {}

  // The copy holds the data if the original does.
  adhereTo(const adhereTo& other) : adhereTo(Copied(), other) {}
  adhereTo& operator=(const adhereTo& other) {
    if (this != &other) {
      adhereTo copy(other);
      glue_ = std::move(copy.glue_);
      empty_ = copy.empty_;
    }
    return *this;
  }

  // Pulls; null for 0 elements. Each blocks until the data is in memory. Throws memoryException.
  operator T*() & {  // NOLINT: implicit conversion is the interface
    return Pull([this] { return static_cast<Element*>(glue_); });
  }
  operator const T*() & {  // NOLINT
    return static_cast<const T*>(std::as_const(*this));
  }
  operator const T*() const& {  // NOLINT
    return Pull([this] { return static_cast<const Element*>(glue_); });
  }
  [[deprecated(RAMSPAN_PULL_OF_TEMPORARY_)]] operator T*() && { return *this; }             // NOLINT: Rambrain's
  [[deprecated(RAMSPAN_PULL_OF_TEMPORARY_)]] operator const T*() && { return *this; }       // NOLINT
  [[deprecated(RAMSPAN_PULL_OF_TEMPORARY_)]] operator const T*() const&& { return *this; }  // NOLINT

  // As in ramspan/adhere_to.h: declared for its error message.
  template <typename Index>
  T& operator[](const Index&) {
    static_assert(ramspan::detail::kAlwaysFalse<Index>,
                  "an index does not say whether the adhereTo is to be read or written: pull a pointer first, T* x = glue; "
                  "x[i] (const T* x = glue; to read only)");
    __builtin_unreachable();
  }

 private:
  using Element = rambrain_detail::Element<T>;

  struct Copied {};
  adhereTo(Copied, const adhereTo& other)
      : glue_(rambrain_detail::Translated([&] { return ramspan::adhereTo<Element>(other.glue_); })), empty_(other.empty_) {}

  template <typename F>
  auto Pull(F&& pull) const -> decltype(&pull()->value) {
    if (__builtin_expect(empty_, 0)) return nullptr;
    ramspan::detail::PinTable* table = ramspan::detail::ThisThreadPins();
    table->pulls.store(table->pulls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return &rambrain_detail::Pulled(pull)->value;
  }

  ramspan::adhereTo<Element> glue_;
  bool empty_;
};
#undef RAMSPAN_PULL_OF_TEMPORARY_

// One thread at a time between start() and stop(), or in the scope of an object made without `locksByUser`. A thread
// may nest them.
class rambrainGlobalCriticalSectionControl {
 public:
  explicit rambrainGlobalCriticalSectionControl(bool locksByUser = false) {
    if (!locksByUser) start();
  }
  rambrainGlobalCriticalSectionControl(const rambrainGlobalCriticalSectionControl&) = delete;
  rambrainGlobalCriticalSectionControl& operator=(const rambrainGlobalCriticalSectionControl&) = delete;

  void start() {
    if (!scope_) scope_.emplace();
  }
  void stop() { scope_.reset(); }

 private:
  std::optional<ramspan::detail::IngredientsScope> scope_;
};

}  // namespace rambrain

template <typename T>
struct ramspan::is_relocatable<rambrain::rambrain_detail::Element<T>> : std::true_type {};
// For programs that put Rambrain's managedPtrs into ramspan's.
template <typename T, int dim>
struct ramspan::is_relocatable<rambrain::managedPtr<T, dim>> : std::true_type {};

// Rambrain's macros: the glue is called INSTANCE_glue, and the semicolon is within.
#undef ADHERETO
#undef ADHERETOCONST
#undef ADHERETOLOC
#undef ADHERETOLOCCONST
#undef LISTOFINGREDIENTS
#define ADHERETO(class, instance)                    \
  ::rambrain::adhereTo<class> instance##_glue(instance); \
  class* instance = instance##_glue;
#define ADHERETOCONST(class, instance)                     \
  const ::rambrain::adhereTo<class> instance##_glue(instance); \
  const class* instance = instance##_glue;
#define ADHERETOLOC(class, instance, locinstance)    \
  ::rambrain::adhereTo<class> instance##_glue(instance); \
  class* locinstance = instance##_glue;
#define ADHERETOLOCCONST(class, instance, locinstance)     \
  const ::rambrain::adhereTo<class> instance##_glue(instance); \
  const class* locinstance = instance##_glue;
#define LISTOFINGREDIENTS ::rambrain::rambrainGlobalCriticalSectionControl rambrain_section_control;
