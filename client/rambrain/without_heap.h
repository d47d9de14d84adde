// Rambrain's interface where the heap has no more: what a program called throws memoryException (TranslatedAll of rambrain/exceptions.h), and
// what cannot be called again waits a while.
// Thread-safety: any thread.
#pragma once

#include <chrono>
#include <new>
#include <thread>

#include "common/log.h"
#include "common/status.h"
#include "rambrain/exceptions.h"

namespace rambrain::rambrain_detail {

// For destructors, which cannot be called again: tries for a while where memory is the reason, because a heap that has ended is often there
// again a moment later. False: it failed, and the log says `what` for the program's user.
inline constexpr std::chrono::milliseconds kTryAgainAfter{5};
inline constexpr std::chrono::seconds kTryFor{2};
template <typename F>
bool TryForAWhile(const char* what, const F& call) noexcept {
  const auto begin = std::chrono::steady_clock::now();
  const auto naps = [begin] {
    if (std::chrono::steady_clock::now() - begin >= kTryFor) return false;
    std::this_thread::sleep_for(kTryAgainAfter);
    return true;
  };
  for (;;) {
    try {
      call();
      return true;
    } catch (const ramspan::OutOfMemory& e) {
      if (naps()) continue;
      ramspan::LogWarning("%s: %s", what, e.what());
    } catch (const std::bad_alloc&) {
      if (naps()) continue;
      ramspan::LogWarning("%s: %s", what, ramspan::OutOfHeapText());
    } catch (const std::exception& e) {
      ramspan::LogWarning("%s: %s", what, e.what());
    }
    return false;
  }
}

}  // namespace rambrain::rambrain_detail
