// For tests of waits that must end: a hang is told at once and ends the process, instead of the test's time limit.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

inline void EndsOrElse(const std::function<bool()>& ended) {
  // What is tested takes a second or two; under a sanitizer on a busy machine it has taken a minute.
  constexpr std::chrono::seconds kFarTooLong{240};
  const auto begin = std::chrono::steady_clock::now();
  while (!ended()) {
    if (std::chrono::steady_clock::now() - begin > kFarTooLong) {
      std::printf("%s: threads still wait for each other after 240 s\n",
                  testing::UnitTest::GetInstance()->current_test_info()->name());
      std::fflush(stdout);
      std::_Exit(1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
