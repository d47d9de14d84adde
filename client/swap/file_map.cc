#include "client/swap/file_map.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "common/descriptor.h"
#include "common/log.h"
#include "common/public_call.h"

namespace ramspan {
namespace {

constexpr uint64_t kFirstAddress = 1;               // 0 is no slot
constexpr uint64_t kAddresses = uint64_t{1} << 59;  // the bits of a slot that are the tier's own (slot_ref.h)

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
  const int fd = BeyondPrograms(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a fifo waits for somebody who writes
  if (fd < 0) return InvalidArgument("cannot map " + path + ": " + std::strerror(errno));
  struct stat facts;
  const int error = fstat(fd, &facts) == 0 ? 0 : errno;
  if (error != 0 || !S_ISREG(facts.st_mode)) {
    close(fd);
    return InvalidArgument("cannot map " + path + ": " + (error != 0 ? std::strerror(error) : "it is not a regular file"));
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);  // some file systems answer EAGAIN to who does not wait
  return std::shared_ptr<const MappedFile>(new MappedFile(fd, path, static_cast<uint64_t>(facts.st_size)));
}

MappedFile::~MappedFile() {
  const detail::Inside inside;  // it is the program's, but the descriptor is not
  close(fd_);
}

Result<FileMap::Files::iterator> FileMap::Add(const std::shared_ptr<const MappedFile>& file) {
  const auto fits = [&](uint64_t begin, uint64_t end) { return begin <= end && file->bytes() <= end - begin; };
  auto place = files_.end();
  uint64_t begin = files_.empty() ? kFirstAddress : files_.back().end();
  if (!fits(begin, kAddresses)) {  // years later: where others were
    begin = kFirstAddress;
    for (place = files_.begin(); place != files_.end() && !fits(begin, place->begin); ++place) begin = place->end();
    if (!fits(begin, kAddresses)) return ResourceExhausted("cannot map " + file->path() + ": the files that are mapped have too many bytes in sum");
  }
  return files_.insert(place, {.file = file, .begin = begin});
}

Result<SlotRef> FileMap::Map(const std::shared_ptr<const MappedFile>& file, uint64_t offset) {
  MutexLock lock(mutex_);
  // The newest first: it is the one that is being mapped.
  const auto known = std::find_if(files_.rbegin(), files_.rend(), [&](const File& one) { return one.file == file; });
  Result<Files::iterator> one = known != files_.rend() ? std::prev(known.base()) : Add(file);
  if (!one.ok()) return one.status();
  ++one.value()->slots;
  return SlotRef{one.value()->begin + offset};
}

FileMap::Files::iterator FileMap::FileOf(SlotRef slot) {
  const auto next = std::upper_bound(files_.begin(), files_.end(), slot.bits, [](uint64_t bits, const File& file) { return bits < file.begin; });
  RS_CHECK(next != files_.begin() && slot.bits < std::prev(next)->end(), "slot %llu is not mapped", static_cast<unsigned long long>(slot.bits));
  return std::prev(next);
}

Result<SlotRef> FileMap::Reserve(size_t) { return ResourceExhausted("mapped files take no swap"); }

void FileMap::Free(SlotRef slot, size_t) noexcept {
  std::shared_ptr<const MappedFile> last;  // closed without the mutex
  MutexLock lock(mutex_);
  const auto one = FileOf(slot);
  if (--one->slots > 0) return;
  last = std::move(one->file);
  files_.erase(one);
}

void FileMap::SubmitWrite(std::span<IoRequest* const> batch) noexcept {
  RS_CHECK(batch.empty(), "a mapped file was chosen as swap");
}

void FileMap::SubmitRead(std::span<IoRequest* const> batch) noexcept {
  for (IoRequest* request : batch) {
    std::shared_ptr<const MappedFile> file;
    uint64_t offset;
    {
      MutexLock lock(mutex_);
      const auto one = FileOf(request->slot);
      file = one->file;
      offset = request->slot.bits - one->begin;
    }
    const ssize_t n = ReadAt(file->fd(), request->buffer, request->bytes, offset);
    const bool whole = n == static_cast<ssize_t>(request->bytes);
    if (!whole) {
      LogWarning("mapped file %s, byte %llu: %s", file->path().c_str(),
                 static_cast<unsigned long long>(offset),
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
  stats.metadata_bytes = files_.capacity() * sizeof(File);
  return stats;
}

}  // namespace ramspan
