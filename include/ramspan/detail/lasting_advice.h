// What a container was advised and gives to its blocks, those that are yet to come too. Private to Ramspan although installed (resident.h).
// Thread-safety: as the container's.
#pragma once

#include <cstddef>
#include <vector>

#include "ramspan/managed_ptr.h"

namespace ramspan::detail {

class LastingAdvice {
 public:
  void Note(advice what) {
    switch (what) {
      case advice::normal: *this = LastingAdvice(); break;
      case advice::keep:
      case advice::once: stay_ = what; break;
      case advice::sequential:
      case advice::random: order_ = what; break;
      case advice::done: stay_ = stay_ == advice::keep ? advice::normal : stay_; break;
      case advice::will_need: break;
    }
  }
  bool is_random() const { return order_ == advice::random; }
  template <typename T>
  void GiveTo(const managedPtr<T>& block) const {
    for (const advice one : {stay_, order_}) {
      if (one != advice::normal) block.advise(one);
    }
  }

 private:
  advice stay_ = advice::normal, order_ = advice::normal;
};

template <typename T>
void AdviseAll(const std::vector<managedPtr<T>>& blocks, advice what) noexcept {
  const size_t most = what == advice::will_need ? HalfOfMemory() : SIZE_MAX;
  size_t bytes = 0;
  for (const managedPtr<T>& block : blocks) {
    const size_t more = block.size() * sizeof(T);
    if (more > most - bytes) break;
    bytes += more;
    block.advise(what);
  }
}

// Whether a container was advised `random`.
struct AdviceOf {
  template <typename Container>
  static bool IsRandom(const Container& container) {
    return container.advised_.is_random();
  }
};

}  // namespace ramspan::detail
