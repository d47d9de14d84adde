// What a benchmark is asked to do: the command line, parsed. Value type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ramspan::bench {

struct BenchOptions {
  std::string name;  // pin, stream, random, memory, small, compute, vector, policy, buddy, contention, rambrain, swap-targets
  bool json = false;

  uint64_t data = uint64_t{1} << 30;  // bytes
  uint64_t chunk = uint64_t{1} << 20;
  bool adapts = false;  // pages: blocks of the size that suits their use; `chunk` is a page
  uint64_t limit = uint64_t{256} << 20;
  std::string mode = "rmw";   // rmw, read
  std::string tier = "auto";  // auto: memory servers, then files; file
  std::string directory;      // of swap files; empty: the library's default
  bool direct = false;
  bool checksum = true;
  bool preemptive = true;

  int threads = 1;  // stream, compute, vector: threads, each with its own part of the data
  int busy = 0;     // stream: processes that spin beside every second sweep
  double work_us = 0;  // stream: what each chunk is computed on

  int repetitions = 0;      // sweeps, rounds: what a median is taken of
  uint64_t operations = 0;  // of one repetition: pins, random accesses
  uint64_t chunks = 0;      // memory, small, contention: how many

  std::string plots;  // rambrain, policy, buddy: directory; empty: none

  // buddy
  std::vector<unsigned> thread_counts;
  std::vector<uint64_t> sizes;  // bytes of each allocator
  bool touch = false;           // each page of what was allocated

  // rambrain, contention, swap-targets, vector
  std::string experiment = "all";
  bool quick = false;
  std::string only;       // the experiment of this process
  std::string in_cgroup;  // whose sweeps this process runs for the experiment `kernel`: kernel, ramspan

  // policy
  std::vector<std::string> traces;      // files of RAMSPAN_TRACE; with some of them, no patterns but those that are named
  std::string patterns, policies;       // names, separated by commas; empty: all
  std::string limits = "5,10,25,50,75,90";  // percents of a trace's data
  bool bare = false;                    // neither read-ahead nor reserve
  bool steady = false;                  // the second half of each trace only

  // swap-targets, vector
  std::string lmr = "10,25,50,75,90,100";     // percents of the data

  // swap-targets; `traces` are files of results
  std::string contestants, accesses;          // names, separated by commas; empty: all

  int servers = 0;
  int clients = 1;  // processes of the program, each with its own data
  uint64_t server_memory = 0;
  std::string transport = "shared";  // mpi, ofi
  int hosts = 1;
  double wire_gbit_s = 0;  // what the cable between two hosts lets through in each direction; 0: as much as the cores copy
  int server_threads = 1;
  int raw = 0;  // this process measures the raw network of `mpi`, with so many transfers under way
};

// Each configures Ramspan, so a process runs one of them once. The exit status: 1 when data came back wrong.
int RunPin(const BenchOptions& options);
int RunStream(const BenchOptions& options);
int RunRandom(const BenchOptions& options);
int RunMemory(const BenchOptions& options);
int RunSmall(const BenchOptions& options);
int RunCompute(const BenchOptions& options);
int RunVector(const BenchOptions& options);
int RunPolicy(const BenchOptions& options);  // does not: it needs no library that runs
// Starts the processes that do. Leaves nothing behind, also when it is interrupted; what stays when it is killed (a swap area that is on, a
// cgroup, a folder) the next run removes. 1 also when a contestant ended before its time; who cannot run here is no failure.
int RunSwapTargets(const BenchOptions& options);
int RunBuddy(const BenchOptions& options);

}  // namespace ramspan::bench
