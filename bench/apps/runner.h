// What `ramspan bench apps` is asked for, and the processes by which it runs applications.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "bench/apps/run.h"
#include "bench/child.h"
#include "bench/folder.h"
#include "bench/swap_area.h"

namespace ramspan::bench {

struct AppsOptions {
  std::string apps = "all", lmr = "5,10,25,37,50,75,100", threads, tier = "shared", data, directory, plots;
  bool json = false, full = false, pages = false;
  std::string swap;  // of the kernel's: file, zram; empty: none
  int ranks = 1, repetitions = 3;
  // of a run
  std::string run, version;
  uint64_t limit = 0;
  int run_threads = 1;
  bool damaged = false, paged = false;
  std::string in_cgroup;
};

// ^C ends the run that is under way; what this process has made is taken down as ever, and it ends by the same signal: AppsEndedBy().
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};
int AppsEndedBy();

// Runs of applications, each in a process of its own, beside one memory server, and one swap area of the kernel's, for all of them.
// Thread-safety: none; one a process, which takes its signals.
class AppRunner {
 public:
  // std::runtime_error: no server.
  AppRunner(const AppsOptions& o, uint64_t data_most);

  enum class By { kRamspan, kKernel };
  // `limit` 0: in core. By::kKernel: what is beyond it is swapped by the kernel; only where why_no_swap() is empty.
  AppOutcome Run(const AppKind& kind, const std::string& version, int threads, uint64_t limit, bool damaged, By by);
  const std::string& why_no_swap() const { return why_no_swap_; }

 private:
  static std::string Launcher();
  void StartServer(uint64_t memory);

  const AppsOptions& o_;
  const Folder folder_;
  std::optional<SwapArea> area_;
  std::string why_no_swap_;
  std::optional<Child> server_;
};

}  // namespace ramspan::bench
