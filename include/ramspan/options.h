// Options: what a program may set before its first managedPtr. Each field that is left empty comes from the
// environment, a configuration file or the default, in that order (docs/configuration.md). Value type.
#pragma once

#include "ramspan/detail/cxx17.h"

#include <cstdint>
#include <optional>
#include <string>

namespace ramspan {

// What happens when swap is full: fail at once, ask on the terminal, or extend the swap files while the disk has room.
enum class SwapPolicy { kFail, kInteractive, kAutoextendable };

// How chunks travel to memory servers. kAuto: MPI when the launcher started servers in this job, else libfabric when `servers`
// names some, else not at all.
enum class Transport { kAuto, kMpi, kNone, kOfi };

struct Options {
  std::optional<uint64_t> memory;             // bytes; the hard limit. Default: half of the available memory
  std::optional<uint64_t> swapMemory;         // bytes of local swap files; beyond them as `policy` says. Default: half of the free disk space
  std::optional<std::string> memoryManager;   // "replay", "cyclic" (also "cyclicManagedMemory"), "second-chance"
  std::optional<std::string> swap;            // "auto" (remote, then files), "file" (also "managedFileSwap"), "remote"
  std::optional<std::string> swapfiles;       // a path mask with two %d: process id, file number
  std::optional<bool> enableDMA;              // swap files bypass the page cache (O_DIRECT) where the file system can
  std::optional<SwapPolicy> policy;
  std::optional<Transport> transport;
  std::optional<std::string> servers;         // memory servers outside of this job: "host:port,host:port", "dir:/folder", "file:/file"
  std::optional<std::string> serverKeyFile;   // the secret shared with them. Default: ~/.ramspan.key
  std::optional<std::string> fabricProvider;  // libfabric's provider by name. Default: the first that can
  std::optional<bool> checksum;               // verify every chunk that comes back from swap
  std::optional<bool> preemptive;             // read ahead and write back ahead of need
  std::optional<bool> debug;                  // catch pointers used after their adhereTo, and forgotten const
  std::optional<bool> bundles;                // objects smaller than a page share chunks
  std::optional<std::string> stats;           // a file that receives one JSON object at exit
  std::optional<std::string> trace;           // a file that receives the accesses, for `ramspan bench policy`
  std::optional<std::string> customConfig;    // a configuration file that is read before ~/.ramspan.conf
  // A program written for Rambrain: ~/.rambrain.conf and /etc/rambrain.conf are read before ramspan.conf of the same
  // folder, swap files are ./rambrainswap-%d-%d by default, and a custom file that does not exist is passed over.
  bool rambrain = false;
};

// Sets options for this process. REQUIRES: called before the first managedPtr is made (else throws ConfigError).
// Later calls replace the fields that they set. Does not block.
__attribute__((visibility("default"))) void Configure(const Options& options);

}  // namespace ramspan
