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
// Of the memory limit is what all views of all threads together may hold: a quarter, or half of it where all data is in memory.
constexpr uint64_t kShare = 4, kShareOfAll = 2;
constexpr uint64_t kTablesShare = 64;  // of the limit, what all tables together may take
constexpr uint64_t kGrowAgain = 16;  // blocks that are entered until one more may be held than when memory was short
constexpr uint32_t kReadsUntilTry = 1024;  // of elements in blocks that are not held
constexpr size_t kPlacesPart = 8;  // of all blocks have entries, at least, where there is a table of all places: it takes twice the entries' bytes at most
constexpr uint64_t kRoomAgain = 8;  // blocks for which there is room again, until what was full takes more

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
  static bool HasRoomForAll(const Session* session) { return session->engine->live_bytes() <= session->engine->budget()->frames_limit() / kShareOfAll; }
  static uint64_t Share() {
    const Session* const session = Session::IfStarted();
    if (session == nullptr) return UINT64_MAX / 2;  // in a forked child
    if (HasRoomForAll(session)) return Get().most;
    const uint64_t limit = session->engine->budget()->frames_limit(), data = session->engine->live_bytes();
    const uint64_t share = limit / (data <= limit ? kShareOfAll : kShare) / std::max(1u, PinRegistry::Get().threads());
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
  for (size_t looks = 0; OfThread::Get().bytes + bytes > share && looks <= mask_; ++looks) {
    is_full_ = true;
    Entry* const entry = entries_ + (hand_++ & mask_);
    if (!IsLatest(entry)) LetGo(entry);
  }
}

// The block was in the table until the last one was entered, and references to it are in use.
void* BlockCache::TakeBack() {
  const Entry back = std::exchange(leaving_, Entry());
  Entry* const entry = entries_ + (back.block & mask_);
  if (IsLatest(entry)) {
    leaving_ = std::exchange(*entry, Entry());
    SetPlace(leaving_.block, nullptr);
  } else {
    LetGo(entry);
  }
  *entry = back;
  SetPlace(back.block, back.place);
  latest_before_ = std::exchange(latest_, back.block);
  return back.place;
}

bool BlockCache::Grow(size_t least) noexcept {
  const size_t size = std::min({std::max(4 * (mask_ + 1), std::bit_ceil(least)), kMost, std::bit_ceil(blocks_)});
  if (size <= mask_ + 1) return false;
  const uint64_t before = TableBytes(), more = size * sizeof(Entry) + (size >= blocks_ / kPlacesPart ? blocks_ * sizeof(void*) : 0) - before;
  if (!ChargeTable(more)) return false;
  void** places = this->places();  // those of the blocks that are entered stay where they are
  Entry* const larger = new (std::nothrow) Entry[size];
  if (larger == nullptr) return ReleaseTable(more), false;
  for (Entry* entry = entries_; entry <= entries_ + mask_; ++entry) {
    if (entry->chunk != nullptr) larger[entry->block & (size - 1)] = *entry;
  }
  if (entries_ != first_) delete[] entries_;
  entries_ = larger;
  mask_ = size - 1;
  replaced_ = 0;
  if (places == nullptr && size >= blocks_ / kPlacesPart) places = new (std::nothrow) void*[blocks_]();  // without them entries are looked up
  first_[0].place = places;
  ReleaseTable(before + more - TableBytes());
  for (Entry* entry = entries_; entry <= entries_ + mask_; ++entry) SetPlace(entry->block, entry->place);
  return true;
}

void* BlockCache::TryEnter(size_t block, Object object) noexcept {
  if (leaving_.block == block) return TakeBack();
  ChunkHead* const chunk = object.chunk();
  // Of what is gathered at random, all blocks are as likely as any to be used again.
  const Entry& there = entries_[block & mask_];
  const bool again = gathers_ ? there.chunk != nullptr : there.gone == block;
  // Nothing is spared by holding few where all may be held, and who goes through some blocks in turns looks them up in the table of places.
  const bool wants_places = !again && entries_ == first_ && there.chunk != nullptr && HasRoomForAll();
  if ((again || wants_places) && ++replaced_ > mask_ && !is_full_) Grow(wants_places ? blocks_ / kPlacesPart + 1 : 0);
  LetGo(&leaving_);
  MakeRoom(chunk->bytes);
  HeldPin pin;
  if (!TryHeldPin(chunk, write_, &pin, PinFor::kLong)) return nullptr;
  if (uint64_t& most = OfThread::Get().most; most != UINT64_MAX) most += chunk->bytes / kGrowAgain;
  Entry* const entry = entries_ + (block & mask_);
  const size_t gone = entry->chunk != nullptr ? entry->block : entry->gone;
  if (IsLatest(entry)) {
    leaving_ = *entry;
    SetPlace(leaving_.block, nullptr);
  } else {
    LetGo(entry);
  }
  static_cast<void>(pin.release());
  *entry = {block, ElementsAt<void>(chunk->frame, object.offset()), chunk, gone};
  SetPlace(block, entry->place);
  Count(chunk, 1);
  latest_before_ = std::exchange(latest_, block);
  return entry->place;
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
