#include "memserver/lease_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/huge_page.h"
#include "common/topology.h"
#include "common/units.h"

namespace ramspan {
namespace {

// 0.1 to 0.3 ms: others' transfers wait no longer for their turn.
constexpr uint64_t kStepBytes = uint64_t{256} << 10;
// What is given back at a time: 0.1 to 0.2 ms where pages are small, and no huge page is split for it.
constexpr uint64_t kFreeBytes = kHugePageBytes;
// Addresses are taken from the system so many at a time. They cost nothing, and a terabyte is 32768 leases of the usual 32 MiB.
constexpr uint64_t kAreaBytes = uint64_t{1} << 40;
// A transfer that was under way when its lease came back ends, or fails with its connection, before many more leases come back.
constexpr size_t kGravesMax = 16;

uint64_t RoundUpToHugePage(uint64_t bytes) { return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }

Status NoMemory(uint64_t bytes) {
  const int error = errno;
  const std::string lease = "a lease of " + FormatBytes(bytes);
  if (error == EMFILE || error == ENFILE) {
    return ResourceExhausted("no descriptor left for " + lease + " to a client of this host: raise the limit of open files (ulimit -n)");
  }
  if (error == EFBIG) {
    return ResourceExhausted(lease + " to a client of this host is a file larger than this server may have: raise the limit of file sizes (ulimit -f)");
  }
  return ResourceExhausted("no memory for " + lease + " (" + std::strerror(error) + "): let it lend less, or see its limits (ulimit -v, ulimit -d, vm.overcommit_memory, vm.max_map_count)");
}

// Each lease takes addresses that none has had, so they come to an end where they are limited, whatever is lent at the moment.
Status NoAddresses(uint64_t bytes, uint64_t used) {
  const int error = errno;
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (!limited && used == 0) return errno = error, NoMemory(bytes);
  return ResourceExhausted("no addresses for a lease of " + FormatBytes(bytes) + " to a client of another host: this server " +
                           (limited ? "may use " + FormatBytes(limit.rlim_cur) + " of them (ulimit -v)" : "has taken " + FormatBytes(used) + " of them (" + std::strerror(error) + ")") +
                           ", and each lease takes new ones: start this server again (`ramspan ctl drain --wait` first), or " + (limited ? "raise `ulimit -v`" : "see vm.max_map_count"));
}

// A memory file mapped for as long as its pages are made, because it is a mapping that says how: from which node, and with huge pages where
// the system gives them to who asks (shmem_enabled = advise). Wishes, all of it: without addresses for a mapping it does nothing.
class PageWishes {
 public:
  PageWishes(int file, uint64_t bytes) : bytes_(bytes), range_bytes_(bytes + kHugePageBytes) {
    range_ = mmap(nullptr, range_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range_ == MAP_FAILED) return;
    // A huge page begins where it would in the file.
    void* const aligned = reinterpret_cast<void*>(RoundUpToHugePage(reinterpret_cast<uintptr_t>(range_)));
    if (mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) return;
    mapped_ = static_cast<std::byte*>(aligned);
    BindMemoryToLocalNode(mapped_, bytes);  // the file remembers it
    madvise(mapped_, bytes, MADV_HUGEPAGE);
  }
  ~PageWishes() {
    if (range_ != MAP_FAILED) munmap(range_, range_bytes_);
  }
  PageWishes(const PageWishes&) = delete;
  PageWishes& operator=(const PageWishes&) = delete;

  // Before the pages at `at` are made. Of each huge page the first small one is made here, by which the system makes all of it: 32 MiB in 1.7 instead
  // of 7 ms. All of them would take 20 ms where there are no huge pages.
  void Make(uint64_t at) const {
    if (mapped_ != nullptr && at % kHugePageBytes == 0 && bytes_ - at >= kHugePageBytes) madvise(mapped_ + at, 1, MADV_POPULATE_WRITE);
  }

 private:
  const uint64_t bytes_, range_bytes_;
  void* range_ = MAP_FAILED;
  std::byte* mapped_ = nullptr;
};

}  // namespace

LeaseMemory::~LeaseMemory() {
  for (const std::span<std::byte> area : areas_) munmap(area.data(), area.size());
}

// A new area. Fewer addresses where the system grants no more (ulimit -v), but enough for this lease.
bool LeaseMemory::TakeArea(uint64_t bytes) {
  for (uint64_t size = std::max(kAreaBytes, bytes);; size = std::max(size / 8, bytes)) {
    void* range = mmap(nullptr, size + kHugePageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) {
      const uint64_t before = (kHugePageBytes - reinterpret_cast<uintptr_t>(range) % kHugePageBytes) % kHugePageBytes;
      if (before > 0) munmap(range, before);
      areas_.emplace_back(static_cast<std::byte*>(range) + before, size + kHugePageBytes - before);
      area_used_ = 0;
      return true;
    }
    if (size == bytes) return false;
  }
}

Status LeaseMemory::MakePrivate(uint64_t offset, uint64_t bytes) {
  RS_CHECK(offset <= bytes_ && bytes <= bytes_ - offset, "a lease of %llu bytes beyond the pool", static_cast<unsigned long long>(bytes));
  const uint64_t room = RoundUpToHugePage(bytes);
  // What is left of the old area stays taken: one mapping an area.
  if ((areas_.empty() || areas_.back().size() - area_used_ < room) && !TakeArea(room)) return NoAddresses(bytes, areas_.size() * kAreaBytes);
  std::byte* begin = areas_.back().data() + area_used_;
  // Not mapped anew: where the system promises no more memory than it has (vm.overcommit_memory = 2), kernels before 6.12 take away what is there
  // before they find that there is too little, and what the process maps next may come into the hole: under the next lease.
  while (mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) {
    if (!has_dropped()) return NoMemory(bytes);
    FreeSome();
    between_steps_();
  }
  RS_CHECK(made_.emplace(offset, Made{bytes, begin, {}}).second, "a lease at %llu where one is", static_cast<unsigned long long>(offset));
  BindMemoryToLocalNode(begin, bytes);
  madvise(begin, bytes, MADV_HUGEPAGE);  // a wish: 19 instead of 2 GB/s where the system grants it
  const uint64_t taken = std::exchange(area_used_, area_used_ + room);  // before others are served
  Status populated = Populate(begin, bytes);
  if (!populated.ok()) {
    // Nobody has heard of these addresses. The next lease gets them.
    made_.erase(offset);
    mmap(begin, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    area_used_ = taken;
  }
  return populated;
}

Status LeaseMemory::Populate(std::byte* begin, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kStepBytes) {
    FreeSome();
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
  const PageWishes wishes(file.number(), bytes);
  for (uint64_t at = 0; at < bytes; at += kStepBytes) {
    FreeSome();
    wishes.Make(at);
    // Older kernels end the call at any signal, also one that only suspends this process.
    while (fallocate(file.number(), 0, static_cast<off_t>(at), static_cast<off_t>(std::min(kStepBytes, bytes - at))) != 0) {
      if (errno != EINTR) return NoMemory(bytes);
    }
    between_steps_();
  }
  RS_CHECK(made_.emplace(offset, Made{bytes, nullptr, std::move(file)}).second, "a lease at %llu where one is", static_cast<unsigned long long>(offset));
  return {};
}

void LeaseMemory::Drop(uint64_t offset, bool mappings_keep_bytes) {
  const auto made = made_.find(offset);
  if (made == made_.end()) return;
  dropped_.push_back({std::move(made->second), mappings_keep_bytes});
  made_.erase(made);
}

void LeaseMemory::FreeSome() {
  if (dropped_.empty()) return;
  Dropped& next = dropped_.front();
  const Made& lease = next.lease;
  const uint64_t bytes = std::min(kFreeBytes, lease.bytes - next.freed);
  next.freed += bytes;
  if (!lease.shared) {
    madvise(lease.begin + next.freed - bytes, bytes, MADV_DONTNEED);
  } else if (!next.mappings_keep_bytes) {
    fallocate(lease.shared.number(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(next.freed - bytes), static_cast<off_t>(bytes));
  } else {
    next.freed = lease.bytes;
  }
  if (next.freed < lease.bytes) return;
  if (!lease.shared) Entomb({lease.begin, RoundUpToHugePage(lease.bytes)});  // without gaps, so that graves are one mapping
  dropped_.pop_front();
}

// Providers look at a registration when a transfer begins. One that is under way now, by a client that does not keep to the rules, goes on
// writing to these addresses. So they are never another lease's, and there is something to write to: a provider that copies
// there itself would end this process. What has been written there is given back as more leases go.
void LeaseMemory::Entomb(std::span<std::byte> memory) {
  const auto map_again = [memory](int access) { return mmap(memory.data(), memory.size(), access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0); };
  const void* again = map_again(PROT_READ | PROT_WRITE);
  // The system promises no memory for what nobody should write (ulimit -d, vm.overcommit_memory = 2). Only such a client's write can end this process then.
  // (Under overcommit 2 kernels before 6.12 have left a hole, and what another thread may have mapped there within this microsecond would be replaced.)
  // Where that does not work either the process has as many mappings as it may (vm.max_map_count), and what is here stays, without its bytes.
  if (again == MAP_FAILED) static_cast<void>(map_again(PROT_NONE));
  for (const std::span<std::byte> grave : graves_) madvise(grave.data(), grave.size(), MADV_DONTNEED);
  graves_.push_back(memory);
  if (graves_.size() > kGravesMax) graves_.pop_front();
}

std::span<std::byte> LeaseMemory::private_memory(uint64_t offset) const {
  const auto made = made_.find(offset);
  RS_CHECK(made != made_.end() && !made->second.shared, "no private lease at %llu", static_cast<unsigned long long>(offset));
  return {made->second.begin, made->second.bytes};
}

int LeaseMemory::shared_descriptor(uint64_t offset) const {
  const auto made = made_.find(offset);
  RS_CHECK(made != made_.end() && made->second.shared, "no shared lease at %llu", static_cast<unsigned long long>(offset));
  return made->second.shared.number();
}

}  // namespace ramspan
