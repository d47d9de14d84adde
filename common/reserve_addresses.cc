#include "common/reserve_addresses.h"

#include <sys/mman.h>

namespace ramspan {
namespace {

char* Map(uint64_t bytes) {
  void* range = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return range == MAP_FAILED ? nullptr : static_cast<char*>(range);
}

}  // namespace

AddressRange ReserveAddresses(uint64_t most, uint64_t least) {
  uint64_t bytes = most;
  for (; bytes / 2 >= least; bytes /= 2) {
    char* const room = Map(bytes + kAddressesOfOthers);
    if (room == nullptr) continue;
    munmap(room + bytes, kAddressesOfOthers);
    return {room, bytes};
  }
  char* const range = Map(bytes);
  return {range, range == nullptr ? 0 : bytes};
}

}  // namespace ramspan
