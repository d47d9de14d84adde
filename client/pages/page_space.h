// PageSpace: memory that the program uses by plain pointers and that is swapped by blocks of pages (URSL, DLM). A range of addresses, the
// *homes*, is reserved at start and cut by a buddy allocator, in *units*. A block is a unit, or, where sizes adapt (page_sizes.cc), one of several units or a
// page of one. A block that has been touched is a chunk of the engine's. Where its pages are:
//
//   chunk        pages of the block
//   none         nowhere: it has never been touched, or was given back; it reads as zeros
//   Swapped      nowhere in memory
//   Resident     at home (the program uses them there, without a fault), or in the chunk's frame
//   Loading, Writing   in the chunk's frame
//
// A touch of a page that is not at home comes to Bring (fault_server.h), which has the engine make the chunk resident and then
// moves all pages of the block from the frame to their home (UFFDIO_MOVE; copies, where the kernel has no such thing: Userfault::moves). The engine's eviction asks for pins by FindPinned; TakeAway, which is
// called there, moves the pages back from home to the frame, atomically for the program: who touches one from then on comes to Bring. So the engine
// writes and reads frames only, and no thread is ever stopped. A block stays at home for kGrace at least, in which the instruction that
// needed it runs.
//
// Thread-safety: any thread, but not on a stack of such memory (client/runtime/page_call.h): who holds the engine's mutex, or a block's lock, must not fault. A block's lock guards where its pages are, and is never held while the engine's mutex is taken. Bring and TakeAway allocate
// nothing. Ownership: of the homes; borrows the engine. Made once a process and never destroyed, for pages are used until its end.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "client/chunk/chunk.h"
#include "client/pages/bit_table.h"
#include "client/pages/heard_ring.h"
#include "client/pages/page_block.h"
#include "common/buddy_allocator.h"
#include "common/config.h"
#include "common/mutex.h"
#include "common/reserve_addresses.h"
#include "common/status.h"
#include "common/userfault.h"

namespace ramspan {

class Engine;
struct CopiedRun;

struct PageOptions {
  uint64_t block_bytes = kPageBlockAdapts;  // or a power of two from 4 KiB to 2 MiB
  FaultMode mode = FaultMode::kAuto;
  PageMoves moves = PageMoves::kAuto;
  bool has_limit_alone = false;  // a program that knows nothing of Ramspan: it has no other objects, which need frames beside descriptors of pages
};

class PageSpace {
 public:
  // kUnavailable, kInvalidArgument: with the remedy.
  static Result<std::unique_ptr<PageSpace>> Create(Engine* engine, const PageOptions& options);

  // Zeros, of which each block takes memory from its first touch on. `alignment` is a power of two. Null: no addresses are left, or none that are aligned so. Does not block.
  void* Allocate(size_t bytes, size_t alignment);
  // REQUIRES: `begin` came from Allocate, and nobody uses it any more.
  void Free(void* begin);
  // As asked of Allocate. REQUIRES: as Free.
  size_t BytesOf(const void* begin) const { return OfUnit(UnitOf(begin)).bytes.load(std::memory_order_relaxed); }
  // Whether it is an address of a home. Any address may be asked for.
  bool Owns(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(homes_.begin) < homes_.bytes;
  }
  // What is at `begin` is at the result, which has `bytes`; what is new there is zeros. Blocks change their homes, wherever their data is: nothing is read,
  // written or copied. Null: no addresses are left, and nothing was done. REQUIRES: as Free.
  void* Reallocate(void* begin, size_t bytes);
  // Zeros from now on; whole blocks give their memory back. REQUIRES: all of it is allocated.
  void Discard(void* begin, size_t bytes);
  // The same, and the addresses of whole blocks are given back (munmap). They may be of several allocations, and parts of them, which are no more Free's
  // and Reallocate's then.
  void Release(void* begin, size_t bytes);
  // Whole pages that the program maps again, of which some may have been given back (Release) and the rest of their units be about to; what is there stays as it is. False: not all of it
  // is allocated, and nothing was done.
  bool TakeAgain(void* begin, size_t bytes);
  // Whether all of the range is allocated.
  bool IsUsed(const void* begin, size_t bytes) const;
  // How many bytes from `begin` on are in allocated blocks, `bytes` at most, and whether pages of one of those blocks have another protection.
  size_t UsedBytesFrom(const void* begin, size_t bytes, bool* are_protected) const;
  // The blocks of the range's pages are at home until Unlock of those, or until they are given back; what has not been touched comes, too, or, where not `untouched_too`, is so
  // from when it is. Blocks. As Bring; kResourceExhausted, with nothing locked, where more than half of the memory limit would be held.
  Status Lock(void* begin, size_t bytes, bool untouched_too);
  void Unlock(void* begin, size_t bytes);
  // Whether a forked child has what is at home here from its first instruction on, and not only once its handlers of forks have run. Whole blocks: each is one mapping. REQUIRES: where `is_inherited`, all of them are locked, else others' children would find zeros.
  void SetInherited(const void* begin, size_t bytes, bool is_inherited) const;
  // mprotect(2), of whole pages. Those that are not readable and writable cannot be moved: their blocks are at home, as if they were locked, until all of their pages are plain again.
  // errno; 0 is success, and else what is before may be done. Blocks. ENOMEM: as Lock.
  int Protect(void* begin, size_t bytes, int protection);
  // mlockall(2), with MCL_CURRENT and MCL_ONFAULT, but for what is swapped, and its frames. errno.
  int LockOthers() const;
  // Whether the program has made pages there that it may not use so. In kProtect, where a touch of those is no other than of what has left.
  bool IsRefusedByProgram(const void* address) const;
  // For a system call on the range, where the kernel's own accesses are not served: how many bytes from `begin` on are at home, and stay there until
  // UnpinForCall gets the same. At most `bytes`, and a part of the memory limit; 0: the first block cannot be brought. Blocks. As Bring otherwise.
  size_t PinForCall(const void* begin, size_t bytes);
  void UnpinForCall(const void* begin, size_t bytes);
  // All of it as it is, at its distance from the first home, for a forked child: what is not allocated, or was never touched, is a hole. And the rights of pages that have others. Blocks, and brings what has left. Errors: of the file; as Bring.
  Status CopyTo(int fd, std::vector<CopiedRun>* runs);
  // The same of the block that is `at` bytes from the first home: to `offset`; to the block's own distance, where that is kAtHome.
  Status CopyBlockTo(int fd, uint64_t at, uint64_t offset, CopiedRun* run);
  static constexpr uint64_t kAtHome = UINT64_MAX;
  static Status WriteTo(int fd, const void* begin, size_t bytes, uint64_t offset);  // what belongs to that copy beside
  // Of blocks that have been touched.
  uint64_t touched_bytes() const { return touched_bytes_.load(std::memory_order_relaxed); }
  bool IsProtected(const void* address) const { return BlockAt(address).is_protected; }
  // The chunks of what is there of the range, for advice, and where they are named as long as they are that.
  template <typename F>
  void ForEachChunk(const void* begin, size_t bytes, const F& f) const {
    for (const char *at = static_cast<const char*>(begin), *const end = at + std::min<uint64_t>(bytes, homes_.bytes - OffsetOf(at)); at < end;) {
      const Sized one = At(at);
      if (Chunk* chunk = one.block->chunk.load(std::memory_order_acquire)) f(chunk, &one.block->chunk);
      at = one.home + one.bytes;
    }
  }

  // One attempt: also kAborted, where others pin all of memory just now. It does not wait for them, because who serves many threads must not: the one that
  // holds the pins may be waiting for a page, too.
  Status TryBring(const void* address);
  static bool PassesByItself(const Status& status) {
    return status.code() == StatusCode::kAborted || status.code() == StatusCode::kFailedPrecondition || status.code() == StatusCode::kUnavailable;
  }
  // Says in the log, once, what a thread waits for; whether it may wait on.
  bool MayWaitOn(const Status& status, std::chrono::steady_clock::time_point since, bool* told) const;
  static constexpr auto kPause = std::chrono::microseconds(200);  // until the next attempt
  // The block that `address` is in is at home when this returns OK. Blocks. REQUIRES: Owns(address).
  // kFailedPrecondition: what is in use fills the memory limit; kResourceExhausted: swap is full; kDataLoss; kUnavailable.
  Status Bring(const void* address);
  // For PinScanner::FindPinned: those of the chunks that are blocks of pages and may leave are in their frames afterwards; the others are pinned.
  void TakeAway(std::span<Chunk* const> chunks, std::span<bool> pinned);
  // Whether some block is at home for its grace only, or pinned for a moment: memory becomes free soon.
  bool WillLetGo() const;
  // A fault where a frame should be: it gets zeros. Nobody reads a frame that is empty, but if somebody did he would wait for ever.
  bool OwnsFrame(const void* address) const { return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(frames_.begin) < frames_.bytes; }
  // For before frames' pages go back to the kernel.
  void ForgetFrames(std::span<std::byte> frames);

  // A forked child has frames, but no homes: what is in frames only to be heard of comes home before a fork, stays there during it, and goes back.
  void CountForks(int more) { forks_.fetch_add(static_cast<uint32_t>(more)); }
  void ShowHidden();
  void HideShown();

  // What the program says of its use: a first guess of its blocks' size, where that adapts. Of parts that are much smaller than an area nothing is learned.
  void ExpectUse(const void* begin, size_t bytes, bool is_random);

  AddressRange homes() const { return homes_; }
  Userfault& userfault() { return userfault_; }
  uint64_t unit_bytes() const { return unit_bytes_; }
  bool adapts() const { return adapts_; }
  struct Counters {
    uint64_t faults = 0;       // that Bring has served
    uint64_t moves_home = 0, moves_away = 0;  // blocks
    uint64_t zero_blocks = 0;  // that left as a mark
    uint64_t stuck = 0;        // times that a block could not leave: the kernel, or a device, held its pages
    uint64_t merges = 0, splits = 0;  // of blocks, to one of another size, or to several
    uint64_t cramped = 0;             // units that came where pages were wanted, for whose descriptors there was no room
  };
  Counters counters() const;

 private:
  using Clock = std::chrono::steady_clock;
  // Times a block's move to its home and a wake-up: below it a thread might lose the block again before its instruction has run; at ten times
  // of it, limits of a few dozens of blocks are used up by blocks in their grace.
  static constexpr auto kGrace = std::chrono::microseconds(300);
  // In a sweep, blocks that have been read ahead come home with the one before them, as the kernel maps what is around a page of a file.
  static constexpr uint8_t kRowLeast = 2, kRowMost = 8;
  static constexpr int kRowPasses = 8;
  static constexpr auto kRowRecent = std::chrono::milliseconds(50);
  static constexpr uint64_t kRowInMemory = 2;  // and while this part of memory was used anew
  static constexpr uint64_t kAheadInLimit = 32;  // all of them are at most this part of the memory limit
  static constexpr uint64_t kCallInLimit = 16, kCallsInLimit = 4;  // the same, of what one system call, and all that are under way, keep at home

  using Block = PageBlock;
  using Locked = PageBlock::Locked;
  static constexpr auto kNap = PageBlock::kNap;
  // A block of its size, as it was when somebody looked.
  struct Sized {
    Block* block;
    char* home;
    uint64_t bytes;
    char* end() const { return home + bytes; }
  };
  // The block that `address` is in, whose size does not change as long as it is locked.
  class LockedAt : public Sized {
   public:
    LockedAt(const PageSpace* space, const void* address) : Sized(space->At(address)) {
      for (;;) {
        block->Lock();
        const Sized now = space->At(address);
        Block* const before = std::exchange(block, now.block);
        bytes = now.bytes;
        home = now.home;
        if (before == block) return;
        before->Unlock();
      }
    }
    ~LockedAt() { block->Unlock(); }
    LockedAt(const LockedAt&) = delete;
    LockedAt& operator=(const LockedAt&) = delete;
  };
  // For what the program does wrong, not Ramspan.
  [[noreturn, gnu::format(printf, 1, 2)]] static void EndForTheProgram(const char* format, ...);

  PageSpace(Engine* engine, const PageOptions& options);
  Status Open(const PageOptions& options);
  bool ReserveTables();
  Status CheckMappings() const;
  // Units, pages and descriptors, by number. A descriptor is that of the block that begins with its page. Within an area the numbers' bits are reversed, so that those of blocks of one
  // size lie side by side, and those of pages that never are a block take no memory.
  size_t UnitOf(const void* address) const { return OffsetOf(address) / unit_bytes_; }
  uint64_t OffsetOf(const void* address) const { return static_cast<uint64_t>(static_cast<const char*>(address) - homes_.begin); }
  size_t UnitsFor(size_t bytes) const { return bytes == 0 ? 1 : bytes / unit_bytes_ + (bytes % unit_bytes_ != 0 ? 1 : 0); }
  char* HomeOfUnit(size_t unit) const { return homes_.begin + unit * unit_bytes_; }
  static constexpr int kAreaBits = 13;  // of its pages: 32 MiB
  static constexpr uint64_t kAreaBytes = kPageBytes << kAreaBits;
  static size_t Reversed(size_t page) {
    page = (page & 0x5555) << 1 | (page >> 1 & 0x5555);
    page = (page & 0x3333) << 2 | (page >> 2 & 0x3333);
    page = (page & 0x0f0f) << 4 | (page >> 4 & 0x0f0f);
    page = (page & 0x00ff) << 8 | (page >> 8 & 0x00ff);
    return page >> (16 - kAreaBits);
  }
  size_t NumberOf(uint64_t offset) const {
    const size_t page = offset / kPageBytes;
    return (page >> kAreaBits << area_entry_bits_) + Reversed(page & ((size_t{1} << kAreaBits) - 1));
  }
  char* HomeOf(const Block& block) const {
    const auto number = static_cast<size_t>(&block - blocks_);
    return homes_.begin + ((number >> area_entry_bits_ << kAreaBits) + Reversed(number & ((size_t{1} << area_entry_bits_) - 1))) * kPageBytes;
  }
  Block& OfUnit(size_t unit) const { return blocks_[NumberOf(unit * unit_bytes_)]; }
  Sized At(const void* address) const {
    const uint64_t offset = OffsetOf(address), bytes = adapts_ ? sizes_[sizes_of_[offset / unit_bytes_].load()] : unit_bytes_, first = offset & -bytes;
    return {&blocks_[NumberOf(first)], homes_.begin + first, bytes};
  }
  bool IsStill(const Sized& one) const {
    const Sized now = At(one.home);
    return now.block == one.block && now.bytes == one.bytes;
  }
  Block& BlockAt(const void* address) const { return *At(address).block; }
  Status MakeChunk(const void* address);
  Status OfFreeBlock(const void* address);
  // How it came home for somebody: he found it there, or it had its first touch; from swap, or where an eviction had begun; from where it was hidden to be heard of.
  enum class Came { kWasThere, kFromSwap, kHeard };
  bool ShowPinned(Block* block, Chunk* chunk, const void* address, Came* came);
  Came Show(Block* block, Chunk* chunk, const void* address);
  void NoteRow(const Sized& block);
  static uint8_t RowAfter(uint8_t row) { return row == UINT8_MAX ? row : static_cast<uint8_t>(row + 1); }
  void ShowAhead(const Sized& block);
  int MoveHome(char* home, std::byte* frame, uint64_t bytes);
  int MoveAway(char* home, std::byte* frame, uint64_t bytes);
  void CopyHome(char* home, std::byte* frame, uint64_t bytes, int move_error);
  void LeaveFrame(std::byte* frame, uint64_t bytes);
  char* Clear(char* begin, char* end);
  bool Hide(Block* block, Chunk* chunk);
  static bool HasToStay(const Block* block, const Chunk* chunk);
  bool LeaveHome(Block* block, const Chunk* chunk);
  static bool ForgetContents(Chunk* chunk);
  bool IsInGrace(int64_t shown_ns) const;
  bool DropChunk(const Sized& one, bool if_unused = false);
  void FreeChunk(Chunk* chunk);
  static bool IsZero(const char* begin, size_t bytes);
  uint32_t FaultsNow() const { return static_cast<uint32_t>(faults_.load(std::memory_order_relaxed)) | 1; }  // never 0
  bool IsUsed(size_t number) const { return used_[number]; }
  void MarkUsed(size_t first, size_t end, bool used);
  size_t PageOf(const void* home) const { return (reinterpret_cast<uintptr_t>(home) - reinterpret_cast<uintptr_t>(homes_.begin)) / kPageBytes; }
  char* Behind64(const char* home) const { return homes_.begin + (PageOf(home) / 64 + 1) * 64 * kPageBytes; }  // the pages of a word of rights_ and locks_
  void AddProtections(size_t units, std::vector<CopiedRun>* runs) const;
  int CopyHomeTo(int fd, uint64_t offset, char* home, uint64_t bytes);
  // Bytes of a unit that were asked for; 0: it is free.
  uint64_t UsedBytes(size_t number) const {
    const uint32_t tail = OfUnit(number).tail.load(std::memory_order_relaxed);
    return !IsUsed(number) ? 0 : tail != 0 ? tail : unit_bytes_;
  }
  void SetUsed(size_t first, size_t bytes);
  void NoteTaken(const char* begin, size_t bytes);
  bool IsLastGivenBack(const char* begin, size_t bytes);
  // Whether a block comes as a mapping of its own: with what rights that has, not those of its home.
  bool ComesWithRights() const { return userfault_.mode() == FaultMode::kProtect; }
  void CountHeld(const Sized& block);
  uint64_t HeldMost() const;  // bytes
  bool MayHold(const char* begin, size_t bytes, bool untouched_too) const;
  int ProtectIn(char* at, char* end, int protection, char** next);
  bool LeavePlain(char* begin, size_t bytes);
  void FillHoles(const Sized& block, const char* begin, const char* end);
  bool Rehome(char* from, char* to, uint64_t most, uint64_t* bytes);
  void MatchSizes(char* from, char* to);
  void SplitEdges(char* begin, char* end);
  Status ClearFreed(const Sized& one, char* begin, char* end);
  void FreeUnits(size_t first, size_t end);
  bool DropChunks(char* begin, char* end);
  Status ChargeBlock(const Block* block);
  bool NoteFrame(std::byte* frame, uint64_t bytes);

  // Sizes that adapt (page_sizes.cc), as an area's use asks for them (page_judging.cc).
  enum Size : uint8_t { kUnit, kPage, kLarge, kSizes };  // kUnit is what a unit has at first
  struct Area {
    std::atomic<uint8_t> wanted{kUnit};
    std::atomic<bool> keeps{false};  // sizes: a thread's stack is in it, whose blocks are not to go while it is in here
    std::atomic<uint8_t> begun{0}, failures{0};  // faults were there; times that a smaller size was none for long
    std::atomic<int16_t> score{0};               // of the faults that show which size it should be
    std::atomic<uint16_t> units{0};              // that came since its blocks have been units
    std::atomic<uint16_t> pages{0}, visits{0};   // of units that are watched: pages that came, and times that one came of which no other had come lately
    std::atomic<uint16_t> larges{0};             // that came since the last trial
    std::atomic<uint8_t> trials{0};              // times that large blocks became units to see how full these are, and these were not sparse
    std::atomic<bool> on_trial{false};
    std::atomic<bool> is_doubted{false};         // it is tried because large blocks were used here and there: a trial without a verdict leaves it as it is
    std::atomic<uint32_t> not_before{0};         // by the count of faults: no size changes
  };
  Area& AreaOf(const void* address) const { return areas_[OffsetOf(address) / kAreaBytes]; }
  Size Wanted(const Area& area) const;
  bool BeginsLarger(const Sized& block) const;
  bool MayBeLarge(const void* address) const;
  bool IsFullOfDescriptors() const;
  void Adapt(const void* address);
  void Judge(const Sized& block, Came came);
  bool IsWatched(size_t unit) const;
  Size WantedAt(const Area& area, const void* address) const;
  void CountArrival(const Sized& block);
  enum Fullness : uint8_t { kUnknown, kSparse, kHalf, kDense };
  Fullness FullnessOf(const Area& area) const;
  int PagesThatCame(const void* address, uint32_t now) const;
  static void Turn(Area* area, Size next);
  static void Try(Area* area);
  bool CameNear(const void* address, uint32_t now, uint32_t near) const;
  void KeepSizes(const void* address) const {
    if (adapts_) AreaOf(address).keeps.store(true, std::memory_order_relaxed);
  }
  bool IsAnyInGrace(const char* begin, uint64_t bytes) const;
  bool IsOneAllocation(const char* begin, uint64_t bytes) const;
  bool Resize(char* begin, Size from, Size to);
  static bool SumParts(Block* block, const Chunk* chunk, std::span<Chunk* const> parts);
  bool Exchange(char* begin, Size from, Size to, bool is_cut);
  bool SplitLarge(char* address);
  void SetSizes(char* begin, uint64_t bytes, Size size);
  void ResetSizes(char* begin, char* end);
  class Converting;

  // What policies hear of uses at home (page_hearing.cc).
  bool IsHeardOf(uint64_t bytes) const;
  void NoteHeard(const Sized& block, Came came);
  void HideToHear(Block* block);
  void NoteHidden(const char* home);
  template <typename F>
  void ForEachInHidden(F f);
  bool IsHeardOnly(const Sized& block) const;

  Engine* const engine_;
  const bool adapts_, is_restless_, has_limit_alone_;
  const uint64_t unit_bytes_;
  int area_entry_bits_ = kAreaBits;  // of the numbers of an area's descriptors
  uint64_t sizes_[kSizes] = {};      // bytes of blocks
  std::atomic<uint8_t>* sizes_of_ = nullptr;  // by unit
  Area* areas_ = nullptr;
  std::atomic<bool> converts_{false};  // somebody changes sizes, who may use what follows
  static constexpr size_t kPiecesMost = 32;
  Chunk* of_old_[kPiecesMost] = {};
  Chunk* of_new_[kPiecesMost] = {};
  Block* olds_[kPiecesMost] = {};
  bool is_used_[kPiecesMost] = {};  // of the new ones: they get a block
  HeardRing heard_;
  BitTable hidden_;                 // by area: a block of it was hidden, and perhaps still is
  std::atomic<uint32_t> forks_{0};  // under way. In the total order with hidden_
  Userfault userfault_;
  AddressRange homes_, table_, frames_;
  Block* blocks_ = nullptr;
  BitTable registered_;  // by page of the arena's addresses
  Mutex mutex_{LockRank::kMetadata};
  std::unique_ptr<BuddyAllocator> free_blocks_ RS_GUARDED_BY(mutex_);
  // By unit. In the total order with the blocks' `chunk`: who makes a chunk stores it and then looks whether the block is free, who frees a block
  // says so and then looks for a chunk, so at least one of them sees the other.
  BitTable used_;
  std::atomic<uint64_t> used_end_{0};     // behind the last unit that ever was used
  std::atomic<uint64_t> touched_bytes_{0};
  BitTable given_back_;      // by page of the homes: by Release, of a unit of which other pages are not
  std::atomic<bool> gives_back_{false};  // some ever were
  BitTable rights_, locks_;  // by page of the homes: it is not readable and writable; it is locked. Changed with its block's `locked`
  std::atomic<uint64_t>* charged_ = nullptr;  // a bit for each kBlocksACharge descriptors that count in the memory limit
  uint64_t alignment_ = 0;  // of the homes' begin
  std::atomic<uint64_t> held_{0}, in_calls_{0};  // bytes
  std::atomic<uint32_t> faults_of_free_{0};  // in a row
  std::atomic<int64_t> last_shown_ns_{0};
  std::atomic<uint32_t> showing_{0};
  mutable std::atomic<uint64_t> faults_{0}, moves_home_{0}, moves_away_{0}, zero_blocks_{0}, stuck_{0}, merges_{0}, splits_{0}, cramped_{0};
};

}  // namespace ramspan
