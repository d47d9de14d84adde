// ZeroArray: an array of values that begin as zeros, in pages of the kernel's own: what is never written takes no memory, and the heap is not asked, which may be locked by
// whoever waits for what this is for (a page that malloc, or a signal handler that has interrupted it, touches).
//
// T: trivially copyable, and all zeros are a value of it. Thread-safety: as of a vector. Errors: Grow says no, and all is as it was.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace ramspan {

template <typename T>
class ZeroArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  ZeroArray() = default;
  ~ZeroArray() {
    if (bytes_ > 0) syscall(SYS_munmap, values_, bytes_);
  }
  ZeroArray(ZeroArray&& other) noexcept : values_(std::exchange(other.values_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  ZeroArray& operator=(ZeroArray&& other) noexcept {
    std::swap(values_, other.values_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  size_t size() const { return bytes_ / sizeof(T); }
  // Room for at least `count`, with what is there; half as many again as there were, so that growing step by step costs little. The values may move, but not their bytes.
  [[nodiscard]] bool Grow(size_t count) noexcept {
    if (count <= size()) return true;
    const size_t most = ~size_t{0} / 4;
    if (count > most / sizeof(T)) return false;
    const size_t bytes = (std::max(count * sizeof(T), bytes_ + bytes_ / 2) + kPageBytes - 1) & -kPageBytes;
    const long got = bytes_ == 0 ? syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                 : syscall(SYS_mremap, values_, bytes_, bytes, MREMAP_MAYMOVE);
    if (got == -1) return false;
    values_ = reinterpret_cast<T*>(got);
    bytes_ = bytes;
    return true;
  }
  // What is used is as much as is counted, and not the whole of a huge page.
  void KeepSmallPages() {
    if (bytes_ > 0) syscall(SYS_madvise, values_, bytes_, MADV_NOHUGEPAGE);
  }
  T& operator[](size_t i) { return values_[i]; }
  const T& operator[](size_t i) const { return values_[i]; }

 private:
  static constexpr size_t kPageBytes = 4096;
  T* values_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ramspan
