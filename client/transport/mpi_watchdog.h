// MpiWatchdog: a thread that never calls MPI and watches those that do. A server that is stopped but not dead holds its
// clients inside MPI, where nothing else can reach them: the watchdog says so after `warn_after` and ends the process,
// and so the job, after `give_up_after`. Both are running time (running_clock.h), so a job that was suspended as a whole
// goes on; and both are prolonged by what the bytes may take on a slow wire (wait_judge.h).
//
// Who is about to enter MPI where a server could hold it keeps an Inside on its stack; the end of the job, where all
// wait for all, is an Ending.
//
// Thread-safety: Inside and Ending on any thread; Start on any. Ownership: borrows the world; its thread is joined by
// the destructor.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "client/transport/wait_judge.h"
#include "common/mpi_world.h"
#include "common/mutex.h"

namespace ramspan {

class MpiWatchdog {
 public:
  struct Options {
    std::chrono::milliseconds warn_after{10'000}, give_up_after{60'000};
  };
  // RAMSPAN_TEST_GIVE_UP_AFTER (seconds) shortens give_up_after: for tests only.
  static Options DefaultOptions();

  explicit MpiWatchdog(const MpiWorld& world, Options options = DefaultOptions());
  ~MpiWatchdog();
  MpiWatchdog(const MpiWatchdog&) = delete;
  MpiWatchdog& operator=(const MpiWatchdog&) = delete;

  // Starts the thread, once. Without it nothing is watched; a process that cannot have a thread goes on without.
  void Start();

  // The calling thread enters MPI on behalf of a server that could hold it, for so many bytes.
  class Inside {
   public:
    Inside(MpiWatchdog& watchdog, size_t server, uint64_t bytes);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    MpiWatchdog& watchdog_;
    const size_t server_;
    const uint64_t bytes_;
  };

  // The calling thread leaves the job together with everybody. Other clients may take their time (a debugger may hold
  // one), so the job is ended only where a server is stopped or gone, or is far, where nobody can see what it does.
  class Ending {
   public:
    explicit Ending(MpiWatchdog& watchdog) : inside_(watchdog, watchdog.EndSlot(), 0) {}

   private:
    Inside inside_;
  };

 private:
  // For the judge, which tolerates any order: calls that entered and left, and the bytes of those inside.
  struct Calls {
    std::atomic<uint64_t> entered{0};
    std::atomic<uint64_t> left{0};
    std::atomic<uint64_t> bytes{0};
  };

  size_t EndSlot() const { return world_.servers().size(); }
  void Run();
  void Act(size_t server);
  void ActAtEnd();

  const MpiWorld& world_;
  const Options options_;
  const std::unique_ptr<Calls[]> calls_;  // by server; the last one is the end of the job

  // The thread's own. Their memory is there before it runs: what it throws would end the program.
  WaitJudge judge_;
  std::vector<WaitJudge::Look> looks_;

  Mutex mutex_{LockRank::kTransport};
  CondVar wake_;
  bool ends_ RS_GUARDED_BY(mutex_) = false;
  std::thread thread_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
