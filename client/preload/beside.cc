#include "client/preload/beside.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdint>

namespace ramspan::preload {
namespace {

// Buffers that are always there.
template <size_t kCount, size_t kBytes>
class Ready {
 public:
  // Acquire, release: who used it before has done with its bytes. Null: all are in use.
  char* Take(size_t bytes) {
    uint64_t in_use = bytes <= kBytes ? in_use_.load(std::memory_order_relaxed) : kAll;
    while (in_use != kAll) {
      const int free = std::countr_one(in_use);
      if (in_use_.compare_exchange_weak(in_use, in_use | uint64_t{1} << free, std::memory_order_acquire, std::memory_order_relaxed)) return buffers_[free];
    }
    return nullptr;
  }
  // False: it is none of these.
  bool Put(const char* buffer) {
    const size_t at = reinterpret_cast<uintptr_t>(buffer) - reinterpret_cast<uintptr_t>(buffers_[0]);
    if (at >= sizeof(buffers_)) return false;
    in_use_.fetch_and(~(uint64_t{1} << at / kBytes), std::memory_order_release);
    return true;
  }

 private:
  static constexpr uint64_t kAll = ~uint64_t{0} >> (64 - kCount);
  alignas(4096) char buffers_[kCount][kBytes] = {};
  std::atomic<uint64_t> in_use_{0};  // a bit for each
};
constinit Ready<64, 1024> small;  // what a thread waits with may be here for long
constinit Ready<8, size_t{64} << 10> large;

}  // namespace

Beside::Beside(size_t bytes) {
  if (bytes == 0) return;
  begin_ = small.Take(bytes);
  if (begin_ == nullptr) begin_ = large.Take(bytes);
  if (begin_ != nullptr) return;
  const long begin = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (bytes <= kPiece ? MAP_POPULATE : 0), -1, 0);
  if (begin == -1) return;
  begin_ = reinterpret_cast<char*>(begin);
  mapped_ = bytes;
}

Beside::~Beside() {
  const int error = errno;
  if (mapped_ > 0) {
    syscall(SYS_munmap, begin_, mapped_);
  } else if (begin_ != nullptr && !small.Put(begin_)) {
    large.Put(begin_);
  }
  errno = error;
}

void Overflow() {
  static constexpr char kText[] = "*** buffer overflow detected ***: terminated\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) std::abort();
  std::abort();
}

}  // namespace ramspan::preload
