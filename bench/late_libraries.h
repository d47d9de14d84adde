// Libraries that are loaded while the benchmark runs, beside the allocator of the program. Thread-safety: main thread only.
#pragma once

namespace ramspan::bench {

// jemalloc, loaded late, needs more room for its thread-local data than glibc keeps for such libraries. Starts this program again with that
// room, where it does not have it yet.
void MakeRoomForLateLibraries(char** argv);

}  // namespace ramspan::bench
