// What a killed job leaves on a host: its folder, and what MPICH and UCX have in shared memory. Some of it has a name only
// while ranks start, some as long as they run. Stateless; may be called by several processes of one job at once.
//
// What may be another program's stays. A file in /dev/shm goes when it has one of MPICH's names, is this user's, and no
// process has it open or mapped, seen twice: whoever made it has it mapped as long as it is of use. A System V segment
// goes when a recorded process of a job (run_folder.h) made it, no process of that number lives, and nobody has it attached.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/process.h"

namespace ramspan {

// Removes files mpich_shar_tmp* and ucx_shm_posix_* in `folder` (/dev/shm) that nobody uses and that are not older than
// `since_ns` (CLOCK_REALTIME), and segments of that age that dead ones of `makers` made. Returns how many.
int SweepSharedMemory(const std::string& folder, int64_t since_ns, const std::vector<ProcessId>& makers);

// After a job's processes on this host were ended: its shared memory, then its folder. Waits up to 5 s for those that
// are still dying; what stays even then is the next run's to sweep. `more`: processes that may not be recorded.
void CleanUpRun(const std::string& folder, int64_t since_ns, const std::vector<ProcessId>& more = {});

// When the job's worker has ended in order, but perhaps without a descriptor left with which to remove anything.
void RemoveFolderOfTheDead(const std::string& folder);

// Before a job: what this user's jobs left whose processes were all killed at once. Returns how many folders. In a
// container, which cannot see who else uses /dev/shm, files there stay: only what recorded makers made goes.
int SweepOrphans(const std::string& parent, const std::string& shared_memory);

int64_t RealtimeNs();

}  // namespace ramspan
