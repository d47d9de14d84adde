// What this machine really leaves us: memory (meminfo and cgroup v1/v2 limits counted), NUMA nodes, cores. Reads /proc,
// /sys/fs/cgroup and hwloc at the call. One core, no NUMA, or a container give sane answers, never an error.
// Functions are safe from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace ramspan {

// Bytes that a new job may take: the smallest of MemAvailable, each cgroup ancestor's (limit - usage + inactive file
// pages), and, where the process is bound to some NUMA nodes only, their free and file pages. At least 2 MiB, so that
// half of it is a legal limit.
uint64_t AvailableMemory();
// The same with the roots of /proc and /sys/fs/cgroup replaced, for tests.
uint64_t AvailableMemory(const std::string& proc_root, const std::string& cgroup_root);

// Free bytes of this host's /dev/shm.
uint64_t SharedMemoryFree();
// What memory servers may take of so many free bytes in all, when so many ranks of the job on this host have not
// initialised MPI yet, which takes some of it for itself.
uint64_t SharedMemoryRoom(uint64_t free, int ranks_to_come);

// Cores this process may run on: the union of its threads' affinity masks (OpenMP may have bound each to one core).
// At least 1.
int UsableCores();

// Binds the calling thread away from the cores that the application uses, when the node has cores outside the
// process's affinity mask that it may use, or the mask has more cores than `application_threads`; else does nothing.
// Returns true if bound.
bool BindThreadToSpareCore(int application_threads);

// Pages of [begin, begin + bytes) that are made from now on come from the NUMA node of the calling thread's core, whichever thread makes them;
// from others where that one is full. Does nothing where the process has a memory policy (numactl, the batch system): that is the user's
// word. REQUIRES: begin is a page's. Returns the node's OS index, or -1 when nothing was bound.
int BindMemoryToLocalNode(void* begin, uint64_t bytes);

// A small number that says how far two ranks are: 0 same NUMA node, 1 same host, 2 other host.
struct Location {
  char host[64];   // boot id + hostname hash, fixed width so that it can travel in a message
  int numa_node;   // -1 unknown
};
Location MyLocation();
int Distance(const Location& a, const Location& b);

}  // namespace ramspan
