// The options that the program has set, how two sets of options become one, and what the configuration leaves to this
// machine. Pure but for the questions to the machine. Thread-safety: any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/config.h"
#include "common/mutex.h"

namespace ramspan {

// What the program has asked for by Configure and Reconfigure, in all. The mutex is held while Ramspan starts.
struct ProgramOptions {
  static ProgramOptions& Get();

  Mutex mutex{LockRank::kRuntime};
  Options options RS_GUARDED_BY(mutex);
};

// Each option that `options` sets replaces the one in `merged`.
void MergeOptions(const Options& options, Options* merged);

// The memory limit where no source sets one: half of what the machine leaves, shared with the other ranks on this host, but
// no more than a quarter of the addresses that this process may still have (ulimit -v).
uint64_t DefaultMemory();

// kInvalidArgument: the addresses that this process may have (ulimit -v, -d) are too few for the limit. A look before anything is opened: what
// is opened next takes some, too, and so do the program's other threads.
Status CheckAddresses(const Config& config);
// What it says then, for who finds none later.
Status NoAddresses(const Config& config);

// Says on stderr when a limit that was asked for is more than this process may use now: the kernel then ends it, with
// SIGKILL and without a word.
void WarnIfOverMachine(const Config& config);

// The key swapfiles, or files in $TMPDIR.
std::string SwapfileMask(const Config& config);

// The limit of swap files where no source sets one. At least one granule: when the folder is missing or the disk is full
// now, FileSwap says so, and where, with a remedy.
uint64_t HalfOfFreeDisk(const std::string& mask);

// Throws ConfigError, naming the key, when `next` differs from `now` in what a running program cannot change. Servers can be
// others where those in use are outside of the job, but they cannot be none.
void CheckFixedKeys(const Config& now, const Config& next, bool servers_are_outside);

}  // namespace ramspan
