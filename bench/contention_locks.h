// LockMeter: for how long the threads of this process hold mutexes, and wait for them. The library is measured as it is shipped: this
// program defines pthread's functions for mutexes itself, which count and then call the real ones, so nothing is compiled into the library.
//
// Thread-safety: Start and Stop by one thread while no thread runs that is to be counted: threads that are made between them are.
#pragma once

#include <cstdint>

namespace ramspan::bench {

class LockMeter {
 public:
  struct Lock {
    uint64_t times = 0;
    double held_ns = 0;  // by the clock on the wall
  };
  struct Times {
    Lock any;            // while a thread held at least one; nested ones count once
    Lock watched;        // the one that was named by Watch
    double preempted_ns = 0;  // of any.held_ns, in holds of more than kPreemptedUs: their thread had no core
    uint64_t preempted = 0;   // such holds
    double wait_ns = 0;  // from the first try in vain until the mutex was had
    uint64_t waits = 0;
  };
  // Nothing is done under a mutex of the library that takes as long on a core.
  static constexpr double kPreemptedUs = 100;

  // False in builds with a sanitizer, which has these functions for itself: all counts are 0 there.
  static bool Works();
  // The mutex that the calling thread takes first from now on is the one that is watched.
  static void WatchNext();
  static void Start();
  static Times Stop();
};

}  // namespace ramspan::bench
