#include "client/pages/page_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "client/engine/engine.h"
#include "common/huge_page.h"
#include "common/log.h"
#include "common/other_stack.h"
#include "common/slot_ref.h"
#include "common/topology.h"
#include "common/units.h"

namespace ramspan {
namespace {

constexpr uint64_t kHomeAddresses = uint64_t{1} << 40;  // of homes, where the system lets us; they cost nothing
constexpr uint64_t kLeastPerLimit = 4;             // times the limit, where addresses are limited
constexpr uint64_t kBlocksACharge = 128;            // whose descriptors are charged to the memory limit in one go
constexpr uint64_t kTablesInHomes = 64;             // of the homes' addresses, for descriptors of their pages
// Large blocks are at most this part of the limit: each core may go through several arrays at once.
constexpr uint64_t kLargeInLimit = 64, kLargeACore = 16;
constexpr uint64_t kMappingsOfProgram = 4096;       // its libraries, stacks and allocations
constexpr uint64_t kAlignment = uint64_t{1} << 30;  // what huge pages and aligned allocators may ask for

}  // namespace

void PageSpace::EndForTheProgram(const char* format, ...) {
  char what[200];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof(what), format, arguments);
  va_end(arguments);
  LogWarning("the process ends: the program %s", what);
  std::abort();
}

Result<std::unique_ptr<PageSpace>> PageSpace::Create(Engine* engine, const PageOptions& options) {
  auto space = std::unique_ptr<PageSpace>(new PageSpace(engine, options));
  if (Status status = space->Open(options); !status.ok()) return status;
  return space;
}

PageSpace::PageSpace(Engine* engine, const PageOptions& options)
    : engine_(engine), adapts_(options.block_bytes <= kPageBlockRestless), is_restless_(options.block_bytes == kPageBlockRestless), has_limit_alone_(options.has_limit_alone), unit_bytes_(adapts_ ? kPageUnit : options.block_bytes) {}

Status PageSpace::Open(const PageOptions& options) {
  if (Status status = userfault_.Open(options.mode, options.moves); !status.ok()) return status;
  if (!ReserveOtherStack()) return Unavailable("there is no memory, or no address space, for a stack of 256 KiB (ulimit -v)");
  engine_->LeaveHugePages();  // pages move one by one, and leave holes in frames
  // Blocks have numbers of 32 bits, of which the last one is none.
  const uint64_t most = ((adapts_ ? kPageBytes : unit_bytes_) << 32) - kAreaBytes, limit = engine_->budget()->limit();
  if (limit > most / kLeastPerLimit) {
    return InvalidArgument("memory that is swapped by pages takes a limit of " + FormatBytes(most / kLeastPerLimit) + " at most with blocks of this size: use larger ones (ramspan run --page-block 2MiB, key pageBlock), or a lower limit (RAMSPAN_MEMORY)");
  }
  const uint64_t least = std::min(std::bit_ceil(limit) * kLeastPerLimit, most);
  homes_ = ReserveAddresses(std::min(std::max(kHomeAddresses, least), most), least);
  bool has_tables = false;
  if (homes_.begin != nullptr) {
    // Blocks that are aligned in the address space, too, and no block that is there only in part.
    alignment_ = homes_.bytes >= 64 * kAlignment ? kAlignment : kHugePageBytes;
    const uint64_t skip = -reinterpret_cast<uintptr_t>(homes_.begin) % alignment_;
    munmap(homes_.begin, skip);
    uint64_t whole = homes_.bytes - skip;
    if (adapts_ && homes_.bytes < std::max(kHomeAddresses, least)) whole -= whole / kTablesInHomes;  // addresses are limited, and the tables are behind
    whole = whole / kHugePageBytes * kHugePageBytes;
    munmap(homes_.begin + skip + whole, homes_.bytes - skip - whole);
    homes_ = {homes_.begin + skip, whole};
    has_tables = ReserveTables();
  }
  if (homes_.begin == nullptr || table_.begin == nullptr || !has_tables) {
    return InvalidArgument("memory that is swapped by pages needs " + FormatBytes(least) +
                           " of addresses, four times the memory limit, which this process may not have: raise `ulimit -v`, or lower the limit (RAMSPAN_MEMORY)");
  }
  if (userfault_.mode() != FaultMode::kProtect) madvise(homes_.begin, homes_.bytes, MADV_NOHUGEPAGE);  // there a mapping is a block
  // A forked child is not served: it would read zeros. So it has no such addresses.
  madvise(homes_.begin, homes_.bytes, MADV_DONTFORK);
  madvise(table_.begin, table_.bytes, MADV_NOHUGEPAGE);
  blocks_ = reinterpret_cast<Block*>(table_.begin);  // all zeros is what a Block begins with
  {
    MutexLock lock(mutex_);
    free_blocks_ = std::make_unique<BuddyAllocator>(homes_.bytes / unit_bytes_);
  }
  if (Status status = CheckMappings(); !status.ok()) return status;
  if (const int error = userfault_.Register(homes_.begin, homes_.bytes); error != 0) {
    return Unavailable(std::string("the kernel does not let a userfaultfd watch the memory that is to be swapped: ") + strerror(error));
  }
  return Status();
}

// False: there are no addresses.
bool PageSpace::ReserveTables() {
  sizes_[kUnit] = sizes_[kPage] = sizes_[kLarge] = unit_bytes_;
  if (adapts_) {
    if (userfault_.mode() != FaultMode::kProtect) sizes_[kPage] = kPageBytes;  // there each is a mapping
    sizes_[kLarge] = std::clamp(std::bit_floor(engine_->budget()->limit() / std::max(kLargeInLimit, kLargeACore * static_cast<uint64_t>(UsableCores()))), unit_bytes_, kHugePageBytes);
  }
  area_entry_bits_ = kAreaBits - std::countr_zero(sizes_[kPage] / kPageBytes);
  const uint64_t areas = homes_.bytes / kAreaBytes + (homes_.bytes % kAreaBytes != 0 ? 1 : 0), units = homes_.bytes / unit_bytes_, descriptors = areas << area_entry_bits_;
  const auto reserve = [](uint64_t bytes) { return ReserveAddresses(RoundUpToGranule(bytes), RoundUpToGranule(bytes)); };
  table_ = reserve(descriptors * sizeof(Block));
  const std::span<std::byte> frames = engine_->frame_addresses();
  frames_ = {reinterpret_cast<char*>(frames.data()), frames.size()};
  charged_ = reinterpret_cast<std::atomic<uint64_t>*>(reserve(descriptors / kBlocksACharge / 8 + sizeof(uint64_t)).begin);
  areas_ = reinterpret_cast<Area*>(reserve(areas * sizeof(Area)).begin);
  sizes_of_ = reinterpret_cast<std::atomic<uint8_t>*>(reserve(units).begin);
  return table_.begin != nullptr && charged_ != nullptr && areas_ != nullptr && sizes_of_ != nullptr && used_.Reserve(units) && rights_.Reserve(homes_.bytes / kPageBytes) && given_back_.Reserve(homes_.bytes / kPageBytes) &&
         locks_.Reserve(homes_.bytes / kPageBytes) && hidden_.Reserve(areas) && registered_.Reserve(frames.size() / kPageBytes);
}

// In kProtect a block at home is a mapping, and so is what is between two of them.
Status PageSpace::CheckMappings() const {
  if (userfault_.mode() != FaultMode::kProtect) return Status();
  unsigned long most = 0;
  if (FILE* file = fopen("/proc/sys/vm/max_map_count", "re")) {
    if (fscanf(file, "%lu", &most) != 1) most = 0;
    fclose(file);
  }
  const uint64_t needed = 2 * (engine_->budget()->limit() / unit_bytes_) + kMappingsOfProgram;
  if (most == 0 || needed <= most) return Status();
  return InvalidArgument("memory that is swapped by pages, without userfaultfd (pageFaults = protect), needs up to " + std::to_string(needed) + " mappings for this memory limit, of which the kernel lets a process have " +
                         std::to_string(most) + ": use larger blocks (ramspan run --page-block, key pageBlock), a lower limit, raise vm.max_map_count, or let the system call userfaultfd through");
}

// The program may have given pages of a block back that has to stay (Clear). REQUIRES: locked.
void PageSpace::FillHoles(const Sized& block, const char* begin, const char* end) {
  for (const char *page = std::max<const char*>(begin, block.home), *const last = std::min<const char*>(end, block.end()); page < last; page += kPageBytes) userfault_.FillHole(page);
}

size_t PageSpace::PinForCall(const void* begin, size_t bytes) {
  if (bytes == 0) return 0;
  const auto* const first = static_cast<const char*>(begin);
  const char* const end = first + bytes;
  const uint64_t limit = engine_->budget()->limit();
  const char* at = first;
  for (int blocks = 0; at < end && IsUsed(UnitOf(at)) && (blocks < 2 || static_cast<uint64_t>(at - first) < limit / kCallInLimit); ++blocks) {
    const char* next = nullptr;
    while (next == nullptr && Bring(at).ok()) {
      const LockedAt one(this, at);
      if (!one.block->home) continue;
      if (one.block->calls == UINT16_MAX || (in_calls_.load(std::memory_order_relaxed) >= limit / kCallsInLimit && at != first)) break;
      in_calls_.fetch_add(one.bytes, std::memory_order_relaxed);
      if (one.block->is_protected) FillHoles(one, first, end);
      ++one.block->calls;
      next = one.end();
    }
    if (next == nullptr) break;
    at = next;
  }
  return std::min(bytes, static_cast<size_t>(at - first));
}

// What is used by a call keeps its size.
void PageSpace::UnpinForCall(const void* begin, size_t bytes) {
  for (const char *at = static_cast<const char*>(begin), *const end = at + bytes; at < end;) {
    const LockedAt one(this, at);
    --one.block->calls;
    in_calls_.fetch_sub(one.bytes, std::memory_order_relaxed);
    at = one.end();
  }
}

// Descriptors of blocks count in the memory limit as far as they are used. Two threads may charge the same: one of them gives it back.
Status PageSpace::ChargeBlock(const Block* block) {
  const auto group = static_cast<size_t>(block - blocks_) / kBlocksACharge;
  std::atomic<uint64_t>& word = charged_[group / 64];
  const uint64_t bit = uint64_t{1} << group % 64;
  if (word.load(std::memory_order_relaxed) & bit) return Status();
  constexpr uint64_t kBytes = kBlocksACharge * sizeof(Block);
  Status status = engine_->ChargeMetadata(kBytes);
  if (status.ok() && (word.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) engine_->budget()->ChargeMetadata(-kBytes);
  return status;
}

PageSpace::Counters PageSpace::counters() const {
  return {.faults = faults_, .moves_home = moves_home_, .moves_away = moves_away_, .zero_blocks = zero_blocks_, .stuck = stuck_, .merges = merges_, .splits = splits_, .cramped = cramped_};
}

}  // namespace ramspan
