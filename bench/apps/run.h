// One run of one version of an application, in a process of its own, because a process configures the library once, and its peak of memory
// is to be this run's.
#pragma once

#include <string>
#include <vector>

#include "bench/apps/application.h"

namespace ramspan::bench {

// All that there are.
std::vector<const AppKind*> AppKinds();

enum class AppVersion { kInCore, kOutOfCore, kStraightforward };

struct AppRun {
  const AppKind* kind = nullptr;
  AppVersion version = AppVersion::kInCore;
  AppOptions options;
  uint64_t limit = 0;       // bytes, of each rank; out of core
  bool files = false;       // swap files instead of memory servers
  std::string directory;    // of swap files; empty: the library's default
  int repetitions = 3;
  bool several_ranks = false;
  bool paged = false;       // `ramspan run --pages` has started this process: the limit is there, and what is in core is swapped by pages
  std::string cgroup;       // in core: `limit` beside what the process has at its start is all that this memory cgroup lets it have; empty: none
  bool damaged = false;     // for tests: out of core, a bit of what the last repetition writes is wrong
};

// What it measured.
struct AppOutcome {
  std::vector<double> seconds;  // of each repetition, of the slowest rank
  double bytes_in = 0, bytes_out = 0, misses = 0;  // a repetition, all ranks
  double peak = 0;              // bytes of memory of its own beside what the process had before, of the rank that had most
  Digest digest;
  double median() const;
};

// Runs it in this process; rank 0 writes the outcome as one line to stdout.
void RunHere(const AppRun& run);
// From such a line. Throws std::runtime_error when it is none.
AppOutcome ParseOutcome(const std::string& line);

}  // namespace ramspan::bench
