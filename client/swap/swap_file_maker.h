// SwapFileMaker: the files of FileSwap, each made when it is first needed, that no name leads to. Knows in which folder, how large
// the next one is, and what happens when the limit of all files is reached.
//
// Thread-safety: one thread at a time makes a file; SetLimit and SetPolicy only while none does. limit, policy and FullError:
// any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "client/transport/aio_file.h"
#include "common/descriptor.h"
#include "common/slot_ref.h"
#include "common/status.h"
#include "ramspan/options.h"

namespace ramspan {

struct FileSwapOptions {
  std::string mask;        // path with two %d: process id, file number
  uint64_t bytes_max = 0;  // of all files; may be exceeded as `policy` says
  bool direct = true;      // O_DIRECT; falls back to buffered with one warning where the file system cannot
  SwapPolicy policy = SwapPolicy::kFail;
  // Who has set bytes_max, but not that it may be exceeded, may take it for a bound: says so when it is exceeded, once.
  bool warn_of_growth = false;
  // The first file; later ones are half of all before them, if that is more, but no larger than their bitmaps may be at once.
  uint64_t file_bytes = uint64_t{64} << 20;
  size_t files_max = slot_bits::kRegionsMax;  // a slot's bits name no more (common/slot_ref.h). Fewer for tests
  std::chrono::milliseconds closed_for{10'000};  // a file in which a write had no room takes no new slots
  // kInteractive: may the files grow by `wanted` bytes? Called without locks, at most once after a no. Empty: asks on
  // the terminal, and takes a missing terminal or 60 s of silence for a no.
  std::function<bool(uint64_t wanted, std::string message)> ask;
};

class SwapFileMaker {
 public:
  struct File {
    AioFile file;
    uint64_t bytes = 0;
  };

  // Proves with a nameless file that the directory can be written; makes nothing that stays. The value: whether files can be
  // O_DIRECT, which is `options.direct` where the disk is full now. kFailedPrecondition, kInvalidArgument as FileSwap::Create.
  static Result<bool> Probe(const FileSwapOptions& options);

  SwapFileMaker(const FileSwapOptions& options, bool direct);

  // A file for slots of `need` bytes and more, beside files of `have` bytes. It may be smaller: several make up what is needed
  // then. Blocks, while the file system answers or a person is asked. kResourceExhausted: full, kUnavailable.
  Result<File> Make(uint64_t need, uint64_t have);
  // The size of the next file within the limit, `first` the size of the first.
  static uint64_t UsualStep(uint64_t need, uint64_t have, uint64_t first);

  void SetLimit(uint64_t bytes);
  // Where it is no limit (kAutoextendable). No file grows by it.
  void GrowLimitTo(uint64_t bytes);
  void SetPolicy(SwapPolicy policy);
  uint64_t limit() const { return limit_bytes_; }
  SwapPolicy policy() const { return policy_; }
  std::string folder() const;
  Status FullError(const std::string& why) const;
  static bool AreFilesLimited();  // `ulimit -f`

 private:
  // A file's bitmaps, 2.1 bits a granule, count in the budget when it is made, and nothing can be evicted for them then: it may
  // be for an eviction that it is made. Those of a file of this size, 63 KiB, fit into half of the least that the budget keeps
  // free for that; so does a thirty-second part of the bitmaps that are there (budget.h). Half of it would be twice the files.
  static constexpr uint64_t kFileBytesMax = uint64_t{960} << 20;
  static constexpr uint64_t kFilesPart = 32;
  static constexpr uint64_t kFilesForASlot = 32;  // at most so many by plan

  Result<uint64_t> StepFor(uint64_t need, uint64_t have);
  Result<uint64_t> StepBeyondLimit(uint64_t need, uint64_t have);
  void WarnOfGrowth();

  const FileSwapOptions options_;
  const bool direct_;
  Descriptor folder_;  // none where it could not be opened: files are made by path then
  // Of the thread that makes a file; read by anybody. Relaxed would do: nothing is published with them.
  std::atomic<uint64_t> limit_bytes_;
  std::atomic<uint64_t> told_bytes_;  // the limit as the user has set it; limit_bytes_ is above it where it is none
  std::atomic<SwapPolicy> policy_;
  uint64_t next_number_ = 0;
  bool refused_ = false;  // the person who was asked has said no
  bool growth_told_ = false;
};

}  // namespace ramspan
