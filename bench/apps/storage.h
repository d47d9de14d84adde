// Where an application keeps its data: in blocks, which are parts of plain arrays (InCore) or managedPtrs (OutOfCore). An application is
// a template of this choice and written once, so both of its versions run the same instructions on the same numbers in the same order.
//
// A View is a pointer into one block, good for as long as it lives; out of core it is a pin. `soon` says that a block will be viewed,
// `fresh` that all of it will be written before it is read, so that nothing is fetched, and `drop` that nobody wants its contents any
// more, so that they are not saved; what it holds then is indeterminate. `renew` is a `fresh` without a View.
// Thread-safety: blocks may be viewed by several threads; two that write to one block write to different elements.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "ramspan/managed_ptr.h"

namespace ramspan::bench {

struct InCore {
  static constexpr bool kSwaps = false;

  template <typename T>
  class View {
   public:
    explicit View(T* data) : data_(data) {}
    T* data() const { return data_; }

   private:
    T* data_;
  };

  template <typename T>
  class Blocks {
   public:
    Blocks() = default;
    Blocks(size_t count, size_t elements) : Blocks(std::vector<size_t>(count, elements)) {}
    // One array; blocks of these lengths follow each other.
    explicit Blocks(const std::vector<size_t>& lengths) : begin_{0} {
      for (const size_t length : lengths) begin_.push_back(begin_.back() + length);
      const size_t bytes = (begin_.back() * sizeof(T) + kAlignment) / kAlignment * kAlignment;
      memory_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)));
      if (!memory_) throw std::bad_alloc();
      madvise(memory_.get(), bytes, MADV_HUGEPAGE);  // as the library asks for frames
    }
    size_t count() const { return begin_.size() - 1; }
    size_t length(size_t i) const { return begin_[i + 1] - begin_[i]; }
    View<const T> read(size_t i) const { return View<const T>(memory_.get() + begin_[i]); }
    View<T> write(size_t i) { return View<T>(memory_.get() + begin_[i]); }
    View<T> fresh(size_t i) { return write(i); }
    void renew(size_t) {}
    void soon(size_t) const {}
    void drop(size_t) {}

   private:
    struct Free {
      void operator()(T* memory) const { std::free(memory); }
    };
    static constexpr size_t kAlignment = size_t{2} << 20;  // a huge page; blocks need not begin at pages
    std::vector<size_t> begin_{0};
    std::unique_ptr<T, Free> memory_;
  };
};

struct OutOfCore {
  static constexpr bool kSwaps = true;

  template <typename T>
  class View {
    using Element = std::remove_const_t<T>;

   public:
    explicit View(const managedPtr<Element>& block) : glue_(block), data_(static_cast<T*>(glue_)), length_(block.size()) {}
    View(View&& other) noexcept : glue_(std::move(other.glue_)), data_(std::exchange(other.data_, nullptr)), length_(other.length_) {}
    View& operator=(View&&) = delete;
    ~View() {
      if constexpr (!std::is_const_v<T>) {
        if (data_ != nullptr && damage_.load(std::memory_order_relaxed) && damage_.exchange(false, std::memory_order_relaxed)) Damage();
      }
    }
    T* data() const { return data_; }

   private:
    void Damage() {
      const size_t bytes = length_ * sizeof(T), at = (bytes / 2 + bytes / 64) / 8 * 8 + 6;  // high in a double's mantissa, or a float's
      if (at < bytes) reinterpret_cast<unsigned char*>(data_)[at] ^= 0x10;
    }

    adhereTo<Element> glue_;
    T* data_;
    size_t length_;
  };

  // For tests: what is written by the next View that ends has a wrong bit.
  static void DamageNextWrite() { damage_ = true; }

  template <typename T>
  class Blocks {
   public:
    Blocks() = default;
    Blocks(size_t count, size_t elements) : Blocks(std::vector<size_t>(count, elements)) {}
    explicit Blocks(std::vector<size_t> lengths) : lengths_(std::move(lengths)) {
      blocks_.reserve(lengths_.size());
      for (const size_t length : lengths_) blocks_.emplace_back(length);
    }
    size_t count() const { return blocks_.size(); }
    size_t length(size_t i) const { return lengths_[i]; }
    View<const T> read(size_t i) const { return View<const T>(blocks_[i]); }
    View<T> write(size_t i) { return View<T>(blocks_[i]); }
    View<T> fresh(size_t i) {
      renew(i);
      return write(i);
    }
    void renew(size_t i) { blocks_[i] = managedPtr<T>(lengths_[i]); }
    void soon(size_t i) const { blocks_[i].prepareUse(); }
    void drop(size_t i) { blocks_[i] = nullptr; }  // its next use is a `fresh` or `renew`

   private:
    std::vector<size_t> lengths_;
    std::vector<managedPtr<T>> blocks_;
  };

 private:
  static inline std::atomic<bool> damage_{false};
};

}  // namespace ramspan::bench
