#include "client/swap/file_map.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace ramspan {
namespace {

// Bytes read; fewer than asked for at the file's end, -1 with errno for an error.
ssize_t ReadAt(int fd, void* buffer, size_t bytes, uint64_t offset) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = pread(fd, static_cast<char*>(buffer) + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a fifo waits for somebody who writes
  if (fd < 0) return InvalidArgument("cannot map " + path + ": " + std::strerror(errno));
  struct stat facts;
  const int error = fstat(fd, &facts) == 0 ? 0 : errno;
  if (error != 0 || !S_ISREG(facts.st_mode)) {
    close(fd);
    return InvalidArgument("cannot map " + path + ": " + (error != 0 ? std::strerror(error) : "it is not a regular file"));
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(fd, path, static_cast<uint64_t>(facts.st_size)));
}

MappedFile::~MappedFile() { close(fd_); }

SlotRef FileMap::Map(std::shared_ptr<const MappedFile> file, uint64_t offset) {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    if (ranges_.size() == free_.capacity()) free_.reserve(std::max(size_t{16}, 2 * ranges_.size()));  // Free must not need the heap
    ranges_.emplace_back();
    free_.push_back(ranges_.size() - 1);
  }
  const uint64_t index = free_.back();
  free_.pop_back();
  ranges_[index] = {std::move(file), offset};
  return SlotRef{index + 1};
}

Result<SlotRef> FileMap::Reserve(size_t) { return ResourceExhausted("mapped files take no swap"); }

void FileMap::Free(SlotRef slot, size_t) noexcept {
  std::shared_ptr<const MappedFile> last;  // closed without the mutex
  MutexLock lock(mutex_);
  RS_CHECK(slot.bits - 1 < ranges_.size() && ranges_[slot.bits - 1].file != nullptr, "slot %llu is not mapped",
           static_cast<unsigned long long>(slot.bits));
  last = std::move(ranges_[slot.bits - 1].file);
  ranges_[slot.bits - 1].file = nullptr;
  free_.push_back(slot.bits - 1);
}

void FileMap::SubmitWrite(std::span<IoRequest* const> batch) noexcept {
  RS_CHECK(batch.empty(), "a mapped file was chosen as swap");
}

void FileMap::SubmitRead(std::span<IoRequest* const> batch) noexcept {
  for (IoRequest* request : batch) {
    Range range;
    {
      MutexLock lock(mutex_);
      range = ranges_[request->slot.bits - 1];
    }
    const ssize_t n = ReadAt(range.file->fd(), request->buffer, request->bytes, range.offset);
    const bool whole = n == static_cast<ssize_t>(request->bytes);
    if (!whole) {
      LogWarning("mapped file %s, byte %llu: %s", range.file->path().c_str(),
                 static_cast<unsigned long long>(range.offset),
                 n < 0 ? std::strerror(errno) : "the file has become shorter since it was mapped");
    }
    request->result = whole ? StatusCode::kOk : n < 0 ? StatusCode::kUnavailable : StatusCode::kDataLoss;
    request->bytes_done = n < 0 ? 0 : static_cast<size_t>(n);
    MutexLock lock(mutex_);
    stats_.reads += 1;
    stats_.bytes_read += request->bytes_done;
    stats_.errors += whole ? 0 : 1;
    request->next = done_;
    done_ = request;
  }
}

size_t FileMap::Poll(std::span<IoRequest*> done, std::chrono::microseconds) {
  MutexLock lock(mutex_);
  size_t n = 0;
  for (; done_ != nullptr && n < done.size(); done_ = done_->next) done[n++] = done_;
  return n;
}

TierStats FileMap::stats() const noexcept {
  MutexLock lock(mutex_);
  TierStats stats = stats_;
  stats.metadata_bytes = ranges_.capacity() * sizeof(Range) + free_.capacity() * sizeof(uint64_t);
  return stats;
}

}  // namespace ramspan
