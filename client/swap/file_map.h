// FileMap: ranges of the program's own files as slots. They are read where they are and never written: a chunk that was
// changed gets a slot in real swap. Nothing can be reserved here; a slot comes from Map. The files lie one after another in
// one space of addresses, and a slot is such an address: there is something to keep for each file, and nothing for each chunk.
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
  // A slot whose bytes are those of the file at `offset`, to be given back by Free. The file stays open until all its slots
  // were. REQUIRES: there is a byte at `offset`. kResourceExhausted: the files that are mapped are too large in sum.
  Result<SlotRef> Map(const std::shared_ptr<const MappedFile>& file, uint64_t offset);

  Capabilities capabilities() const noexcept override { return {.name = "mapped", .synchronous = true, .read_only = true}; }
  Result<SlotRef> Reserve(size_t bytes) override;  // kResourceExhausted
  void Free(SlotRef slot, size_t bytes) noexcept override;
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override;  // REQUIRES: never called with a request
  // kDataLoss: the file has become shorter. kUnavailable: it cannot be read now. The log names it.
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override;
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  TierStats stats() const noexcept override;

 private:
  struct File {
    std::shared_ptr<const MappedFile> file;
    uint64_t begin = 0;  // the address of its first byte
    uint64_t slots = 0;

    uint64_t end() const { return begin + file->bytes(); }
  };
  using Files = std::vector<File>;

  // Where there are as many addresses as it has bytes.
  Result<Files::iterator> Add(const std::shared_ptr<const MappedFile>& file) RS_REQUIRES(mutex_);
  // The file that the slot is in.
  Files::iterator FileOf(SlotRef slot) RS_REQUIRES(mutex_);

  mutable Mutex mutex_{LockRank::kTier};
  Files files_ RS_GUARDED_BY(mutex_);  // those with slots, by address
  IoRequest* done_ RS_GUARDED_BY(mutex_) = nullptr;
  TierStats stats_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
