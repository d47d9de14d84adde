// RuntimeStatistics: the counts of all components, gathered for the program (Statistics), as JSON (RAMSPAN_STATS,
// SIGUSR1), and written to a file now and then and at exit.
// Thread-safety: any thread. Owns nothing that it is given; all of it must live as long.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "client/runtime/wait_watch.h"
#include "common/config.h"
#include "ramspan/runtime.h"

namespace ramspan {

class Bundles;
class Engine;
class FileSwap;
class TieredSwap;

class RuntimeStatistics {
 public:
  struct Sources {
    const Config* config;
    const Engine* engine;
    const Bundles* bundles;  // null: there are none
    const TieredSwap* swap;
    const FileSwap* files;   // null: no local files are configured
    std::chrono::steady_clock::time_point started;
  };
  explicit RuntimeStatistics(const Sources& from) : from_(from), waits_(from.started) { clock_gettime(CLOCK_REALTIME, &begun_); }

  // The rank among all ranks of the job; -1, as at first, is none.
  void set_rank(int rank) { rank_.store(rank, std::memory_order_relaxed); }

  Statistics Snapshot() const;
  std::string Json(bool ended = false) const;
  // At the start: warns when the file of the key stats, if there is one, can hardly be written at the end.
  void CheckFile();
  // To that file, at the end; a regular one is whole at any time, as far as its folder lets another one be made. Does not block on a fifo, and takes no signal for it. A warning says what failed, if none has yet.
  void WriteFile();
  // The same after 5, 10, 20, 40, 80 seconds and then each minute, so that a program that is killed leaves what was so until shortly before: if the file is a regular one, or is not there, and no other process
  // has written it since this one's start. Says nothing of failures, and what is not written is tried again the next time. One thread at a time, and not beside WriteFile.
  void WriteFileNowAndThen();
  // Warns once where the program hardly does anything but wait (WaitWatch). As often, on the same thread.
  void TellOfWaits();

 private:
  std::string FilePath() const;  // empty: none is wanted
  enum class Written { kAll, kNotAll, kNotAtAll };
  Written Exchange(const std::string& path, const std::string& text);
  void WarnUnwritable(const std::string& path, int error);

  const Sources from_;
  std::pair<dev_t, ino_t> own_file_{};  // that this process wrote last
  timespec begun_{};                   // by the clock of files' times
  std::chrono::steady_clock::duration next_write_ = std::chrono::seconds(5);  // after the start
  WaitWatch waits_;
  std::string folder_;  // of the start, with a slash at its end: a program may have gone to another one; empty: not known
  std::atomic<int> rank_{-1};
  std::atomic<int> told_{0};  // the errno of which the program's user knows; only a warning hangs on it
};

}  // namespace ramspan
