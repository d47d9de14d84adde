#include "client/runtime/mapped_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "client/engine/engine.h"
#include "client/front/throw_status.h"
#include "client/runtime/runtime.h"
#include "client/runtime/swaps.h"
#include "client/swap/file_map.h"
#include "client/swap/tiered_swap.h"
#include "common/descriptor.h"
#include "common/public_call.h"
#include "common/raise.h"
#include "common/write_signals_blocked.h"
#include "ramspan/detail/held_pin.h"
#include "ramspan/errors.h"
#include "ramspan/mapped_file.h"
#include "ramspan/runtime.h"

namespace ramspan {

Result<SlotRef> MappedFiles::PlaceIn(const std::shared_ptr<const MappedFile>& file, uint64_t offset) {
  MutexLock lock(mutex_);
  if (map_ == nullptr) {
    auto made = std::make_unique<FileMap>();
    FileMap* raw = made.get();
    index_ = swaps_->AddReadOnly(std::move(made));
    if (index_ == TieredSwap::kTiersMax) Raise(ConfigError("too many swaps at a time: no file can be mapped"));
    map_ = raw;
  }
  Result<SlotRef> place = map_->Map(file, offset);
  if (!place.ok()) return place;
  return TieredSwap::SlotIn(index_, place.value());
}

Result<Chunk*> MappedFiles::MapChunk(const std::shared_ptr<const MappedFile>& file, uint64_t offset, uint64_t bytes) {
  const Result<SlotRef> place = PlaceIn(file, offset);
  if (!place.ok()) return place.status();
  Result<Chunk*> chunk = engine_->Create(bytes, place.value());
  if (!chunk.ok()) swap_->Free(place.value(), bytes);
  return chunk;
}

Status MappedFiles::MapAgain(Chunk* chunk, const std::shared_ptr<const MappedFile>& file, uint64_t offset) {
  const Result<SlotRef> place = PlaceIn(file, offset);
  if (place.ok()) engine_->ReplaceSlot(chunk, place.value());
  return place.status();
}

namespace detail {
namespace {

// Of the memory limit, what is written back together holds at most a 16th.
constexpr uint64_t kWriteBackShare = 16;

// The same file again, to be written: by its descriptor, since its path may name another one by now.
class Writer {
 public:
  explicit Writer(const MappedFile& file)
      : fd_(BeyondStandardStreams(open(("/proc/self/fd/" + std::to_string(file.fd())).c_str(), O_WRONLY | O_CLOEXEC))), path_(file.path()) {
    if (fd_ < 0) Fail();
  }
  ~Writer() {
    if (fd_ >= 0) close(fd_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void Write(const char* data, size_t bytes, uint64_t offset) {
    const WriteSignalsBlocked blocked;
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = pwrite(fd_, data + done, bytes - done, static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) errno = EIO;  // a write that does nothing gives no reason
      if (n <= 0) Fail();
      done += static_cast<size_t>(n);
    }
  }
  void Sync() {
    if (fdatasync(fd_) != 0) Fail();
  }

 private:
  [[noreturn]] void Fail() const {
    const int error = errno;
    Raise(Error("cannot write back to " + path_ + ": " + std::strerror(error) +
                (error == EFBIG ? "; raise the limit of file sizes (ulimit -f)" : "")));
  }
  const int fd_;
  const std::string path_;
};

}  // namespace

std::shared_ptr<const MappedFile> OpenMapped(const std::string& path) {
  const PublicCall call;
  return AsPublicCall([&] {
    Result<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
    if (!file.ok()) Raise(Error(file.status().message()));
    return file.value();
  });
}

uint64_t MappedElements(const MappedFile& file, uint64_t offset, size_t element_bytes) {
  const uint64_t bytes = file.bytes() > offset ? file.bytes() - offset : 0;
  const uint64_t elements = bytes / element_bytes, rest = bytes % element_bytes;
  if (rest == 0) return elements;
  const PublicCall call;
  AsPublicCall([&] {
    Raise(Error(file.path() + " has " + std::to_string(bytes) + " bytes from byte " + std::to_string(offset) + " on, which are " +
                std::to_string(elements) + " elements of " + std::to_string(element_bytes) + " bytes and " + std::to_string(rest) +
                " more: check the type of the elements and the byte that they begin at, or give their number to leave the rest out"));
  });
  return elements;
}

static ChunkHead* MapPart(const std::shared_ptr<const MappedFile>& file, uint64_t offset, size_t bytes) {
  if (offset > file->bytes() || bytes > file->bytes() - offset) {
    Raise(Error("cannot map " + std::to_string(bytes) + " bytes at byte " + std::to_string(offset) + " of " + file->path() +
                ", which has " + std::to_string(file->bytes())));
  }
  Result<Chunk*> chunk = Runtime::Get().mapped_files().MapChunk(file, offset, bytes);
  if (!chunk.ok()) ThrowStatus(chunk.status());
  return chunk.value();
}

ChunkHead* MapChunk(const std::shared_ptr<const MappedFile>& file, uint64_t offset, size_t bytes) {
  RefuseWithinProgramCode("a mappedFile was made");
  const PublicCall call;
  return AsPublicCall([&] { return MapPart(file, offset, bytes); });
}

bool IsChanged(ChunkHead* chunk) { return Runtime::Get().engine().IsChanged(static_cast<Chunk*>(chunk)); }

namespace {

// What is written is on disk before it counts as unchanged: until then only this program has it for sure. Together, because a disk takes long to say so.
struct WrittenChunk {
  HeldPin pin;
  Chunk* chunk;
  uint64_t offset;
};

void WriteTogether(std::vector<WrittenChunk>* chunks, const std::shared_ptr<const MappedFile>& file) {
  Writer writer(*file);
  for (const WrittenChunk& one : *chunks) writer.Write(static_cast<const char*>(one.pin.frame()), one.chunk->bytes, one.offset);
  writer.Sync();
  for (const WrittenChunk& one : *chunks) {
    const Status status = Runtime::Get().mapped_files().MapAgain(one.chunk, file, one.offset);
    if (!status.ok()) ThrowStatus(status);
  }
  chunks->clear();
}

}  // namespace

// What programs call that were compiled before there was WriteBackChunks.
void WriteBackChunk(ChunkHead* chunk, const std::shared_ptr<const MappedFile>& file, uint64_t offset) { WriteBackChunks({chunk}, file, offset, 0); }
void SyncMapped(const MappedFile&) {}  // it is done

void WriteBackChunks(const std::vector<ChunkHead*>& chunks, const std::shared_ptr<const MappedFile>& file, uint64_t offset, uint64_t stride) {
  RefuseWithinProgramCode("a mappedFile was written back");
  const PublicCall call;
  AsPublicCall([&] {
    const uint64_t most = MemoryLimit() / kWriteBackShare;
    std::vector<WrittenChunk> together;
    uint64_t bytes = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      auto* const chunk = static_cast<Chunk*>(chunks[i]);
      if (!IsChanged(chunk)) continue;
      if (bytes + chunk->bytes > most && !together.empty()) {
        WriteTogether(&together, file);
        bytes = 0;
      }
      const auto hold = [&] { together.push_back({HeldPin(chunk, false), chunk, offset + i * stride}); };
      try {
        hold();
      } catch (const OutOfMemory&) {  // beside the others
        if (together.empty()) throw;
        WriteTogether(&together, file);
        bytes = 0;
        hold();
      }
      bytes += chunk->bytes;
    }
    if (!together.empty()) WriteTogether(&together, file);
  });
}

}  // namespace detail
}  // namespace ramspan
