// The order in which Ramspan's mutexes may be taken: a thread holding one may only take one of a higher rank.
// Checked where NDEBUG is not defined. One line a mutex; say what it guards.
#pragma once

namespace ramspan {

enum class LockRank : int {
  kRuntime = 10,     // the composition root: start, stop
  kMappedFiles = 11, // the tier of mapped files: that there is one
  kSwaps = 12,       // which swaps there are
  kProgramPolicy = 14, // a program's own policy: one question at a time; held over its code, without the engine's mutex
  kBundles = 15,     // one shard's bundles of small objects
  kEngine = 20,      // chunk transitions, policy lists, operations in flight
  kPinRegistry = 30, // the list of all threads' pin tables (taken by the evictor's scan)
  kPolicyEvents = 35,  // what a program's own policy has not been told yet
  kTraceFile = 36,   // records that are not written yet
  kTier = 40,        // one swap tier's slots and completion queue
  kServerTalk = 45,  // records to and from servers that several tiers share
  kServerGroups = 46, // which tier a server is of, and what has ended for each
  kTransport = 50,   // one transport's requests
  kMetadata = 60,    // the memory of tables of small objects
  kClock = 80,       // the process's clock for deadlines
  kLog = 90,         // a line of log at a time
};

}  // namespace ramspan
