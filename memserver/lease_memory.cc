#include "memserver/lease_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/check.h"

namespace ramspan {
namespace {

// 0.1 to 0.3 ms: others' transfers wait no longer for their turn.
constexpr uint64_t kStepBytes = uint64_t{256} << 10;

Status NoMemory(uint64_t bytes) {
  return ResourceExhausted("no memory for a lease of " + std::to_string(bytes >> 20) + " MiB: " + std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<LeaseMemory>> LeaseMemory::Reserve(uint64_t bytes, std::function<void()> between_steps) {
  void* base = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return InvalidArgument("no addresses for " + std::to_string(bytes) + " bytes (--memory): " + std::strerror(errno));
  return std::unique_ptr<LeaseMemory>(new LeaseMemory(static_cast<std::byte*>(base), bytes, std::move(between_steps)));
}

LeaseMemory::~LeaseMemory() { munmap(base_, bytes_); }

Status LeaseMemory::MakePrivate(uint64_t offset, uint64_t bytes) {
  RS_CHECK(offset <= bytes_ && bytes <= bytes_ - offset, "a lease of %llu bytes beyond the pool", static_cast<unsigned long long>(bytes));
  std::byte* begin = base_ + offset;
  if (mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return NoMemory(bytes);
  }
  RS_CHECK(made_.emplace(offset, Made{bytes, {}}).second, "a lease at %llu where one is", static_cast<unsigned long long>(offset));
  madvise(begin, bytes, MADV_HUGEPAGE);  // a wish: 19 instead of 2 GB/s where the system grants it
  Status populated = Populate(begin, bytes);
  if (!populated.ok()) Drop(offset);
  return populated;
}

Status LeaseMemory::Populate(std::byte* begin, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kStepBytes) {
    // Kernels before 5.14 do not know the call (EINVAL): then a page is made when it is first used.
    if (madvise(begin + at, std::min(kStepBytes, bytes - at), MADV_POPULATE_WRITE) != 0 && errno != EINVAL) return NoMemory(bytes);
    between_steps_();
  }
  return {};
}

Status LeaseMemory::MakeShared(uint64_t offset, uint64_t bytes) {
  RS_CHECK(offset <= bytes_ && bytes <= bytes_ - offset, "a lease of %llu bytes beyond the pool", static_cast<unsigned long long>(bytes));
  Descriptor file(memfd_create("ramspan-lease", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.number(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return NoMemory(bytes);
  }
  for (uint64_t at = 0; at < bytes; at += kStepBytes) {
    if (fallocate(file.number(), 0, static_cast<off_t>(at), static_cast<off_t>(std::min(kStepBytes, bytes - at))) != 0) return NoMemory(bytes);
    between_steps_();
  }
  RS_CHECK(made_.emplace(offset, Made{bytes, std::move(file)}).second, "a lease at %llu where one is", static_cast<unsigned long long>(offset));
  return {};
}

void LeaseMemory::Drop(uint64_t offset) {
  const auto made = made_.find(offset);
  if (made == made_.end()) return;
  if (made->second.shared) {
    // A client may keep its mapping; what is in it is no longer this server's to pay for.
    fallocate(made->second.shared.number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(made->second.bytes));
  } else {
    const void* again = mmap(base_ + offset, made->second.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    RS_CHECK(again != MAP_FAILED, "memory of a lease cannot be given back: %s", std::strerror(errno));
  }
  made_.erase(made);
}

std::span<std::byte> LeaseMemory::private_memory(uint64_t offset) const {
  const auto made = made_.find(offset);
  RS_CHECK(made != made_.end() && !made->second.shared, "no private lease at %llu", static_cast<unsigned long long>(offset));
  return {base_ + offset, made->second.bytes};
}

int LeaseMemory::shared_descriptor(uint64_t offset) const {
  const auto made = made_.find(offset);
  RS_CHECK(made != made_.end() && made->second.shared, "no shared lease at %llu", static_cast<unsigned long long>(offset));
  return made->second.shared.number();
}

}  // namespace ramspan
