// LiveViews: how many views of a vector's blocks there are. The count goes with the blocks when two vectors are swapped; a copy has its own blocks, and
// no views. Private to Ramspan although installed (resident.h). Thread-safety: views may come and go in several threads; the rest as the vector's.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace ramspan::detail {

class LiveViews {
 public:
  using Count = std::atomic<uint32_t>;  // publishes nothing: who changes the capacity beside other threads' views is wrong anyway

  LiveViews() = default;
  LiveViews(const LiveViews&) {}
  LiveViews& operator=(const LiveViews&) { return *this; }
  ~LiveViews() { delete count_.load(std::memory_order_relaxed); }
  void swap(LiveViews& other) noexcept { other.count_.store(count_.exchange(other.count_.load(std::memory_order_relaxed), std::memory_order_relaxed), std::memory_order_relaxed); }

  bool any() const {
    const Count* const count = count_.load(std::memory_order_acquire);
    return count != nullptr && count->load(std::memory_order_relaxed) != 0;
  }

  class Counted {
   public:
    // Null: of what never changes its capacity.
    explicit Counted(const LiveViews* views) : count_(views == nullptr ? nullptr : views->Made()) {
      if (count_ != nullptr) count_->fetch_add(1, std::memory_order_relaxed);
    }
    ~Counted() {
      if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_relaxed);
    }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    Count* const count_;
  };

 private:
  // The first view makes it, in whichever thread.
  Count* Made() const {
    Count* count = count_.load(std::memory_order_acquire);
    if (count != nullptr) return count;
    auto* const mine = new Count(0);
    if (count_.compare_exchange_strong(count, mine, std::memory_order_acq_rel, std::memory_order_acquire)) return mine;
    delete mine;
    return count;
  }
  mutable std::atomic<Count*> count_{nullptr};
};

}  // namespace ramspan::detail
