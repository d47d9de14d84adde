#include "common/reserve_addresses.h"

#include <sys/mman.h>

#include "common/slot_ref.h"

namespace ramspan {
namespace {

char* Map(uint64_t bytes) {
  void* range = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return range == MAP_FAILED ? nullptr : static_cast<char*>(range);
}

}  // namespace

AddressRange ReserveAddresses(uint64_t most, uint64_t least) {
  least = RoundUpToGranule(least);  // where the part for others begins has to be a page's begin
  const auto beside_others = [](uint64_t bytes) {
    char* const room = Map(bytes + kAddressesOfOthers);
    if (room != nullptr) munmap(room + bytes, kAddressesOfOthers);
    return AddressRange{room, room == nullptr ? 0 : bytes};
  };
  for (uint64_t bytes = most; bytes > least; bytes /= 2) {
    if (const AddressRange range = beside_others(bytes); range.begin != nullptr) return range;
  }
  if (const AddressRange range = beside_others(least); range.begin != nullptr) return range;
  char* const range = Map(least);
  return {range, range == nullptr ? 0 : least};
}

}  // namespace ramspan
