#include "client/runtime/mover.h"

#include <chrono>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "client/engine/engine.h"
#include "client/runtime/signals.h"
#include "common/limit_of_threads.h"
#include "common/log.h"
#include "common/own_thread.h"
#include "common/topology.h"

namespace ramspan {
namespace {

constexpr auto kStopPatience = std::chrono::seconds(10);  // a round takes milliseconds; MPI may hang at the end of a job

}  // namespace

Status Mover::Start(Engine* engine, std::function<void(const std::atomic<bool>& stop)> upkeep, const MoverPace& pace) {
  engine_ = engine;
  pace_ = pace;
  upkeep_ = std::move(upkeep);
  try {
    thread_ = StartOwnThread([this] { Run(); });
  } catch (const std::system_error& e) {  // std::bad_alloc is the caller's: the program has none left at its start
    return InvalidArgument(std::string("no thread can be started for moving data: ") + e.what() + "; " + LimitOfThreads());
  }
  return Status();
}

void Mover::Run() {
  // Without heap it runs wherever the system lets it.
  WithinHeap([] { return BindThreadToSpareCore(UsableCores()), true; }, false);
  auto next_upkeep = std::chrono::steady_clock::now();
  while (!stopping()) {
    try {
      if (!engine_->MoverStep()) engine_->MoverWait(pace_.rest);
      GiveSignalReports();
      if (const auto now = std::chrono::steady_clock::now(); now >= next_upkeep) {
        next_upkeep = now + pace_.upkeep_every;
        upkeep_(stopping_);
      }
    } catch (const std::bad_alloc&) {
      // Nobody waits for what the turn would have done, and the next one does it. Without this it would be the program's end.
      engine_->NoteHeapFailure();
      engine_->MoverWait(pace_.rest);
    }
    TellHeapFailure();
  }
  ended_ = true;
}

// Once; also of what other threads have met.
void Mover::TellHeapFailure() {
  if (engine_->heap_failures() == 0 || std::exchange(told_heap_failure_, true)) return;
  LogWarning("%s. Nothing is lost: what was begun stays where it is and is tried again", OutOfHeapText());
}

void Mover::Stop() {
  stopping_ = true;
  if (thread_.get_id() == std::this_thread::get_id()) return thread_.detach();
  engine_->WakeMover();
  for (const auto begin = std::chrono::steady_clock::now(); !ended_;) {
    if (std::chrono::steady_clock::now() - begin > kStopPatience) {
      LogWarning("the thread that moves data does not end; the process ends without it");
      return thread_.detach();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  thread_.join();
}

}  // namespace ramspan
