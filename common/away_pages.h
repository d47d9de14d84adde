// AwayPages: memory that is swapped by pages, where the kernel gives no userfaultfd (most containers). What is not there has no access rights, so that a touch is a SIGSEGV.
// It comes as a mapping that has been filled elsewhere and then moves there (mremap), and leaves by being made read-only, copied, and replaced, at once for all who use it.
// (URSL's way.) Two mappings for each block that is there, at most.
//
// Thread-safety: any thread; one at a time for each range. Nothing here allocates, logs or takes a lock. Errors: errno; 0 is success.
#pragma once

#include <cstddef>

namespace ramspan::away_pages {

// No access, and no memory. Not in forked children.
int MakeAway(void* begin, size_t bytes);
// `bytes` as at `from`, or zeros where that is null, are at `to`, to be read and written.
int Come(void* to, const void* from, size_t bytes);
// The same way back: to `to`, and away at `from`.
int Leave(void* to, void* from, size_t bytes);

}  // namespace ramspan::away_pages
