#include "common/buddy_allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <new>
#include <sys/mman.h>

#include "common/check.h"

namespace ramspan {
namespace {

constexpr uint64_t kUnitsMax = uint64_t{1} << 40;
constexpr int kLevelsMax = 41;   // block sizes 2^0 .. 2^40 units
constexpr int kStoreysMax = 7;   // 64^7 > 2^40

uint64_t WordsFor(uint64_t bits) { return (bits + 63) / 64; }

// A bitmap with summaries on top: bit w of storey s+1 says whether word w of storey s is not zero. So the next set bit
// is found by climbing and descending, one word a storey, and words that were never set are never touched.
class SummarisedBitmap {
 public:
  static uint64_t WordsNeeded(uint64_t bits) {
    uint64_t total = 0;
    do {
      bits = WordsFor(bits);
      total += bits;
    } while (bits > 1);
    return total;
  }

  // `words` are zero, WordsNeeded(bits) of them, and outlive this.
  void Init(uint64_t bits, uint64_t* words) {
    bits_ = bits;
    storeys_ = 0;
    do {
      bits = WordsFor(bits);
      words_on_[storeys_] = bits;
      storey_[storeys_++] = words;
      words += bits;
    } while (bits > 1);
  }

  bool empty() const { return storey_[storeys_ - 1][0] == 0; }
  bool Get(uint64_t bit) const { return bit < bits_ && (storey_[0][bit / 64] >> (bit % 64) & 1) != 0; }

  void Set(uint64_t bit) {
    for (int s = 0; s < storeys_; ++s, bit /= 64) {
      uint64_t& word = storey_[s][bit / 64];
      const bool was_empty = word == 0;
      word |= uint64_t{1} << (bit % 64);
      if (!was_empty) return;
    }
  }

  void Clear(uint64_t bit) {
    for (int s = 0; s < storeys_; ++s, bit /= 64) {
      uint64_t& word = storey_[s][bit / 64];
      word &= ~(uint64_t{1} << (bit % 64));
      if (word != 0) return;
    }
  }

  // The first set bit at or after `from`; nullopt when there is none.
  std::optional<uint64_t> Next(uint64_t from) const {
    for (int s = 0; s < storeys_; ++s) {
      const uint64_t word_index = from / 64;
      if (word_index >= words_on_[s]) return std::nullopt;
      const uint64_t word = storey_[s][word_index] & (~uint64_t{0} << (from % 64));
      if (word != 0) return Descend(s, word_index * 64 + static_cast<uint64_t>(std::countr_zero(word)));
      from = word_index + 1;
    }
    return std::nullopt;
  }

  // Each summary bit is set exactly where the word below it is not zero, and no bit lies beyond the end.
  bool IsValid() const {
    for (int s = 0; s + 1 < storeys_; ++s) {
      for (uint64_t w = 0; w < words_on_[s]; ++w) {
        if ((storey_[s][w] != 0) != ((storey_[s + 1][w / 64] >> (w % 64) & 1) != 0)) return false;
      }
    }
    return bits_ % 64 == 0 || (storey_[0][bits_ / 64] >> (bits_ % 64)) == 0;
  }

 private:
  uint64_t Descend(int s, uint64_t bit) const {
    for (; s > 0; --s) bit = bit * 64 + static_cast<uint64_t>(std::countr_zero(storey_[s - 1][bit]));
    return bit;
  }

  uint64_t bits_ = 0;
  int storeys_ = 0;
  std::array<uint64_t*, kStoreysMax> storey_{};
  std::array<uint64_t, kStoreysMax> words_on_{};
};

// Small ones would take a page each as mappings: there may be a thousand swap files of some units (ulimit -f).
constexpr uint64_t kHeapMost = 4096;  // bytes
bool IsOnHeap(uint64_t bytes) { return bytes < kHeapMost; }
// Zeros. Null: there are no addresses, or there is no heap.
uint64_t* MakeMap(uint64_t bytes) {
  if (IsOnHeap(bytes)) return static_cast<uint64_t*>(std::calloc(bytes, 1));
  void* const map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? nullptr : static_cast<uint64_t*>(map);
}

int LevelFor(uint64_t units) { return units <= 1 ? 0 : std::bit_width(units - 1); }

}  // namespace

// Level k holds the free blocks of 2^k units: bit i stands for [i << k, (i + 1) << k). A block is marked on one level
// only, the highest that it could merge to.
struct BuddyAllocator::Impl {
  uint64_t units = 0;
  uint64_t free_units = 0;
  int levels = 0;
  uint64_t map_bytes = 0;
  uint64_t* map = nullptr;
  std::array<SummarisedBitmap, kLevelsMax> level;

  // Marks [first, end) free, as the largest aligned blocks. REQUIRES: nothing there can merge with a neighbour.
  void MarkFree(uint64_t first, uint64_t end) {
    while (first < end) {
      const int fit = std::bit_width(end - first) - 1;
      const int k = first == 0 ? fit : std::min(fit, std::countr_zero(first));
      level[k].Set(first >> k);
      first += uint64_t{1} << k;
    }
  }

  // The same for a block that may merge. Buddies beyond the end are never free, so merging stops there by itself.
  void MarkFreeAndMerge(uint64_t index, int k) {
    while (k + 1 < levels && level[k].Get(index ^ 1)) {
      level[k].Clear(index ^ 1);
      index >>= 1;
      ++k;
    }
    level[k].Set(index);
  }

  // Whether some free block shares a unit with [first, end).
  bool AnyFree(uint64_t first, uint64_t end) const {
    for (int k = 0; k < levels; ++k) {
      if (level[k].empty()) continue;
      const std::optional<uint64_t> next = level[k].Next(first >> k);
      if (next && *next <= (end - 1) >> k) return true;
    }
    return false;
  }
};

BuddyAllocator::BuddyAllocator(uint64_t units) : impl_(new Impl) {
  RS_CHECK(units > 0 && units <= kUnitsMax, "%llu units", static_cast<unsigned long long>(units));
  impl_->units = impl_->free_units = units;
  impl_->levels = std::bit_width(units);
  uint64_t words = 0;
  for (int k = 0; k < impl_->levels; ++k) words += SummarisedBitmap::WordsNeeded(units >> k);
  impl_->map_bytes = words * sizeof(uint64_t);
  impl_->map = MakeMap(impl_->map_bytes);
  if (impl_->map == nullptr) {
    delete impl_;
    throw std::bad_alloc();
  }
  uint64_t* next = impl_->map;
  for (int k = 0; k < impl_->levels; ++k) {
    impl_->level[k].Init(units >> k, next);
    next += SummarisedBitmap::WordsNeeded(units >> k);
  }
  impl_->MarkFree(0, units);
}

BuddyAllocator::~BuddyAllocator() {
  IsOnHeap(impl_->map_bytes) ? std::free(impl_->map) : static_cast<void>(munmap(impl_->map, impl_->map_bytes));
  delete impl_;
}

std::optional<uint64_t> BuddyAllocator::Allocate(uint64_t units) {
  RS_CHECK(units > 0, "an allocation of nothing");
  int best_level = -1;
  uint64_t first = 0;
  for (int k = LevelFor(units); k < impl_->levels; ++k) {
    if (impl_->level[k].empty()) continue;
    const std::optional<uint64_t> index = impl_->level[k].Next(0);
    if (index && (best_level < 0 || *index << k < first)) {
      best_level = k;
      first = *index << k;
    }
  }
  if (best_level < 0) return std::nullopt;
  impl_->level[best_level].Clear(first >> best_level);
  // What is trimmed off has an allocated buddy on every level, so there is nothing to merge.
  impl_->MarkFree(first + units, first + (uint64_t{1} << best_level));
  impl_->free_units -= units;
  return first;
}

void BuddyAllocator::Free(uint64_t first, uint64_t units) {
  RS_CHECK(units > 0 && first < impl_->units && units <= impl_->units - first, "free of [%llu, +%llu) in %llu units",
           static_cast<unsigned long long>(first), static_cast<unsigned long long>(units),
           static_cast<unsigned long long>(impl_->units));
  RS_CHECK(!impl_->AnyFree(first, first + units), "double free in [%llu, +%llu)",
           static_cast<unsigned long long>(first), static_cast<unsigned long long>(units));
  const uint64_t end = first + units;
  for (uint64_t at = first; at < end;) {
    const int fit = std::bit_width(end - at) - 1;
    const int k = at == 0 ? fit : std::min(fit, std::countr_zero(at));
    impl_->MarkFreeAndMerge(at >> k, k);
    at += uint64_t{1} << k;
  }
  impl_->free_units += units;
}

uint64_t BuddyAllocator::free_units() const { return impl_->free_units; }
uint64_t BuddyAllocator::units() const { return impl_->units; }
uint64_t BuddyAllocator::metadata_bytes() const { return impl_->map_bytes + sizeof(Impl); }

uint64_t BuddyAllocator::largest_free_block() const {
  for (int k = impl_->levels - 1; k >= 0; --k) {
    if (!impl_->level[k].empty()) return uint64_t{1} << k;
  }
  return 0;
}

bool BuddyAllocator::IsValid() const {
  uint64_t free_units = 0;
  for (int k = 0; k < impl_->levels; ++k) {
    const SummarisedBitmap& blocks = impl_->level[k];
    if (!blocks.IsValid()) return false;
    for (std::optional<uint64_t> i = blocks.Next(0); i; i = blocks.Next(*i + 1)) {
      free_units += uint64_t{1} << k;
      if (blocks.Get(*i ^ 1) && k + 1 < impl_->levels) return false;
      for (int above = k + 1; above < impl_->levels; ++above) {
        if (impl_->level[above].Get(*i >> (above - k))) return false;
      }
    }
  }
  return free_units == impl_->free_units;
}

}  // namespace ramspan
