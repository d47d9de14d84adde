// swap-targets: where the program's chunks live. One interface, so that the program is the same on each contestant.
// Thread-safety: threads may visit chunks at the same time, each of its own part.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "bench/options.h"
#include "bench/swap_targets_accesses.h"

namespace ramspan::bench {

class ChunkStore {
 public:
  virtual ~ChunkStore() = default;
  // The elements are there while `use` runs. What a chunk holds before its first Write is not defined.
  virtual void Read(uint32_t chunk, const std::function<void(const double*)>& use) = 0;
  virtual void Write(uint32_t chunk, const std::function<void(double*)>& use) = 0;
  // In and out, since some moment.
  virtual uint64_t BytesMoved() const = 0;
  // Bytes of swap that are memory of somebody else: what memory servers hold.
  virtual uint64_t BytesLent() const { return 0; }
};

// `new` for each chunk: in memory, or in the hands of the kernel where its swap is on.
std::unique_ptr<ChunkStore> MakePlainStore(const TargetLayout& layout);
// A file in `directory`, mapped as a whole; it has no name any more. Throws std::runtime_error.
std::unique_ptr<ChunkStore> MakeMappedStore(const TargetLayout& layout, const std::string& directory);
// A managedPtr each. Configures the library.
std::unique_ptr<ChunkStore> MakeRamspanStore(const TargetLayout& layout, const BenchOptions& options);
// Plain pointers into memory that is swapped by pages. Configures the library.
std::unique_ptr<ChunkStore> MakePagesStore(const TargetLayout& layout, const BenchOptions& options);

// Built with STXXL, or why not. (swap_targets_stxxl.cc)
bool HasStxxl();
// A stxxl::vector for each thread, which share `limit` for their blocks; a file in `directory` without a name, O_DIRECT.
std::unique_ptr<ChunkStore> MakeStxxlStore(const TargetLayout& layout, uint64_t limit, const std::string& directory);

}  // namespace ramspan::bench
