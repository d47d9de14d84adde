// `ramspan __server -- ramspan-server ...`: what mpiexec starts for each memory server of a job on several hosts. It finds out
// where the server has to listen, hands it the job's secret, and becomes the server.
//
// Where: at the address by which this host reaches the launcher's, with a free port. So it is an interface of the job's hosts,
// and no other network can knock. Stateless; single-threaded.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace ramspan {

// The job's secret in the environment of mpiexec and the keepers, which the kernel shows to this user only. Programs do not
// inherit it.
inline constexpr char kServerSecretVariable[] = "RAMSPAN_RUN_SERVER_SECRET";

// The secret as a file that only this process and those that inherit it can read; nothing is left when they have ended. Its
// path; kUnavailable when it cannot be made. The descriptor stays open for the programs that this process becomes.
Result<std::string> SecretAsDescriptor(const std::string& secret);

// Returns only on failure: the status to exit with.
int BecomeServer(const std::vector<std::string>& arguments);

}  // namespace ramspan
