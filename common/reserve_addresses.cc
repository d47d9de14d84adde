#include "common/reserve_addresses.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "common/huge_page.h"
#include "common/slot_ref.h"

namespace ramspan {
namespace {

constexpr uint64_t kStep = uint64_t{1} << 20;  // how exactly the most that fits is found

// Without pages also where the program has asked for all that comes to be locked in memory, and so to be there (mlockall, MCL_FUTURE): a terabyte.
char* Map(uint64_t bytes) {
  void* const range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  if (munlock(range, bytes) == 0 && mprotect(range, bytes, PROT_READ | PROT_WRITE) == 0) return static_cast<char*>(range);
  munmap(range, bytes);
  return nullptr;
}

// What `ulimit -v` and `ulimit -d` leave.
uint64_t FreeAddresses() {
  unsigned long long all = 0, data = 0;  // pages: all of them, and the private ones that can be written
  if (FILE* file = fopen("/proc/self/statm", "re")) {
    if (fscanf(file, "%llu %*u %*u %*u %*u %llu", &all, &data) != 2) all = data = 0;
    fclose(file);
  }
  const auto left = [](auto resource, uint64_t pages) {
    rlimit most{};
    if (getrlimit(resource, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return UINT64_MAX / 2;
    const uint64_t used = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return most.rlim_cur > used ? most.rlim_cur - used : 0;
  };
  return std::min(left(RLIMIT_AS, all), left(RLIMIT_DATA, data));
}

std::atomic<bool> leave_half{false};

}  // namespace

void LeaveHalfOfAddresses() { leave_half.store(true, std::memory_order_relaxed); }

AddressRange ReserveAddresses(uint64_t most, uint64_t least) {
  least = RoundUpToGranule(least);  // where the part for others begins has to be a page's begin
  const auto beside_others = [](uint64_t bytes) {
    char* const room = Map(bytes + kAddressesOfOthers);
    if (room == nullptr) return AddressRange{};
    const uint64_t skip = -reinterpret_cast<uintptr_t>(room) % kHugePageBytes;
    if (skip > 0) munmap(room, skip);
    munmap(room + skip + bytes, kAddressesOfOthers - skip);
    return AddressRange{room + skip, bytes};
  };
  AddressRange range = beside_others(most);
  if (range.begin != nullptr) return range;
  if (leave_half.load(std::memory_order_relaxed)) most = std::max(least, std::min(most, RoundUpToGranule(FreeAddresses() / 2)));
  uint64_t fits = least;
  for (uint64_t too_much = most; too_much > fits + kStep;) {
    const uint64_t middle = RoundUpToGranule(fits + (too_much - fits) / 2);
    range = beside_others(middle);
    if (range.begin != nullptr) munmap(range.begin, range.bytes);
    (range.begin != nullptr ? fits : too_much) = middle;
  }
  range = beside_others(fits);
  if (range.begin != nullptr) return range;
  char* const alone = Map(least);
  return {alone, alone == nullptr ? 0 : least};
}

}  // namespace ramspan
