// What the launcher of this process says of its job in the environment. Any thread.
#pragma once

#include <string>

#include "common/status.h"

namespace ramspan {

// RAMSPAN_SERVERS as a number; 0 when it is unset, or names places of servers outside of the job. kInvalidArgument: neither.
Result<int> AnnouncedServers();

// The rank that the process manager or the launcher gives this process; -1: none.
int AnnouncedRank();

// The same where the job has, or may have, several ranks; -1: it has one, or there is none. A program that a batch script starts without srun has
// SLURM_PROCID, too, but is nobody's rank.
int AnnouncedRankOfSeveral();

// Whether `ramspan run` has made this key for servers that it started beside this job: the file lies in the job's folder, or, on hosts
// where that is not, came as a descriptor.
bool IsKeyOfThisJob(const std::string& key_file);

}  // namespace ramspan
