// FileMap: ranges of the program's own files as slots. They are read where they are and never written: a chunk that was
// changed gets a slot in real swap. Nothing can be reserved here; a slot comes from Map.
// Thread-safety: as SwapTier says. Transfers are done in the submitting thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/swap/swap_tier.h"
#include "common/mutex.h"

namespace ramspan {

// A file that is open for reading.
class MappedFile {
 public:
  // kInvalidArgument: cannot be opened, or is no regular file; with the path.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  // Bytes, when it was opened.
  uint64_t bytes() const { return bytes_; }

 private:
  MappedFile(int fd, std::string path, uint64_t bytes) : fd_(fd), path_(std::move(path)), bytes_(bytes) {}
  const int fd_;
  const std::string path_;
  const uint64_t bytes_;
};

class FileMap final : public PlainTier {
 public:
  // A slot whose bytes are those of the file at `offset`. REQUIRES: they are within the file.
  SlotRef Map(std::shared_ptr<const MappedFile> file, uint64_t offset);

  Capabilities capabilities() const noexcept override { return {.name = "mapped", .synchronous = true, .read_only = true}; }
  Result<SlotRef> Reserve(size_t bytes) override;  // kResourceExhausted
  void Free(SlotRef slot, size_t bytes) noexcept override;
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override;  // REQUIRES: never called with a request
  // kDataLoss: the file has become shorter. kUnavailable: it cannot be read now. The log names it.
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override;
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  TierStats stats() const noexcept override;

 private:
  struct Range {
    std::shared_ptr<const MappedFile> file;  // null: free
    uint64_t offset = 0;
  };

  mutable Mutex mutex_{LockRank::kTier};
  std::vector<Range> ranges_ RS_GUARDED_BY(mutex_);  // by slot - 1
  std::vector<uint64_t> free_ RS_GUARDED_BY(mutex_);
  IoRequest* done_ RS_GUARDED_BY(mutex_) = nullptr;
  TierStats stats_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
