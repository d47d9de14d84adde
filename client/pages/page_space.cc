#include "client/pages/page_space.h"

#include <sys/mman.h>

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
#include "common/log.h"
#include "common/slot_ref.h"
#include "common/units.h"

namespace ramspan {
namespace {

constexpr uint64_t kHomeAddresses = uint64_t{1} << 40;  // of homes, where the system lets us; they cost nothing
constexpr uint64_t kLeastPerLimit = 4;              // times the limit, where addresses are limited
constexpr uint64_t kBlocksACharge = 128;            // whose descriptors are charged to the memory limit in one go: a page
constexpr uint64_t kAlignment = uint64_t{1} << 30;  // what huge pages and aligned allocators may ask for
constexpr uint32_t kFaultsOfFree = 100'000;         // in blocks that nobody has allocated: late ones are a few
// A look takes some ns: the lock is held for a move, of 5 to 15 us. Who holds it may have been preempted.
constexpr int kLooksAtBlock = 2000, kLooksBeforeNap = 4000;
constexpr auto kNap = std::chrono::microseconds(50);
// What fills the memory limit may be blocks in their grace, and frames of those that are being brought.
constexpr auto kPatienceWithPins = std::chrono::seconds(10);

int64_t BlockClockNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

[[noreturn, gnu::format(printf, 1, 2)]] void EndForTheProgram(const char* format, ...) {
  char what[200];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof(what), format, arguments);
  va_end(arguments);
  LogWarning("the process ends: the program %s", what);
  std::abort();
}

// Most memory differs from zero within its first bytes.
bool IsZero(const char* begin, size_t bytes) {
  const auto* const words = reinterpret_cast<const uint64_t*>(begin);
  const size_t count = bytes / sizeof(uint64_t);
  return std::all_of(words, words + count, [](uint64_t word) { return word == 0; });
}

}  // namespace

class PageSpace::Locked {
 public:
  explicit Locked(Block* block) : block_(block) {
    for (int looks = 0; block_->locked.exchange(true, std::memory_order_acquire); ++looks) {
      if (looks >= kLooksBeforeNap) std::this_thread::sleep_for(kNap);  // who has it may get no core otherwise (real-time)
      if (looks >= kLooksAtBlock) std::this_thread::yield();
      __builtin_ia32_pause();
    }
  }
  ~Locked() { block_->locked.store(false, std::memory_order_release); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Block* const block_;
};

Result<std::unique_ptr<PageSpace>> PageSpace::Create(Engine* engine, const PageOptions& options) {
  auto space = std::unique_ptr<PageSpace>(new PageSpace(engine, options));
  if (Status status = space->Open(options.mode); !status.ok()) return status;
  return space;
}

Status PageSpace::Open(FaultMode mode) {
  if (Status status = userfault_.Open(mode); !status.ok()) return status;
  const uint64_t least = std::bit_ceil(engine_->budget()->limit()) * kLeastPerLimit;
  homes_ = ReserveAddresses(std::max(kHomeAddresses, least), least);
  if (homes_.begin != nullptr) {
    // Blocks that are aligned in the address space, too, and no block that is there only in part.
    alignment_ = homes_.bytes >= 64 * kAlignment ? kAlignment : std::max<uint64_t>(block_bytes_, 2 << 20);
    const uint64_t skip = -reinterpret_cast<uintptr_t>(homes_.begin) % alignment_;
    munmap(homes_.begin, skip);
    const uint64_t whole = (homes_.bytes - skip) / block_bytes_ * block_bytes_;
    munmap(homes_.begin + skip + whole, homes_.bytes - skip - whole);
    homes_ = {homes_.begin + skip, whole};
    const uint64_t blocks = whole / block_bytes_, table_bytes = RoundUpToGranule(blocks * sizeof(Block));
    table_ = ReserveAddresses(table_bytes, table_bytes);
    const std::span<std::byte> frames = engine_->frame_addresses();
    frames_ = {reinterpret_cast<char*>(frames.data()), frames.size()};
    const uint64_t bits_bytes = RoundUpToGranule(frames.size() / kPageBytes / 8 + sizeof(uint64_t));
    const uint64_t charges_bytes = RoundUpToGranule(blocks / kBlocksACharge / 8 + sizeof(uint64_t));
    const uint64_t used_bytes = RoundUpToGranule(blocks / 8 + sizeof(uint64_t));
    charged_ = reinterpret_cast<std::atomic<uint64_t>*>(ReserveAddresses(charges_bytes, charges_bytes).begin);
    used_ = reinterpret_cast<std::atomic<uint64_t>*>(ReserveAddresses(used_bytes, used_bytes).begin);
    registered_ = reinterpret_cast<std::atomic<uint64_t>*>(ReserveAddresses(bits_bytes, bits_bytes).begin);
  }
  if (homes_.begin == nullptr || table_.begin == nullptr || registered_ == nullptr || charged_ == nullptr || used_ == nullptr) {
    return InvalidArgument("memory that is swapped by pages needs " + FormatBytes(least) +
                           " of addresses, four times the memory limit, which this process may not have: raise `ulimit -v`, or lower the limit (RAMSPAN_MEMORY)");
  }
  madvise(homes_.begin, homes_.bytes, MADV_NOHUGEPAGE);  // pages move one by one
  // A forked child is not served: it would read zeros. So it has no such addresses.
  madvise(homes_.begin, homes_.bytes, MADV_DONTFORK);
  madvise(table_.begin, table_.bytes, MADV_NOHUGEPAGE);
  blocks_ = reinterpret_cast<Block*>(table_.begin);  // all zeros is what a Block begins with
  {
    MutexLock lock(mutex_);
    free_blocks_ = std::make_unique<BuddyAllocator>(homes_.bytes / block_bytes_);
  }
  if (const int error = userfault_.Register(homes_.begin, homes_.bytes); error != 0) {
    return Unavailable(std::string("the kernel does not let a userfaultfd watch the memory that is to be swapped: ") + strerror(error));
  }
  return Status();
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
  for (size_t b = first; b < end;) {
    const size_t next = std::min(end, (b / 64 + 1) * 64), count = next - b;
    const uint64_t bits = (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << b % 64;
    used ? used_[b / 64].fetch_or(bits) : used_[b / 64].fetch_and(~bits);
    b = next;
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
    if (block.is_protected) MakePlain(&block);  // nobody else uses it
    if (block.tail.load(std::memory_order_relaxed) != 0) block.tail.store(0, std::memory_order_relaxed);
    if (block.bytes.load(std::memory_order_relaxed) != 0) block.bytes.store(0, std::memory_order_relaxed);
  }
  DropBlocks(first, end);
  MutexLock lock(mutex_);
  free_blocks_->Free(first, end - first);
}

// All of its pages are as they were made.
void PageSpace::MakePlain(Block* block) {
  const Locked locked(block);
  mprotect(HomeOf(*block), block_bytes_, PROT_READ | PROT_WRITE);
  block->is_protected = false;
  if (std::exchange(block->held, false)) held_.fetch_sub(1, std::memory_order_relaxed);
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
    if (blocks_[first + b].is_protected) MakePlain(blocks_ + first + b);
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
  if (from->home && userfault_.Move(HomeOf(*to), HomeOf(*from), block_bytes_, Userfault::MayBeShared::kNo) != 0) return false;
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

Status PageSpace::Hold(void* begin, size_t bytes) {
  const size_t first = IndexOf(begin), end = IndexOf(static_cast<char*>(begin) + bytes - 1) + 1;
  for (size_t b = first; b < end; ++b) {
    for (bool held = blocks_[b].chunk.load(std::memory_order_acquire) == nullptr; !held;) {
      Status status = (held_.load(std::memory_order_relaxed) + 1) * block_bytes_ > engine_->budget()->limit() / 2
                          ? Status(StatusCode::kResourceExhausted, StaticText("what is locked or protected would be more than half of the memory limit"))
                          : Bring(HomeOf(blocks_[b]));
      if (!status.ok()) {
        LetGo(begin, (b - first) * block_bytes_);
        return status;
      }
      const Locked locked(&blocks_[b]);
      held = HoldLocked(&blocks_[b]);
    }
  }
  return Status();
}

// False: it is not at home. REQUIRES: locked.
bool PageSpace::HoldLocked(Block* block) {
  if (block->home && !std::exchange(block->held, true)) held_.fetch_add(1, std::memory_order_relaxed);
  return block->home;
}

Status PageSpace::BecomeProtected(void* begin, size_t bytes) {
  // First, so that what is touched meanwhile is held, too.
  for (size_t b = IndexOf(begin); b <= IndexOf(static_cast<char*>(begin) + bytes - 1); ++b) {
    const Locked locked(&blocks_[b]);
    blocks_[b].is_protected = true;
    HoldLocked(&blocks_[b]);
  }
  return Hold(begin, bytes);
}

void PageSpace::BecomePlain(void* begin, size_t bytes) {
  const auto* const end = static_cast<char*>(begin) + bytes;
  for (size_t b = IndexOf(begin); b <= IndexOf(end - 1); ++b) {
    const char* const home = HomeOf(blocks_[b]);
    if (home >= begin && home + block_bytes_ <= end && blocks_[b].is_protected) MakePlain(blocks_ + b);
  }
}

void PageSpace::LetGo(void* begin, size_t bytes) {
  if (bytes == 0) return;
  for (size_t b = IndexOf(begin); b <= IndexOf(static_cast<char*>(begin) + bytes - 1); ++b) {
    const Locked locked(&blocks_[b]);
    if (!blocks_[b].is_protected && std::exchange(blocks_[b].held, false)) held_.fetch_sub(1, std::memory_order_relaxed);
  }
}

size_t PageSpace::PinForCall(const void* begin, size_t bytes) {
  if (bytes == 0) return 0;
  const uint64_t limit = engine_->budget()->limit();
  const size_t first = IndexOf(begin), most = std::max<size_t>(2, limit / kCallInLimit / block_bytes_);
  const size_t end = std::min(IndexOf(static_cast<const char*>(begin) + bytes - 1) + 1, first + most);
  size_t b = first;
  for (; b < end; ++b) {
    bool pinned = false;
    if (in_calls_.fetch_add(1, std::memory_order_relaxed) * block_bytes_ < limit / kCallsInLimit || b == first) {
      while (!pinned && Bring(HomeOf(blocks_[b])).ok()) {
        const Locked locked(&blocks_[b]);
        pinned = blocks_[b].home && blocks_[b].calls < UINT16_MAX;
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
  char* const end = static_cast<char*>(begin) + bytes;
  char* const first = std::min(end, homes_.begin + (IndexOf(begin) + (static_cast<char*>(begin) == HomeOf(BlockAt(begin)) ? 0 : 1)) * block_bytes_);
  if (first > begin) Clear(static_cast<char*>(begin), first);
  if (bytes == 0 || first == end) return;
  char* const rest = homes_.begin + IndexOf(end) * block_bytes_;
  DropBlocks(IndexOf(first), IndexOf(end));
  if (end > rest) Clear(rest, end);
}

// A part of one block. Where pages may not be written to they are zeros because they are not there: a fault finds none, and the block at home (Show).
void PageSpace::Clear(char* begin, char* end) {
  Block& block = BlockAt(begin);
  if (block.chunk.load(std::memory_order_acquire) == nullptr) return;
  if (!block.is_protected) {
    memset(begin, 0, static_cast<size_t>(end - begin));
    return;
  }
  char* const page = begin + -reinterpret_cast<uintptr_t>(begin) % kPageBytes;
  if (page < end) madvise(page, static_cast<size_t>(end - page) / kPageBytes * kPageBytes, MADV_DONTNEED);
}

void PageSpace::DropBlocks(size_t first, size_t end) {
  for (size_t b = first; b < end; ++b) {
    if (blocks_[b].chunk.load(std::memory_order_acquire) != nullptr) DropChunk(&blocks_[b]);
  }
}

// The frame goes back to the arena with its pages.
void PageSpace::DropChunk(Block* block) {
  Chunk* chunk = nullptr;
  {
    const Locked locked(block);
    chunk = block->chunk.load(std::memory_order_relaxed);
    if (chunk == nullptr) return;
    if (std::exchange(block->held, false)) held_.fetch_sub(1, std::memory_order_relaxed);
    if (block->home) {
      auto* const frame = static_cast<std::byte*>(chunk->frame);
      // Pages that a device holds stay its own until it lets them go. The frame gets others when it is written to, which nobody watches any more.
      if (block->is_protected || !NoteFrame(frame) || userfault_.Move(frame, HomeOf(*block), block_bytes_, Userfault::MayBeShared::kNo) != 0) {
        madvise(HomeOf(*block), block_bytes_, MADV_DONTNEED);
        LeaveFrame(frame);
      }
      block->home = false;
    }
    chunk->refs.store(UINT32_MAX, std::memory_order_release);  // TakeAway looks for its block no longer
    block->chunk.store(nullptr, std::memory_order_release);
  }
  // A thread that was about to bring it sees that the block has no such chunk any more, and lets go.
  while (!engine_->FreeUnpinned(chunk)) std::this_thread::sleep_for(kNap);
}

Status PageSpace::MakeChunk(Block* block) {
  if (Status status = ChargeBlock(static_cast<size_t>(block - blocks_)); !status.ok()) return status;
  Result<Chunk*> made = engine_->Create(block_bytes_);
  if (!made.ok()) return made.status();
  Chunk* const chunk = made.value();
  chunk->refs.store(static_cast<uint32_t>(block - blocks_), std::memory_order_relaxed);
  SetBits(chunk, kPages);
  {
    const Locked locked(block);
    if (block->chunk.load(std::memory_order_relaxed) == nullptr) {
      block->blank = true;
      block->chunk.store(chunk);
      if (IsUsed(static_cast<size_t>(block - blocks_))) return Status();
      block->chunk.store(nullptr, std::memory_order_release);
    }
    chunk->refs.store(UINT32_MAX, std::memory_order_release);
  }
  engine_->Free(chunk);  // another thread was faster, or has freed the block
  return Status();
}

// Descriptors of blocks count in the memory limit as far as they are used. Two threads may charge the same: that is a page too much.
Status PageSpace::ChargeBlock(size_t number) {
  std::atomic<uint64_t>& word = charged_[number / kBlocksACharge / 64];
  const uint64_t bit = uint64_t{1} << number / kBlocksACharge % 64;
  if (word.load(std::memory_order_relaxed) & bit) return Status();
  Status status = engine_->ChargeMetadata(kBlocksACharge * sizeof(Block));
  if (status.ok()) word.fetch_or(bit, std::memory_order_relaxed);
  return status;
}

// A touch that another thread's has served, before the block was freed. Or the program uses what it has freed, again and again.
Status PageSpace::OfFreeBlock(Block* block) {
  if (faults_of_free_.fetch_add(1, std::memory_order_relaxed) >= kFaultsOfFree) EndForTheProgram("uses memory at %p that it has freed, or not allocated", static_cast<void*>(HomeOf(*block)));
  userfault_.Wake(HomeOf(*block), block_bytes_);
  return Status();
}

// Does not wait for pins in the engine, which judges by who waits there whether others may let go: a thread that the kernel keeps waiting passes for one
// that goes on.
Status PageSpace::TryBring(const void* address) {
  Block* const block = &BlockAt(address);
  for (;;) {
    Chunk* const chunk = block->chunk.load(std::memory_order_acquire);
    if (chunk == nullptr && !IsUsed(static_cast<size_t>(block - blocks_))) return OfFreeBlock(block);
    const Status status = chunk == nullptr ? MakeChunk(block) : engine_->AcquireCounted(chunk, true, Engine::WhenPinned::kReturn, &block->chunk);
    if (status.ok() && chunk != nullptr && ShowPinned(block, chunk, address)) {
      faults_.fetch_add(1, std::memory_order_relaxed);
      ShowAhead(block);
      return status;
    }
    if (!status.ok() && block->chunk.load(std::memory_order_acquire) == chunk) return status;
    // It has just been made, or was given back meanwhile.
  }
}

bool PageSpace::MayWaitOn(const Status& status, Clock::time_point since, bool* told) {
  if (Clock::now() - since < kPatienceWithPins) return true;
  if (status.code() != StatusCode::kAborted) return false;
  if (!std::exchange(*told, true)) {
    LogWarning("a thread has waited 10 s for memory for pages that it uses: adhereTos pin all of the memory limit, and it waits on until they release some. They have to "
               "end before their thread waits for another one, or uses pages");
  }
  return true;
}

Status PageSpace::Bring(const void* address) {
  const auto since = Clock::now();
  for (bool told = false;;) {
    Status status = TryBring(address);
    if (status.ok() || !PassesByItself(status) || !MayWaitOn(status, since, &told)) return status;
    std::this_thread::sleep_for(kPause);
  }
}

// Those behind `block` that are in memory, but not at home, where it goes on a sweep. Does not wait for transfers, but for one that begins just now.
void PageSpace::ShowAhead(Block* block) {
  if (block == blocks_) return;
  const Block& before = block[-1];
  const bool goes_on = BlockClockNs() - before.shown_ns.load(std::memory_order_relaxed) < std::chrono::nanoseconds(kRowRecent).count();
  auto row = static_cast<uint8_t>(goes_on ? std::min(before.row.load(std::memory_order_relaxed) + 1, int{kRowMost}) : 0);
  block->row.store(row, std::memory_order_relaxed);
  if (row < kRowLeast) return;
  const uint64_t most = std::min<uint64_t>({row, engine_->budget()->limit() / kAheadInLimit / block_bytes_, static_cast<uint64_t>(blocks_ + homes_.bytes / block_bytes_ - block) - 1});
  for (Block* next = block + 1; next <= block + most; ++next) {
    Chunk* const chunk = next->chunk.load(std::memory_order_acquire);
    // Of a chunk that is freed just now the descriptor stays readable (chunk_table.h), and AcquireCounted looks again.
    if (chunk == nullptr || PhaseOf(chunk->state.load(std::memory_order_relaxed)) != Phase::kResident) return;
    row = static_cast<uint8_t>(std::min(row + 1, int{kRowMost}));
    if (!IsInGrace(next->shown_ns.load(std::memory_order_relaxed))) {
      if (!engine_->AcquireCounted(chunk, true, Engine::WhenPinned::kReturn, &next->chunk).ok() || !ShowPinned(next, chunk, nullptr)) return;
    }
    next->row.store(row, std::memory_order_relaxed);
  }
}

// Ends the caller's counted pin. False: the block was given back meanwhile. `address`: what was touched; null: nothing yet.
bool PageSpace::ShowPinned(Block* block, Chunk* chunk, const void* address) {
  showing_.fetch_add(1, std::memory_order_relaxed);
  bool shown = false;
  {
    const Locked locked(block);
    shown = block->chunk.load(std::memory_order_relaxed) == chunk;
    if (shown) Show(block, chunk, address);
  }
  chunk->state.fetch_sub(kOneCountedPin, std::memory_order_release);
  showing_.fetch_sub(1, std::memory_order_relaxed);
  return shown;
}

// From the frame to its home. REQUIRES: locked, and the chunk is pinned. What the program writes there, nobody hears of: so it counts as changed,
// also where it was taken away between the pull and this, and its bit with it.
void PageSpace::Show(Block* block, Chunk* chunk, const void* address) {
  if (block->home && address == nullptr) return;
  if (faults_of_free_.load(std::memory_order_relaxed) != 0) faults_of_free_.store(0, std::memory_order_relaxed);
  if (block->home) {
    // Another thread was faster. Or the program has given the page back to the kernel by a call that nobody here sees.
    static_cast<void>(userfault_.Zero(address));
    userfault_.Wake(HomeOf(*block), block_bytes_);
  } else {
    auto* const frame = static_cast<std::byte*>(chunk->frame);
    if (block->blank) memset(frame, 0, block_bytes_);
    if (!NoteFrame(frame) || userfault_.Move(HomeOf(*block), frame, block_bytes_, Userfault::MayBeShared::kYes) != 0) CopyHome(block, frame);
    moves_home_.fetch_add(1, std::memory_order_relaxed);
    block->home = true;
    if (block->is_protected) HoldLocked(block);
    block->blank = false;
    SetBits(chunk, kDirty);
  }
  const int64_t now = BlockClockNs();
  block->shown_ns.store(now, std::memory_order_relaxed);
  last_shown_ns_.store(now, std::memory_order_relaxed);
}

// Where pages cannot be moved: a device or a network holds the frame's, or those at home have another protection. The frame's go back to the kernel.
void PageSpace::CopyHome(Block* block, std::byte* frame) {
  const int error = userfault_.Copy(HomeOf(*block), frame, block_bytes_);
  RS_CHECK(error == 0, "pages of block %zu cannot come home: %s", static_cast<size_t>(block - blocks_), strerror(error));
  LeaveFrame(frame);
}

// Its pages go back to the kernel, and the next ones are watched by nobody.
void PageSpace::LeaveFrame(std::byte* frame) {
  engine_->ForgetFrame({frame, block_bytes_});
  ForgetFrames({frame, block_bytes_});
  madvise(frame, block_bytes_, MADV_DONTNEED);
}

bool PageSpace::IsInGrace(int64_t shown_ns) const { return BlockClockNs() - shown_ns < std::chrono::nanoseconds(kGrace).count(); }

bool PageSpace::WillLetGo() const {
  return showing_.load(std::memory_order_relaxed) > 0 || in_calls_.load(std::memory_order_relaxed) > 0 || IsInGrace(last_shown_ns_.load(std::memory_order_relaxed));
}

// Where the chunk has no slot it is not dirty from now on. In one step: a slot that the engine gives it meanwhile makes it dirty again afterwards, because there
// is nothing in it yet.
bool PageSpace::ForgetContents(Chunk* chunk) {
  uint64_t word = chunk->state.load(std::memory_order_acquire);
  while ((word & kHasSlot) == 0) {
    if (chunk->state.compare_exchange_weak(word, word & ~kDirty, std::memory_order_acq_rel, std::memory_order_acquire)) return true;
  }
  return false;
}

// From home to the frame; false: it stays. REQUIRES: locked, and the chunk is closed.
bool PageSpace::Hide(Block* block, Chunk* chunk) {
  if (HasCountedPins(chunk) || block->held || block->calls > 0) return false;
  if (!block->home) return true;
  if (IsInGrace(block->shown_ns.load(std::memory_order_relaxed))) return false;
  if (!NoteFrame(static_cast<std::byte*>(chunk->frame)) || userfault_.Move(chunk->frame, HomeOf(*block), block_bytes_, Userfault::MayBeShared::kNo) != 0) {
    stuck_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  moves_away_.fetch_add(1, std::memory_order_relaxed);
  block->home = false;
  // Zeros without a place in swap need none: the frame is dropped as one that never had contents. (Where swap runs full the engine gives chunks their places
  // before they are written. Those are written.)
  if (!Has(chunk, kHasSlot) && IsZero(static_cast<const char*>(chunk->frame), block_bytes_) && ForgetContents(chunk)) {
    block->blank = true;
    zero_blocks_.fetch_add(1, std::memory_order_relaxed);
  }
  return true;
}

void PageSpace::TakeAway(std::span<Chunk* const> chunks, std::span<bool> pinned) {
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (pinned[i] || !Has(chunks[i], kPages)) continue;
    for (;;) {
      const uint32_t number = chunks[i]->refs.load(std::memory_order_acquire);
      if (number == UINT32_MAX) break;  // it is being given back
      Block* const block = blocks_ + number;
      const Locked locked(block);
      if (block->chunk.load(std::memory_order_relaxed) != chunks[i]) continue;  // or has another home meanwhile
      pinned[i] = !Hide(block, chunks[i]);
      break;
    }
  }
}

// Where pages are moved to has to be registered. All frames of one run of the arena's addresses are, or none is.
bool PageSpace::NoteFrame(std::byte* frame) {
  const auto page = static_cast<uint64_t>(reinterpret_cast<char*>(frame) - frames_.begin) / kPageBytes;
  if (registered_[page / 64].load(std::memory_order_relaxed) & uint64_t{1} << page % 64) return true;
  if (userfault_.Register(frame, block_bytes_) != 0) return false;  // too many mappings
  for (uint64_t p = page; p < page + block_bytes_ / kPageBytes; ++p) registered_[p / 64].fetch_or(uint64_t{1} << p % 64, std::memory_order_relaxed);
  return true;
}

void PageSpace::ForgetFrames(std::span<std::byte> frames) {
  const auto page = static_cast<uint64_t>(reinterpret_cast<char*>(frames.data()) - frames_.begin) / kPageBytes;
  bool any = false;
  for (uint64_t p = page; p < page + frames.size() / kPageBytes; ++p) {
    const uint64_t bit = uint64_t{1} << p % 64;
    if (registered_[p / 64].load(std::memory_order_relaxed) & bit) any = registered_[p / 64].fetch_and(~bit, std::memory_order_relaxed) != 0;
  }
  if (any) static_cast<void>(userfault_.Unregister(frames.data(), frames.size()));
}

PageSpace::Counters PageSpace::counters() const {
  return {.faults = faults_, .moves_home = moves_home_, .moves_away = moves_away_, .zero_blocks = zero_blocks_, .stuck = stuck_};
}

}  // namespace ramspan
