#include "client/preload/beside.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>

namespace ramspan::preload {
namespace {

// Buffers that are always there.
constexpr size_t kReady = 8, kReadyBytes = size_t{64} << 10;
alignas(4096) char ready[kReady][kReadyBytes];
std::atomic<unsigned> ready_in_use{0};  // a bit for each

}  // namespace

// Acquire, release: who used it before has done with its bytes.
Beside::Beside(size_t bytes) {
  if (bytes <= kReadyBytes) {
    unsigned in_use = ready_in_use.load(std::memory_order_relaxed);
    while (in_use != (1U << kReady) - 1) {
      const int free = std::countr_one(in_use);
      if (!ready_in_use.compare_exchange_weak(in_use, in_use | 1U << free, std::memory_order_acquire, std::memory_order_relaxed)) continue;
      begin_ = ready[free];
      return;
    }
  }
  const long begin = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (bytes <= kPiece ? MAP_POPULATE : 0), -1, 0);
  if (begin == -1) return;
  begin_ = reinterpret_cast<char*>(begin);
  mapped_ = bytes;
}

Beside::~Beside() {
  const int error = errno;
  if (mapped_ > 0) {
    syscall(SYS_munmap, begin_, mapped_);
  } else if (begin_ != nullptr) {
    ready_in_use.fetch_and(~(1U << static_cast<size_t>(begin_ - ready[0]) / kReadyBytes), std::memory_order_release);
  }
  errno = error;
}

void Overflow() {
  static constexpr char kText[] = "*** buffer overflow detected ***: terminated\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) std::abort();
  std::abort();
}

}  // namespace ramspan::preload
