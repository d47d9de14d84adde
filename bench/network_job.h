// A benchmark whose memory servers are reached over a network: `--transport mpi` or `ofi`, through the loopback interface of this
// host, or with `--hosts 2` between two (bench/hosts.h): the program on the first one, all servers on the second. Starts all of it, and
// what the raw figures need (bench/raw.h); leaves nothing behind, also when it is interrupted or killed.
#pragma once

#include <string>

#include "bench/options.h"
#include "bench/raw.h"

namespace ramspan::bench {

inline constexpr int kClientsMax = 64;

// Whether this process has to start such a job; not, if it is part of one.
bool NeedsNetworkJob(const BenchOptions& options);
// Runs the same command line in one. Its exit status; 0 with a message where this user may not make hosts. Throws std::runtime_error.
int RunNetworkJob(const BenchOptions& options, int argc, char** argv);

// HOST:PORT out of the line that `ramspan-server` says when it is there. Throws std::runtime_error: it is not.
std::string PlaceOfServer(const std::string& line);

RawOptions RawOptionsOf(const BenchOptions& options);
// In the job of raw figures: the ranks that are clients measure, rank 0 prints (raw_mpi.cc).
int RunRawMpi(const BenchOptions& options);

}  // namespace ramspan::bench
