#include "client/front/table_memory.h"

#include <sys/mman.h>

#include <new>
#include <optional>

#include "client/engine/engine.h"
#include "common/reserve_addresses.h"

namespace ramspan {

// Where addresses are limited (ulimit -v): of 200 000 small objects.
constexpr uint64_t kLeastTables = 4 << 20;

TableMemory::TableMemory(Engine* engine) : engine_(engine) {
  // Addresses cost nothing; what is used of them is bounded by the limit, which may be raised later.
  const AddressRange range = ReserveAddresses(uint64_t{64} << 30, kLeastTables);
  if (range.begin == nullptr) throw std::bad_alloc();
  base_ = range.begin + (kStep - reinterpret_cast<uintptr_t>(range.begin) % kStep) % kStep;
  reserved_ = range.bytes - kStep;
  const auto before = static_cast<size_t>(base_ - range.begin);
  if (before > 0) munmap(range.begin, before);
  if (before < kStep) munmap(base_ + reserved_, kStep - before);
  madvise(base_, reserved_, MADV_NOHUGEPAGE);  // what is charged must be all that is used
  blocks_ = std::make_unique<BuddyAllocator>(reserved_ / kUnit);
}

TableMemory::~TableMemory() { munmap(base_, reserved_); }

Result<void*> TableMemory::Take(uint64_t bytes) {
  std::lock_guard taking(taking_);
  std::optional<uint64_t> unit;
  {
    MutexLock lock(mutex_);
    unit = blocks_->Allocate(bytes / kUnit);
  }
  if (!unit) return FailedPrecondition("small objects fill all of the addresses reserved for them");
  const uint64_t end = *unit * kUnit + bytes;
  if (end > charged_) {  // the allocator gives the lowest addresses first
    const uint64_t more = (end - charged_ + kStep - 1) / kStep * kStep;
    if (Status status = engine_->ChargeMetadata(more); !status.ok()) {
      MutexLock lock(mutex_);
      blocks_->Free(*unit, bytes / kUnit);
      return status;
    }
    charged_ += more;
  }
  return static_cast<void*>(base_ + *unit * kUnit);
}

void TableMemory::Put(void* table, uint64_t bytes) {
  MutexLock lock(mutex_);
  blocks_->Free(static_cast<uint64_t>(static_cast<char*>(table) - base_) / kUnit, bytes / kUnit);
}

}  // namespace ramspan
