// What the launcher of this process says of its job in the environment. Any thread.
#pragma once

#include <string>

#include "common/status.h"

namespace ramspan {

// RAMSPAN_SERVERS as a number; 0 when it is unset, or names places of servers outside of the job. kInvalidArgument: neither.
Result<int> AnnouncedServers();

// The rank that the process manager or the launcher gives this process; -1: none.
int AnnouncedRank();

// Whether `ramspan run` has made this key for servers that it started beside this job: the file lies in the job's folder, or, on hosts
// where that is not, came as a descriptor.
bool IsKeyOfThisJob(const std::string& key_file);

}  // namespace ramspan
