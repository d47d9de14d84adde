// One-line messages to stderr, "ramspan: ...", for what a user should know but no call can return; in a job of several ranks
// "ramspan[RANK]: ...". RAMSPAN_LOG=off, warn (default) or info says how much; both are read once, at the first message. Not for debugging,
// not on a hot path.
//
// Thread-safety: any thread; a message is one write(2), so lines of threads and ranks do not mix. No lock is waited for. Blocking: as standard error may
// (a pipe that nobody empties, a terminal after ^S), on the program's threads. Those of the library and servers, for which others wait, keep what it
// does not take at once, some lines of it, until it takes them.
#pragma once

namespace ramspan {

// printf-style, no newline at the end; cut at 1000 characters.
[[gnu::format(printf, 1, 2)]] void LogWarning(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void LogInfo(const char* format, ...);

// From now on no message blocks the calling thread.
void LogWithoutWaiting();
// Writes what was kept, if standard error takes it now. To be called now and then; does not block (a pipe; a terminal that has room for a part may).
void LogWhatWasKept();

// What they begin with, for messages of other forms: the rank is the one that the process manager gave (PMI_RANK, ...), so it is known before
// MPI is initialised. Allocates nothing.
const char* LogPrefix();

}  // namespace ramspan
