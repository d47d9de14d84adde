// Waiting for what another thread does, with a deadline that only a hang reaches.
#pragma once

#include <chrono>
#include <thread>

namespace ramspan {

constexpr auto kPatience = std::chrono::seconds(30);

// Whether the condition held within kPatience. Asks again and again.
template <class Condition>
bool Eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace ramspan
