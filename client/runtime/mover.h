// Mover: the library's background thread. It does what nobody waits for (Engine::MoverStep), and gives the reports that
// signals ask for. It takes no signals of the program's and stays off the cores that the program uses, where it can.
// Thread-safety: Start and Stop once each, by any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "common/status.h"

namespace ramspan {

class Engine;

struct MoverPace {
  std::chrono::milliseconds upkeep_every{200};  // a look at a flag, mostly
  std::chrono::milliseconds rest{20};           // at most, where nobody rings
};

class Mover {
 public:
  // kInvalidArgument: the system refuses another thread. The engine must live until Stop has returned.
  // `upkeep`: called now and then on the mover's thread; ends early when its argument is set.
  Status Start(Engine* engine, std::function<void(const std::atomic<bool>& stop)> upkeep, const MoverPace& pace = {});
  // Waits for the end of the round that is under way, at most 10 s: a call of MPI's may never return at the end of a job. Does
  // not wait on the mover's own thread, where the program or MPI may have called exit().
  void Stop();
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }

 private:
  void Run();
  void TellHeapFailure();

  Engine* engine_ = nullptr;  // constant after Start; likewise:
  MoverPace pace_;
  std::function<void(const std::atomic<bool>&)> upkeep_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};  // nothing of the runtime is touched any more
  std::thread thread_;
  bool told_heap_failure_ = false;  // the thread's own
};

}  // namespace ramspan
