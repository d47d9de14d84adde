#include "client/pages/page_space.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "client/engine/engine.h"
#include "common/huge_page.h"
#include "common/log.h"
#include "common/slot_ref.h"
#include "common/units.h"

namespace ramspan {
namespace {

constexpr uint64_t kHomeAddresses = uint64_t{1} << 40;  // of homes, where the system lets us; they cost nothing
constexpr uint64_t kLeastPerLimit = 4;             // times the limit, where addresses are limited
constexpr uint64_t kBlocksACharge = 128;            // whose descriptors are charged to the memory limit in one go: a page
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

Status PageSpace::Open(const PageOptions& options) {
  if (Status status = userfault_.Open(options.mode, options.moves); !status.ok()) return status;
  engine_->LeaveHugePages();  // pages move one by one, and leave holes in frames
  const uint64_t least = std::bit_ceil(engine_->budget()->limit()) * kLeastPerLimit;
  homes_ = ReserveAddresses(std::max(kHomeAddresses, least), least);
  bool has_tables = false;
  if (homes_.begin != nullptr) {
    // Blocks that are aligned in the address space, too, and no block that is there only in part.
    alignment_ = homes_.bytes >= 64 * kAlignment ? kAlignment : std::max(block_bytes_, kHugePageBytes);
    const uint64_t skip = -reinterpret_cast<uintptr_t>(homes_.begin) % alignment_;
    munmap(homes_.begin, skip);
    const uint64_t whole = (homes_.bytes - skip) / block_bytes_ * block_bytes_;
    munmap(homes_.begin + skip + whole, homes_.bytes - skip - whole);
    homes_ = {homes_.begin + skip, whole};
    const uint64_t blocks = whole / block_bytes_, table_bytes = RoundUpToGranule(blocks * sizeof(Block));
    table_ = ReserveAddresses(table_bytes, table_bytes);
    const std::span<std::byte> frames = engine_->frame_addresses();
    frames_ = {reinterpret_cast<char*>(frames.data()), frames.size()};
    const uint64_t charges_bytes = RoundUpToGranule(blocks / kBlocksACharge / 8 + sizeof(uint64_t));
    charged_ = reinterpret_cast<std::atomic<uint64_t>*>(ReserveAddresses(charges_bytes, charges_bytes).begin);
    has_tables = charged_ != nullptr && used_.Reserve(blocks) && rights_.Reserve(whole / kPageBytes) && locks_.Reserve(whole / kPageBytes) && registered_.Reserve(frames.size() / kPageBytes);
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
    free_blocks_ = std::make_unique<BuddyAllocator>(homes_.bytes / block_bytes_);
  }
  if (Status status = CheckMappings(); !status.ok()) return status;
  if (const int error = userfault_.Register(homes_.begin, homes_.bytes); error != 0) {
    return Unavailable(std::string("the kernel does not let a userfaultfd watch the memory that is to be swapped: ") + strerror(error));
  }
  return Status();
}

// In kProtect a block at home is a mapping, and so is what is between two of them.
Status PageSpace::CheckMappings() const {
  if (userfault_.mode() != FaultMode::kProtect) return Status();
  unsigned long most = 0;
  if (FILE* file = fopen("/proc/sys/vm/max_map_count", "re")) {
    if (fscanf(file, "%lu", &most) != 1) most = 0;
    fclose(file);
  }
  const uint64_t needed = 2 * (engine_->budget()->limit() / block_bytes_) + kMappingsOfProgram;
  if (most == 0 || needed <= most) return Status();
  return InvalidArgument("memory that is swapped by pages, without userfaultfd (pageFaults = protect), needs up to " + std::to_string(needed) + " mappings for this memory limit, of which the kernel lets a process have " +
                         std::to_string(most) + ": use larger blocks (ramspan run --page-block, key pageBlock), a lower limit, raise vm.max_map_count, or let the system call userfaultfd through");
}

void* PageSpace::Allocate(size_t bytes, size_t alignment) {
  if (bytes > homes_.bytes || alignment > alignment_) return nullptr;
  const uint64_t count = BlocksFor(bytes);
  const uint64_t aligned = std::max(count, alignment / block_bytes_);
  std::optional<uint64_t> first;
  {
    MutexLock lock(mutex_);
    first = free_blocks_->Allocate(aligned);
    if (first && aligned > count) free_blocks_->Free(*first + count, aligned - count);
  }
  if (!first) return nullptr;
  if (!ChargeBlock(*first).ok() || !ChargeBlock(*first + count - 1).ok()) {
    MutexLock lock(mutex_);
    free_blocks_->Free(*first, count);
    return nullptr;
  }
  SetUsed(*first, bytes);
  return HomeOf(blocks_[*first]);
}

// Touches descriptors of the first block and of the last one only: the others' are to take no memory before they are used.
void PageSpace::SetUsed(size_t first, size_t bytes) {
  const size_t last = first + BlocksFor(bytes) - 1;
  blocks_[first].bytes.store(bytes, std::memory_order_relaxed);
  const size_t tail = std::max<size_t>(1, bytes - (last - first) * block_bytes_);
  blocks_[last].tail.store(static_cast<uint32_t>(tail < block_bytes_ ? tail : 0), std::memory_order_relaxed);
  MarkUsed(first, last + 1, true);
}

void PageSpace::MarkUsed(size_t first, size_t end, bool used) {
  used_.Set(first, end, used);
  uint64_t last = used_end_.load(std::memory_order_relaxed);
  while (used && last < end && !used_end_.compare_exchange_weak(last, end, std::memory_order_relaxed)) {
  }
}

void PageSpace::Free(void* begin) {
  const Block& block = BlockAt(begin);
  if (HomeOf(block) != begin || !IsUsed(IndexOf(begin)) || block.bytes.load(std::memory_order_relaxed) == 0) {
    EndForTheProgram("frees %p, which was not allocated, or was freed before, or is in the middle of an allocation", begin);
  }
  const size_t first = IndexOf(begin);
  FreeBlocks(first, first + BlocksFor(block.bytes.load(std::memory_order_relaxed)));
}

// A thread that comes for a block late, after another one has served the same touch, makes no chunk of it any more (used_).
void PageSpace::FreeBlocks(size_t first, size_t end) {
  MarkUsed(first, end, false);
  for (size_t b = first; b < end; ++b) {
    Block& block = blocks_[b];
    LeavePlain(HomeOf(block), block_bytes_);  // nobody else uses it
    if (block.tail.load(std::memory_order_relaxed) != 0) block.tail.store(0, std::memory_order_relaxed);
    if (block.bytes.load(std::memory_order_relaxed) != 0) block.bytes.store(0, std::memory_order_relaxed);
  }
  DropBlocks(first, end);
  MutexLock lock(mutex_);
  free_blocks_->Free(first, end - first);
}

void* PageSpace::Reallocate(void* begin, size_t bytes) {
  const size_t before = BytesOf(begin), first = IndexOf(begin), count = BlocksFor(before), needed = BlocksFor(bytes);
  if (bytes > before) Discard(static_cast<char*>(begin) + before, count * block_bytes_ - before);  // something else may have been there
  if (needed <= count) {
    if (needed < count) FreeBlocks(first + needed, first + count);
    SetUsed(first, bytes);
    return begin;
  }
  void* const larger = Allocate(bytes, block_bytes_);
  if (larger == nullptr) return nullptr;
  for (size_t b = 0; b < count; ++b) {
    if (Rehome(blocks_ + first + b, blocks_ + IndexOf(larger) + b)) continue;
    // A device holds its pages, or they have another protection.
    LeavePlain(HomeOf(blocks_[first + b]), block_bytes_);
    memcpy(static_cast<char*>(larger) + b * block_bytes_, static_cast<char*>(begin) + b * block_bytes_, block_bytes_);
  }
  Free(begin);
  return larger;
}

// Also where an eviction is under way: who looks for the chunk's block finds the one or the other (TakeAway). False: nothing was done.
bool PageSpace::Rehome(Block* from, Block* to) {
  const Locked first(std::min(from, to)), second(std::max(from, to));
  Chunk* const chunk = from->chunk.load(std::memory_order_relaxed);
  if (chunk == nullptr) return true;
  if (from->held || from->calls > 0 || to->chunk.load(std::memory_order_relaxed) != nullptr) return false;
  if (from->home && (!userfault_.moves() || userfault_.Move(HomeOf(*to), HomeOf(*from), block_bytes_, Userfault::MayBeShared::kNo) != 0)) return false;
  to->home = std::exchange(from->home, false);
  to->blank = std::exchange(from->blank, false);
  to->shown_ns.store(from->shown_ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
  chunk->refs.store(static_cast<uint32_t>(to - blocks_), std::memory_order_release);
  to->chunk.store(chunk, std::memory_order_release);
  from->chunk.store(nullptr, std::memory_order_release);
  return true;
}

void PageSpace::Release(void* begin, size_t bytes) {
  const auto offset = static_cast<size_t>(static_cast<char*>(begin) - homes_.begin);
  for (size_t at = offset, end = offset + bytes, next; at < end; at = next) {
    const size_t b = at / block_bytes_, from = at % block_bytes_;
    next = std::min(end, (b + 1) * block_bytes_);
    const size_t to = from + (next - at);
    const uint64_t used = UsedBytes(b);
    if (used == 0) continue;
    if (from == 0 && to >= used) {
      FreeBlocks(b, b + 1);
    } else {
      LeavePlain(homes_.begin + at, next - at);
      Discard(homes_.begin + at, next - at);
      if (to >= used) blocks_[b].tail.store(static_cast<uint32_t>(from), std::memory_order_relaxed);
    }
  }
}

bool PageSpace::IsUsed(const void* begin, size_t bytes) const {
  const auto* const last = static_cast<const char*>(begin) + (bytes == 0 ? 0 : bytes - 1);
  if (!Owns(begin) || !Owns(last)) return false;
  for (size_t b = IndexOf(begin); b <= IndexOf(last); ++b) {
    if (!IsUsed(b)) return false;
  }
  return true;
}

size_t PageSpace::UsedBytesFrom(const void* begin, size_t bytes, bool* are_protected) const {
  const auto at = static_cast<size_t>(static_cast<const char*>(begin) - homes_.begin);
  bytes = std::min(bytes, homes_.bytes - at);
  size_t end = at;
  *are_protected = false;
  for (; end < at + bytes && IsUsed(end / block_bytes_); end = (end / block_bytes_ + 1) * block_bytes_) {
    *are_protected |= blocks_[end / block_bytes_].is_protected.load(std::memory_order_relaxed);
  }
  return std::min(bytes, end - std::min(end, at));
}

// The program may have given pages of a block back that has to stay (Clear). REQUIRES: locked.
void PageSpace::FillHoles(Block* block, const char* begin, const char* end) {
  const char* const home = HomeOf(*block);
  for (const char* page = std::max(begin, home); page < std::min(end, home + block_bytes_); page += kPageBytes) userfault_.FillHole(page);
}

size_t PageSpace::PinForCall(const void* begin, size_t bytes) {
  if (bytes == 0) return 0;
  const uint64_t limit = engine_->budget()->limit();
  const size_t first = IndexOf(begin), most = std::max<size_t>(2, limit / kCallInLimit / block_bytes_);
  const size_t end = std::min(IndexOf(static_cast<const char*>(begin) + bytes - 1) + 1, first + most);
  size_t b = first;
  for (; b < end && IsUsed(b); ++b) {
    bool pinned = false;
    if (in_calls_.fetch_add(1, std::memory_order_relaxed) * block_bytes_ < limit / kCallsInLimit || b == first) {
      while (!pinned && Bring(HomeOf(blocks_[b])).ok()) {
        const Locked locked(&blocks_[b]);
        pinned = blocks_[b].home && blocks_[b].calls < UINT16_MAX;
        if (pinned && blocks_[b].is_protected) FillHoles(&blocks_[b], static_cast<const char*>(begin), static_cast<const char*>(begin) + bytes);
        blocks_[b].calls = static_cast<uint16_t>(blocks_[b].calls + pinned);
      }
    }
    if (!pinned) {
      in_calls_.fetch_sub(1, std::memory_order_relaxed);
      break;
    }
  }
  return b == first ? 0 : std::min(bytes, static_cast<size_t>(homes_.begin + b * block_bytes_ - static_cast<const char*>(begin)));
}

void PageSpace::UnpinForCall(const void* begin, size_t bytes) {
  for (size_t b = IndexOf(begin); b <= IndexOf(static_cast<const char*>(begin) + bytes - 1); ++b) {
    const Locked locked(&blocks_[b]);
    --blocks_[b].calls;
    in_calls_.fetch_sub(1, std::memory_order_relaxed);
  }
}

void PageSpace::Discard(void* begin, size_t bytes) {
  for (char *at = static_cast<char*>(begin), *const end = at + bytes, *next; at < end; at = next) {
    const size_t b = IndexOf(at);
    next = std::min(end, HomeOf(blocks_[b]) + block_bytes_);
    if (blocks_[b].chunk.load(std::memory_order_acquire) == nullptr) continue;
    const bool is_whole = static_cast<size_t>(next - at) == block_bytes_;
    // Where it would come as a mapping that is not protected it stays.
    is_whole && !(ComesWithRights() && blocks_[b].is_protected) ? DropChunk(&blocks_[b]) : Clear(at, next);
  }
}

// In one block. Where pages may not be written to they are zeros because they are not there: a fault finds none, and the block at home (Show).
void PageSpace::Clear(char* begin, char* end) {
  Block& block = BlockAt(begin);
  {
    const Locked locked(&block);
    if (block.is_protected) {
      char* const page = begin + -reinterpret_cast<uintptr_t>(begin) % kPageBytes;
      if (block.home && page < end) static_cast<void>(userfault_.Empty(page, static_cast<size_t>(end - page) / kPageBytes * kPageBytes));
      return;
    }
  }
  memset(begin, 0, static_cast<size_t>(end - begin));
}

void PageSpace::DropBlocks(size_t first, size_t end) {
  for (size_t b = first; b < end; ++b) {
    if (blocks_[b].chunk.load(std::memory_order_acquire) != nullptr) DropChunk(&blocks_[b]);
  }
}

// Descriptors of blocks count in the memory limit as far as they are used. Two threads may charge the same: one of them gives it back.
Status PageSpace::ChargeBlock(size_t number) {
  std::atomic<uint64_t>& word = charged_[number / kBlocksACharge / 64];
  const uint64_t bit = uint64_t{1} << number / kBlocksACharge % 64;
  if (word.load(std::memory_order_relaxed) & bit) return Status();
  constexpr uint64_t kBytes = kBlocksACharge * sizeof(Block);
  Status status = engine_->ChargeMetadata(kBytes);
  if (status.ok() && (word.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) engine_->budget()->ChargeMetadata(-kBytes);
  return status;
}

PageSpace::Counters PageSpace::counters() const {
  return {.faults = faults_, .moves_home = moves_home_, .moves_away = moves_away_, .zero_blocks = zero_blocks_, .stuck = stuck_};
}

}  // namespace ramspan
