// A world of its own for tests of several hosts: namespaces for processes, networks, mounts, host names and shared memory.
//
// Nothing in it has a name outside. When the process that entered it ends, also by SIGKILL, the kernel ends every process in it, and with
// the last of them go its networks, its mounts and its files in /run, /dev/shm and TempDir(). So nothing has to be swept.
//
// The benchmarks' hosts (bench/hosts.h) are another thing on purpose: they have networks of their own and nothing else, because what is
// measured there is this machine's memory, shared memory and disks. Tests must not see those of others, nor leave anything there.
//
// Needs root, or user namespaces that ordinary users may make.
#pragma once

#include <string>

namespace ramspan {

// Returns in a child of this process; this process only waits for it and ends as it does. Empty: this is the world. Else
// what is missing here: nothing has been entered, or not all of it.
// REQUIRES: one thread. Once.
std::string EnterWorld();

}  // namespace ramspan
