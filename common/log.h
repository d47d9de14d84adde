// One-line messages to stderr, "ramspan: ...", for what a user should know but no call can return; in a job of several ranks
// "ramspan[RANK]: ...". RAMSPAN_LOG=off, warn (default) or info says how much; both are read once, at the first message. Not for debugging,
// not on a hot path.
//
// Thread-safety: any thread; a message is one write(2), so lines of threads and ranks do not mix. No lock is taken.
#pragma once

namespace ramspan {

// printf-style, no newline at the end; cut at 1000 characters. May block as stderr may.
[[gnu::format(printf, 1, 2)]] void LogWarning(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void LogInfo(const char* format, ...);

// What they begin with, for messages of other forms: the rank is the one that the process manager gave (PMI_RANK, ...), so it is known before
// MPI is initialised. Allocates nothing.
const char* LogPrefix();

}  // namespace ramspan
