// EngineOptions: what an engine is told when it is made.
#pragma once

#include <chrono>
#include <cstdint>

namespace ramspan {

struct EngineOptions {
  uint64_t budget = 0;
  bool metadata_beside_limit = false;  // the budget is for data (budget.h)
  bool preemptive = true;
  bool checksum = true;
  bool keep_room = true;  // swap that is full leaves what is in it readable (room.cc); costs room for the two largest
  bool debug = false;  // frames that come back are unmapped; unchanged writes are counted by size
  std::chrono::milliseconds deadlock_settle{10};   // for which the verdict of a deadlock must hold
  std::chrono::milliseconds deadlock_grace{1000};  // before an unlikely release is given up
  std::chrono::milliseconds pin_wait_told{60000};  // after which a wait for other threads' pins is mentioned in the log
  // Who sleeps until another thread wakes him looks by himself when that one has not looked for this time: it may be held up,
  // in a question to a server. Long, because hundreds may sleep; twice of it would only be noticed while a server does not answer.
  std::chrono::milliseconds sleep_max{100};
  std::chrono::milliseconds idle_for{5000};  // after which frames that nobody has needed go back to the system
  uint64_t addresses = 0;  // for frames; 0: many times the limit
};

}  // namespace ramspan
