// ProcessMark: tells a process from the children that are made of it in whatever way: fork, and _Fork and clone(2), which call no handlers (pthread_atfork). What
// belongs to the process (its userfaultfd, its swap files, its sockets) such a child has, too, and must not use. Children that share its memory until they exec
// (vfork, posix_spawn) pass for it: what they do is done to its memory.
// Thread-safety: any thread, signal handlers. Ownership: of a page, for ever.
#pragma once

#include <sys/mman.h>

#include <atomic>

namespace ramspan {

class ProcessMark {
 public:
  // This process, where no parent of it has. False: there is no memory for it, and nobody will be told.
  static bool Set() {
    constexpr size_t kPage = 4096;
    if (marked_.load(std::memory_order_acquire) != nullptr) return true;
    void* const page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    auto* const mark = static_cast<std::atomic<int>*>(page);
    const std::atomic<int>* none = nullptr;
    if (madvise(page, kPage, MADV_WIPEONFORK) == 0) {
      mark->store(1, std::memory_order_relaxed);
      if (marked_.compare_exchange_strong(none, mark, std::memory_order_acq_rel)) return true;
    }
    munmap(page, kPage);
    return none != nullptr;  // another thread was faster
  }
  // Whether it was set, by a parent of this process.
  static bool IsOfParent() {
    const std::atomic<int>* const mark = marked_.load(std::memory_order_acquire);
    return mark != nullptr && mark->load(std::memory_order_relaxed) == 0;
  }

 private:
  static inline constinit std::atomic<const std::atomic<int>*> marked_{nullptr};
};

}  // namespace ramspan
