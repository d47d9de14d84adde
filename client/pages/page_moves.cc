// PageSpace, second part: blocks that come home, and leave.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "client/engine/engine.h"
#include "client/pages/page_space.h"
#include "common/check.h"
#include "common/huge_page.h"
#include "common/log.h"

namespace ramspan {
namespace {

constexpr uint32_t kFaultsOfFree = 100'000;  // in blocks that nobody has allocated: late ones are a few
// What fills the memory limit may be blocks in their grace, and frames of those that are being brought.
constexpr auto kPatienceWithPins = std::chrono::seconds(10);
constexpr std::chrono::steady_clock::duration kWaitsToldEvery = std::chrono::minutes(1);

int64_t BlockClockNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

// Most memory differs from zero within its first bytes.
bool PageSpace::IsZero(const char* begin, size_t bytes) {
  const auto* const words = reinterpret_cast<const uint64_t*>(begin);
  const size_t count = bytes / sizeof(uint64_t);
  return std::all_of(words, words + count, [](uint64_t word) { return word == 0; });
}

// The frame goes back to the arena with its pages. False: it is of another size meanwhile, and nothing was done.
bool PageSpace::DropChunk(const Sized& one, bool if_unused) {
  Block* const block = one.block;
  Chunk* chunk = nullptr;
  for (bool copied = false, first = true; copied || first; first = false) {
    if (copied) std::this_thread::sleep_for(kNap);
    const Locked locked(block);
    if (!IsStill(one)) return false;
    chunk = block->chunk.load(std::memory_order_relaxed);
    if (chunk == nullptr) return true;
    copied = block->is_copied;
    if (copied) continue;
    if (if_unused) {
      // Who has got a part of it meanwhile has said so before he wrote there; from now on he has to wait for this lock.
      if (block->held || block->calls > 0 || (block->home && MoveAway(one.home, static_cast<std::byte*>(chunk->frame), one.bytes) != 0)) return false;
      block->home = false;
      if (used_.Any(UnitOf(one.home), UnitOf(one.end() - 1) + 1)) return false;
    }
    if (block->home) {
      auto* const frame = static_cast<std::byte*>(chunk->frame);
      // Pages that a device holds stay its own until it lets them go. The frame gets others when it is written to, which nobody watches any more.
      if (block->is_protected || !userfault_.moves() || MoveAway(one.home, frame, one.bytes) != 0) {
        static_cast<void>(userfault_.Drop(one.home, one.bytes));
        LeaveFrame(frame, one.bytes);
      }
      block->home = false;
      CountHeld(one);
    }
    chunk->refs.store(UINT32_MAX, std::memory_order_release);  // TakeAway looks for its block no longer
    block->is_hidden = false;
    block->chunk.store(nullptr, std::memory_order_release);
    touched_bytes_.fetch_sub(one.bytes, std::memory_order_relaxed);
  }
  // A thread that was about to bring it sees that the block has no such chunk any more, and lets go.
  FreeChunk(chunk);
  return true;
}

void PageSpace::FreeChunk(Chunk* chunk) {
  while (!engine_->FreeUnpinned(chunk)) std::this_thread::sleep_for(kNap);
}

Status PageSpace::MakeChunk(const void* address) {
  const Sized one = At(address);
  if (Status status = ChargeBlock(one.block); !status.ok()) return status;
  Result<Chunk*> made = engine_->Create(one.bytes);
  if (!made.ok()) return made.status();
  Chunk* const chunk = made.value();
  chunk->refs.store(static_cast<uint32_t>(one.block - blocks_), std::memory_order_relaxed);
  SetBits(chunk, kPages);
  {
    const Locked locked(one.block);
    if (IsStill(one) && one.block->chunk.load(std::memory_order_relaxed) == nullptr) {
      one.block->blank = true;
      one.block->is_hidden = false;
      one.block->chunk.store(chunk);
      if (IsUsed(UnitOf(address))) return touched_bytes_.fetch_add(one.bytes, std::memory_order_relaxed), Status();
      one.block->chunk.store(nullptr, std::memory_order_release);
    }
    chunk->refs.store(UINT32_MAX, std::memory_order_release);
  }
  FreeChunk(chunk);  // another thread was faster, or has freed the block
  return Status();
}

// A touch that another thread's has served, before the block was freed. Or the program uses what it has freed, again and again.
Status PageSpace::OfFreeBlock(const void* address) {
  if (faults_of_free_.fetch_add(1, std::memory_order_relaxed) >= kFaultsOfFree) EndForTheProgram("uses memory at %p that it has freed, or not allocated", address);
  userfault_.Wake(HomeOfUnit(UnitOf(address)), unit_bytes_);
  return Status();
}

// Does not wait for pins in the engine, which judges by who waits there whether others may let go: a thread that the kernel keeps waiting passes for one
// that goes on.
Status PageSpace::TryBring(const void* address) {
  if (adapts_) Adapt(address);
  for (;;) {
    const Sized one = At(address);
    Chunk* const chunk = one.block->chunk.load(std::memory_order_acquire);
    if (chunk == nullptr && !IsUsed(UnitOf(address))) return OfFreeBlock(address);
    const Status status = chunk == nullptr ? MakeChunk(address) : engine_->AcquireCounted(chunk, true, Engine::WhenPinned::kReturn, &one.block->chunk);
    Came came;
    if (status.ok() && chunk != nullptr && ShowPinned(one.block, chunk, address, &came)) {
      faults_.fetch_add(1, std::memory_order_relaxed);
      NoteRow(one);
      if (adapts_ && came != Came::kHeard) Judge(one, came);
      ShowAhead(one);
      NoteHeard(one, came);
      return status;
    }
    if (!status.ok() && one.block->chunk.load(std::memory_order_acquire) == chunk) return status;
    // It has just been made, or was given back meanwhile, or is of another size.
  }
}

bool PageSpace::MayWaitOn(const Status& status, Clock::time_point since, bool* told) const {
  if (Clock::now() - since < kPatienceWithPins) return true;
  // What was locked before it was touched, or has less room since descriptors of blocks have taken more of the limit.
  if (const uint64_t held = held_.load(std::memory_order_relaxed); held > std::min(HeldMost(), engine_->budget()->frames_limit() * 7 / 8)) {
    EndForTheProgram("has locked or protected (mlock, mlockall, mprotect) %llu MiB of memory that it uses: it has to stay in memory, and fills the memory limit (--memory), or what descriptors of blocks leave of it",
                     static_cast<unsigned long long>(held >> 20));
  }
  if (status.code() != StatusCode::kAborted) return false;
  // Of a thousand that wait one speaks for all.
  static std::atomic<Clock::duration> last{-kWaitsToldEvery};
  auto before = last.load(std::memory_order_relaxed);
  const auto now = Clock::now().time_since_epoch();
  if (!std::exchange(*told, true) && now - before >= kWaitsToldEvery && last.compare_exchange_strong(before, now, std::memory_order_relaxed)) {
    LogWarning("a thread has waited 10 s for memory for pages that it uses: what others hold (adhereTos, system calls), or use at the same time (many threads), fills the memory limit, or swap has no room for what could leave, "
               "and it waits on until that changes. adhereTos have to end before their thread waits for another one, or uses pages. Remedy: a larger limit (--memory), or more swap");
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

// A sweep passes over what is at home still, of which nothing is heard.
void PageSpace::NoteRow(const Sized& block) {
  const int64_t since = BlockClockNs() - std::chrono::nanoseconds(kRowRecent).count();
  // Not by the time alone: where faults are fast and memory is small, all that is there came within it. Nor by few faults: of many threads that sweep at once, each comes when others have had hundreds.
  const auto lately = static_cast<uint32_t>(std::min<uint64_t>(engine_->budget()->limit() / block.bytes / kRowInMemory, INT32_MAX));
  uint8_t row = 0;
  Sized before = block;
  for (int i = 0; i <= kRowPasses && before.home > homes_.begin; ++i) {
    before = At(before.home - 1);
    if (before.block->shown_ns.load(std::memory_order_relaxed) > since && CameNear(before.home, FaultsNow(), lately)) {
      row = RowAfter(before.block->row.load(std::memory_order_relaxed));
      break;
    }
    const Chunk* const chunk = before.block->chunk.load(std::memory_order_acquire);
    if (chunk == nullptr || PhaseOf(chunk->state.load(std::memory_order_relaxed)) != Phase::kResident) break;
  }
  block.block->row.store(row, std::memory_order_relaxed);
}

// Those behind `block` that are in memory, but not at home, where it goes on a sweep. Does not wait for transfers, but for one that begins just now.
void PageSpace::ShowAhead(const Sized& block) {
  uint8_t row = block.block->row.load(std::memory_order_relaxed);
  if (row < kRowLeast) return;
  const uint64_t most = std::min<uint64_t>(std::min(row, kRowMost), engine_->budget()->limit() / kAheadInLimit / block.bytes);
  Sized next = block;
  for (uint64_t i = 0; i < most && next.end() < homes_.begin + homes_.bytes; ++i) {
    next = At(next.end());
    Chunk* const chunk = next.block->chunk.load(std::memory_order_acquire);
    // Of a chunk that is freed just now the descriptor stays readable (chunk_table.h), and AcquireCounted looks again.
    if (chunk == nullptr || next.bytes > block.bytes || (adapts_ && (BeginsLarger(next) || next.bytes > sizes_[WantedAt(AreaOf(next.home), next.home)])) || PhaseOf(chunk->state.load(std::memory_order_relaxed)) != Phase::kResident) return;
    row = RowAfter(row);
    // Who serves faults may be late, and the program have passed it already: no use is to be heard then.
    if (!next.block->home.load(std::memory_order_relaxed)) {
      Came came;
      if (!engine_->AcquireCounted(chunk, true, Engine::WhenPinned::kReturn, &next.block->chunk).ok() || !ShowPinned(next.block, chunk, nullptr, &came)) return;
      NoteHeard(next, came);
      if (adapts_ && came != Came::kHeard) CountArrival(next);
    }
    next.block->row.store(row, std::memory_order_relaxed);
  }
}

// Ends the caller's counted pin. False: the block was given back meanwhile. `address`: what was touched; null: nothing yet.
bool PageSpace::ShowPinned(Block* block, Chunk* chunk, const void* address, Came* came) {
  showing_.fetch_add(1, std::memory_order_relaxed);
  bool shown = false;
  {
    const Locked locked(block);
    // Of a block that has just become several the first one has its descriptor: what was touched may be in another one.
    shown = block->chunk.load(std::memory_order_relaxed) == chunk && (address == nullptr || static_cast<size_t>(static_cast<const char*>(address) - HomeOf(*block)) < chunk->bytes);
    if (shown) *came = Show(block, chunk, address);
  }
  chunk->state.fetch_sub(kOneCountedPin, std::memory_order_release);
  showing_.fetch_sub(1, std::memory_order_relaxed);
  return shown;
}

// From the frame to its home. REQUIRES: locked, and the chunk is pinned. What the program writes there, nobody hears of: so it counts as changed,
// also where it was taken away between the pull and this, and its bit with it.
PageSpace::Came PageSpace::Show(Block* block, Chunk* chunk, const void* address) {
  if (block->home && address == nullptr) return Came::kWasThere;
  const Came came = block->home || block->blank ? Came::kWasThere : block->is_hidden ? Came::kHeard : Came::kFromSwap;
  if (faults_of_free_.load(std::memory_order_relaxed) != 0) faults_of_free_.store(0, std::memory_order_relaxed);
  char* const home = HomeOf(*block);
  const uint64_t bytes = chunk->bytes;
  if (block->home) {
    // Another thread was faster. Or the program has given the page back to the kernel by a call that nobody here sees.
    userfault_.FillHole(address);
    userfault_.Wake(home, bytes);
  } else {
    auto* const frame = static_cast<std::byte*>(chunk->frame);
    if (block->blank && !userfault_.moves() && userfault_.Zero(home, bytes) == 0) {
      LeaveFrame(frame, bytes);
    } else {
      if (block->blank) {
        if (adapts_ && bytes >= kHugePageBytes) LeaveFrame(frame, bytes);  // else it may have the pages of small ones
        memset(frame, 0, bytes);
      }
      if (const int error = MoveHome(home, frame, bytes); error != 0) CopyHome(home, frame, bytes, error);
    }
    moves_home_.fetch_add(1, std::memory_order_relaxed);
    block->home = true;
    CountHeld({block, home, bytes});
    block->blank = block->is_hidden = false;
    SetBits(chunk, kDirty);
  }
  const int64_t now = BlockClockNs();
  block->shown_ns.store(now, std::memory_order_relaxed);
  last_shown_ns_.store(now, std::memory_order_relaxed);
  block->shown_at.store(FaultsNow(), std::memory_order_relaxed);
  return came;
}

int PageSpace::MoveHome(char* home, std::byte* frame, uint64_t bytes) {
  if (!userfault_.moves() || !NoteFrame(frame, bytes)) return ENOTSUP;
  if (bytes >= kHugePageBytes) Userfault::FreeTables(home, bytes);  // the fault's
  return userfault_.Move(home, frame, bytes, Userfault::MayBeShared::kYes);
}

// The frame has no pages, and no network knows any.
int PageSpace::MoveAway(char* home, std::byte* frame, uint64_t bytes) {
  if (!userfault_.moves()) return userfault_.TakeAway(frame, home, bytes);
  if (!NoteFrame(frame, bytes)) return ENOMEM;
  return userfault_.Move(frame, home, bytes, Userfault::MayBeShared::kNo);
}

// Where pages cannot be moved: a device or a network holds the frame's, or those at home have another protection. The frame's go back to the kernel.
void PageSpace::CopyHome(char* home, std::byte* frame, uint64_t bytes, int move_error) {
  size_t done = 0;
  int error = userfault_.Copy(home, frame, bytes, &done);
  if (error == ENOMEM && ComesWithRights()) {
    EndForTheProgram("has too many mappings (sysctl vm.max_map_count), or no addresses left (ulimit -v), for its memory that is swapped by pages: without userfaultfd each block of %llu KiB is a mapping. Larger blocks (--page-block) need fewer",
                     static_cast<unsigned long long>(bytes >> 10));
  }
  while (error != 0) {
    // A page that is home already: it was moved, and could not be moved back. (What was copied just now the program may have changed since.)
    const bool is_home = error == EEXIST && (!Userfault::IsThere(frame + done) || memcmp(home + done, frame + done, kPageBytes) == 0);
    RS_CHECK(is_home, "page %zu of the block of %zu bytes at %p can neither be moved home (error %d) nor copied (error %d); a page is there: %d, and in its frame: %d", done / kPageBytes,
             static_cast<size_t>(bytes), static_cast<void*>(home), move_error, error, Userfault::IsThere(home + done), Userfault::IsThere(frame + done));
    done += kPageBytes;
    size_t more = 0;
    error = done < bytes ? userfault_.Copy(home + done, frame + done, bytes - done, &more) : 0;
    done += more;
  }
  LeaveFrame(frame, bytes);
}

// Its pages go back to the kernel, and the next ones are watched by nobody.
void PageSpace::LeaveFrame(std::byte* frame, uint64_t bytes) {
  engine_->ForgetFrame({frame, bytes});
  ForgetFrames({frame, bytes});
  static_cast<void>(userfault_.Empty(frame, bytes));
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

bool PageSpace::HasToStay(const Block* block, const Chunk* chunk) { return HasCountedPins(chunk) || block->held || block->calls > 0; }

// False: somebody holds its pages, and it stays. REQUIRES: locked, and it is at home.
bool PageSpace::LeaveHome(Block* block, const Chunk* chunk) {
  const bool done = MoveAway(HomeOf(*block), static_cast<std::byte*>(chunk->frame), chunk->bytes) == 0;
  (done ? moves_away_ : stuck_).fetch_add(1, std::memory_order_relaxed);
  if (done) block->home = false;
  return done;
}

// From home to the frame; false: it stays. REQUIRES: locked, and the chunk is closed.
bool PageSpace::Hide(Block* block, Chunk* chunk) {
  if (HasToStay(block, chunk)) return false;
  block->is_hidden = false;
  if (block->blank && !block->home) return true;
  if (block->home) {
    if (IsInGrace(block->shown_ns.load(std::memory_order_relaxed)) || !LeaveHome(block, chunk)) return false;
  }
  // Zeros without a place in swap need none: the frame is dropped as one that never had contents. (Where swap runs full the engine gives chunks their places
  // before they are written. Those are written.)
  if (!Has(chunk, kHasSlot) && IsZero(static_cast<const char*>(chunk->frame), chunk->bytes) && ForgetContents(chunk)) {
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
bool PageSpace::NoteFrame(std::byte* frame, uint64_t bytes) {
  const auto page = static_cast<size_t>(reinterpret_cast<char*>(frame) - frames_.begin) / kPageBytes;
  if (registered_[page]) return true;
  if (userfault_.Register(frame, bytes) != 0) return false;  // too many mappings
  registered_.Set(page, page + bytes / kPageBytes, true);
  return true;
}

void PageSpace::ForgetFrames(std::span<std::byte> frames) {
  const auto page = static_cast<size_t>(reinterpret_cast<char*>(frames.data()) - frames_.begin) / kPageBytes, end = page + frames.size() / kPageBytes;
  if (!registered_.Any(page, end)) return;
  registered_.Set(page, end, false);
  static_cast<void>(userfault_.Unregister(frames.data(), frames.size()));
}

}  // namespace ramspan
