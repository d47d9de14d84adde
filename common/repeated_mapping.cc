#include "common/repeated_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace ramspan {
namespace {

constexpr uint64_t kWindowMin = uint64_t{2} << 20;
constexpr uint64_t kWindowsMax = 16384;  // a quarter of the mappings that a process may have
constexpr uint64_t kBytesMax = uint64_t{1} << 46;

bool MapAgainAndAgain(std::byte* at, uint64_t bytes, uint64_t window) {
  const int file = memfd_create("ramspan-sink", MFD_CLOEXEC);
  if (file < 0) return false;
  bool ok = ftruncate(file, static_cast<off_t>(window)) == 0;
  for (uint64_t offset = 0; ok && offset < bytes; offset += window) {
    ok = mmap(at + offset, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  }
  close(file);
  return ok;
}

}  // namespace

Result<RepeatedMapping> RepeatedMapping::Make(uint64_t bytes) {
  if (bytes > kBytesMax) return ResourceExhausted("no address range is that long");
  const uint64_t wanted = std::max<uint64_t>(bytes, 1);
  const uint64_t window = (std::max(kWindowMin, wanted / kWindowsMax) + kWindowMin - 1) / kWindowMin * kWindowMin;
  const uint64_t whole = (wanted + window - 1) / window * window;
  void* range = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return ResourceExhausted("no addresses for a message of a wrong length");
  RepeatedMapping mapping(static_cast<std::byte*>(range), whole, window);
  if (!MapAgainAndAgain(mapping.data_, whole, window)) {
    return ResourceExhausted("no memory to receive a message of a wrong length");
  }
  return mapping;
}

RepeatedMapping::RepeatedMapping(RepeatedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), window_bytes_(other.window_bytes_) {}

RepeatedMapping::~RepeatedMapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace ramspan
