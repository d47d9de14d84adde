#include "ramspan/detail/block_cache.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "client/front/pin_registry.h"
#include "client/front/session.h"
#include "ramspan/detail/held_pin.h"

namespace ramspan::detail {
namespace {
// Of the memory limit is what all views of all threads together may hold, where not all data is in memory.
constexpr uint64_t kShare = 4;
constexpr uint64_t kTablesShare = 64;  // of the limit, what all tables together may take
constexpr uint64_t kGrowAgain = 16;  // blocks that are entered until one more may be held than when memory was short
constexpr uint32_t kReadsUntilTry = 1024;  // of elements in blocks that are not held
constexpr uint8_t kWindow = 64, kTurns = 30;  // blocks that are entered, and how many of them again if they take turns: of as many at random 24 in a hash of 64
constexpr size_t kTurnsPart = 64;             // of all blocks, turns that cost about what a table of places does
constexpr size_t kPlacesPart = 8;  // of all blocks have entries, at least, where there is a table of all places: it takes twice the entries' bytes at most
constexpr uint64_t kRoomAgain = 8;  // blocks for which there is room again, until what was full takes more

// Numbers at equal distances look like any others. One multiplication leaves them at equal distances (32 bits; splitmix64 has this form).
uint32_t Mixed(uint64_t block) {
  block ^= block >> 15;
  block *= 0xBF58476D1CE4E5B9u;
  block ^= block >> 29;
  block *= 0x94D049BB133111EBu;
  return static_cast<uint32_t>(block >> 32);
}

// Of all tables. They count in the memory limit.
std::atomic<uint64_t> table_bytes{0};

// False: they would be too much, or there is no memory for them.
bool ChargeTable(uint64_t bytes) {
  const Session* const session = Session::IfStarted();
  if (session == nullptr) return false;  // in a forked child
  Engine* const engine = session->engine;
  const uint64_t all = table_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (all <= engine->budget()->limit() / kTablesShare && engine->ChargeMetadata(bytes).ok()) return true;
  table_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

void ReleaseTable(uint64_t bytes) {
  const Session* const session = Session::IfStarted();
  if (bytes == 0 || session == nullptr) return;
  table_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  session->engine->budget()->ChargeMetadata(-bytes);
}
}  // namespace

// The views of the calling thread. Trivially destructible: a view may be a static object's.
struct BlockCache::OfThread {
  BlockCache* first = nullptr;
  uint64_t bytes = 0;           // of what they hold
  uint64_t most = UINT64_MAX;   // since memory was short
  uint32_t heard = 0;

  static OfThread& Get() {
    static thread_local constinit OfThread views{};
    return views;
  }
  // Whether all data is no more than what views may hold.
  static bool HasRoomForAll(const Session* session) { return session->engine->live_bytes() <= PinScanner::SpareOfAll(session->engine->budget()->frames_limit()); }
  static uint64_t Share() {
    const Session* const session = Session::IfStarted();
    if (session == nullptr) return UINT64_MAX / 2;  // in a forked child
    if (HasRoomForAll(session)) return Get().most;
    const uint64_t limit = session->engine->budget()->frames_limit(), data = session->engine->live_bytes();
    const uint64_t share = (data <= limit ? PinScanner::SpareOfAll(limit) : limit / kShare) / std::max(1u, PinRegistry::Get().threads());
    return std::min(share, Get().most);
  }
};

void BlockCache::Count(const ChunkHead* chunk, int sign) {
  OfThread& views = OfThread::Get();
  if (owner_ == nullptr) owner_ = &views;
  if (owner_ != &views) return;  // the end of a static view, on the thread that has called exit()
  const uint64_t bytes = sign < 0 ? uint64_t{0} - chunk->bytes : chunk->bytes;
  held_bytes_ += bytes;
  views.bytes += bytes;
  if (held_bytes_ > 0 && !std::exchange(listed_, true)) {
    before_ = nullptr;
    next_ = views.first;
    if (next_ != nullptr) next_->before_ = this;
    views.first = this;
  } else if (held_bytes_ == 0 && std::exchange(listed_, false)) {
    (before_ == nullptr ? views.first : before_->next_) = next_;
    if (next_ != nullptr) next_->before_ = before_;
  }
}

void BlockCache::LetGo(Entry* entry) {
  if (entry->chunk == nullptr) return;
  SetPlace(entry->block, nullptr);
  ChunkHead* const chunk = std::exchange(*entry, Entry{.gone = entry->gone}).chunk;
  Count(chunk, -1);
  UnpinCounted(chunk);
}

constinit std::atomic<uint32_t> BlockCache::calls_{0};

void BlockCache::LetSpareOnesGo(uint64_t enough) {
  for (Entry* entry = entries_; entry <= entries_ + mask_ && OfThread::Get().bytes > enough; ++entry) {
    if (!IsLatest(entry)) LetGo(entry);
  }
}

uint64_t BlockCache::HeldBytes() noexcept { return OfThread::Get().bytes; }

bool BlockCache::SpareHalf() noexcept {
  OfThread& views = OfThread::Get();
  const uint64_t before = views.bytes;
  for (BlockCache* view = views.first; view != nullptr;) {
    BlockCache* const next = view->next_;  // it may be taken out of the list
    view->LetSpareOnesGo(before / 2);
    view = next;
  }
  if (views.bytes == before) return false;
  views.most = views.bytes;
  return true;
}

void BlockCache::NoteRead(size_t bytes) noexcept {
  if (++reads_ % kReadsUntilTry != 0) return;
  is_full_ = false;
  if (uint64_t& most = OfThread::Get().most; most != UINT64_MAX) most += most + bytes;
}

void BlockCache::GiveWay() noexcept {
  OfThread& views = OfThread::Get();
  heard_ = calls_.load(std::memory_order_relaxed);
  if (owner_ == &views && std::exchange(views.heard, heard_) != heard_) SpareHalf();
}

bool BlockCache::HasRoomForAll() {
  const Session* const session = Session::IfStarted();
  return session != nullptr && OfThread::Get().most == UINT64_MAX && OfThread::HasRoomForAll(session);
}

// Where `bytes` more are beyond the share, others go.
void BlockCache::MakeRoom(size_t bytes) {
  const uint64_t share = OfThread::Share();
  if (OfThread::Get().bytes + kRoomAgain * bytes <= share) is_full_ = false;
  for (size_t looks = 0; OfThread::Get().bytes + bytes > share && looks <= 2 * mask_ + 1; ++looks) {
    is_full_ = true;
    Entry* const entry = entries_ + (hand_ & mask_);
    if (entry->chunk == nullptr || IsLatest(entry)) {
      ++hand_;
    } else {
      LetGo(entry);  // the hand stays: the next block may be entered there
    }
  }
}

// Which block has made way of late is found by all bits of its number: those that take turns often differ in the first ones only.
size_t* BlockCache::Gone(size_t block) const { return &entries_[Mixed(block) & mask_].gone; }

// Whether some blocks take turns in one entry, at distances of a power of two, and would do so in any number of entries: of those that were entered of
// late, about half had been just before. And often enough: a table of places costs what some turns do, by the number of all blocks.
bool BlockCache::TakeTurns(size_t block) {
  const uint64_t bit = uint64_t{1} << (Mixed(block) >> 26);
  seen_again_ += (seen_ & bit) != 0;
  seen_ |= bit;
  if (++entered_ < kWindow) return false;
  turns_ += seen_again_ >= kTurns ? kWindow : 0;
  seen_ = entered_ = seen_again_ = 0;
  return turns_ >= blocks_ / kTurnsPart && std::exchange(turns_, 0) > 0;
}

// Where a block is entered. Programs find it by the last bits of its number, until there is a table of places; then it takes the place of the one that
// was entered first.
BlockCache::Entry* BlockCache::EntryFor(size_t block) const { return entries_ + ((places() == nullptr ? block : hand_) & mask_); }

// The block that is there goes, or stays pinned for those who have references to it until the next one comes.
void BlockCache::Enter(Entry* entry, const Entry& what) {
  if (entry->chunk != nullptr) {
    *Gone(entry->block) = entry->block;
    if (IsLatest(entry)) {
      leaving_ = *entry;
      SetPlace(leaving_.block, nullptr);
    } else {
      LetGo(entry);
    }
  }
  *entry = {what.block, what.place, what.chunk, entry->gone};
  SetPlace(what.block, what.place);
  if (places() != nullptr) ++hand_;
  latest_before_ = std::exchange(latest_, what.block);
}

// The block was in the table until the last one was entered, and references to it are in use.
void* BlockCache::TakeBack() {
  const Entry back = std::exchange(leaving_, Entry());
  Enter(EntryFor(back.block), back);
  return back.place;
}

bool BlockCache::Grow(size_t least, bool in_turns) noexcept {
  const size_t size = std::max(mask_ + 1, std::min({std::max(4 * (mask_ + 1), std::bit_ceil(least)), kMost, std::bit_ceil(blocks_)}));
  if (size == mask_ + 1 && !in_turns) return false;
  void** places = this->places();
  const bool finds_places = places != nullptr || in_turns || size >= blocks_ / kPlacesPart;
  const uint64_t before = TableBytes(), more = size * sizeof(Entry) + (finds_places ? blocks_ * sizeof(void*) : 0) - before;
  if (!ChargeTable(more)) return false;
  Entry* const larger = new (std::nothrow) Entry[size];
  if (larger == nullptr) return ReleaseTable(more), false;
  if (places == nullptr && finds_places) places = new (std::nothrow) void*[blocks_]();  // without them entries are looked up
  Entry* const smaller = std::exchange(entries_, larger);
  const size_t from = hand_, smaller_mask = std::exchange(mask_, size - 1);
  hand_ = 0;
  for (size_t k = 0; k <= smaller_mask; ++k) {
    const Entry& entry = smaller[(from + k) & smaller_mask];
    if (entry.gone != SIZE_MAX) *Gone(entry.gone) = entry.gone;
    if (entry.chunk == nullptr) continue;
    Entry& to = entries_[places == nullptr ? entry.block & mask_ : hand_++];
    to = {entry.block, entry.place, entry.chunk, to.gone};
  }
  if (smaller != first_) delete[] smaller;
  first_[0].place = places;
  replaced_ = 0;
  ReleaseTable(before + more - TableBytes());
  for (Entry* entry = entries_; entry <= entries_ + mask_; ++entry) SetPlace(entry->block, entry->place);
  return true;
}

// Of what is gathered at random, all blocks are as likely as any to be used again.
void* BlockCache::TryEnter(size_t block, Object object) noexcept {
  const bool is_back = leaving_.block == block;
  const bool again = gathers_ ? EntryFor(block)->chunk != nullptr : is_back || *Gone(block) == block;
  if (places() == nullptr && !gathers_ && TakeTurns(block)) Grow(0, true);
  if (is_back) return TakeBack();
  ChunkHead* const chunk = object.chunk();
  // Nothing is spared by holding few where all may be held, and who goes through some blocks in turns looks them up in the table of places.
  const bool wants_places = !again && entries_ == first_ && EntryFor(block)->chunk != nullptr && HasRoomForAll();
  if ((again || wants_places) && ++replaced_ > mask_ && !is_full_) Grow(wants_places ? blocks_ / kPlacesPart + 1 : 0, false);
  LetGo(&leaving_);
  MakeRoom(chunk->bytes);
  HeldPin pin;
  if (!TryHeldPin(chunk, write_, &pin, PinFor::kLong)) return nullptr;
  if (uint64_t& most = OfThread::Get().most; most != UINT64_MAX) most += chunk->bytes / kGrowAgain;
  static_cast<void>(pin.release());
  Count(chunk, 1);
  void* const place = ElementsAt<void>(chunk->frame, object.offset());
  Enter(EntryFor(block), {.block = block, .place = place, .chunk = chunk});
  return place;
}

BlockCache::~BlockCache() {
  LetGo(&leaving_);
  for (Entry* entry = entries_; entry <= entries_ + mask_; ++entry) LetGo(entry);
  ReleaseTable(TableBytes());
  delete[] places();
  if (entries_ != first_) delete[] entries_;
  if (OfThread& views = OfThread::Get(); views.bytes == 0) views.most = UINT64_MAX;  // the next ones find out anew
}

}  // namespace ramspan::detail
