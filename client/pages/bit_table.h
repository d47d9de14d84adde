// BitTable: a bit for each of many things, blocks or pages, all of them 0 at first. It takes memory where bits have been set.
// Thread-safety: any thread; all in the one total order of sequentially consistent operations. Ownership: of its addresses, for ever.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/reserve_addresses.h"
#include "common/slot_ref.h"

namespace ramspan {

class BitTable {
 public:
  // Once, before all others. False: there are no addresses.
  bool Reserve(uint64_t bits) {
    const uint64_t bytes = RoundUpToGranule(bits / 8 + sizeof(uint64_t));
    words_ = reinterpret_cast<std::atomic<uint64_t>*>(ReserveAddresses(bytes, bytes).begin);
    return words_ != nullptr;
  }

  bool operator[](size_t number) const { return (words_[number / 64].load() & uint64_t{1} << number % 64) != 0; }
  // None of the bits from `number` on, a multiple of 64, to that of the next multiple is set.
  bool AreNone64(size_t number) const { return words_[number / 64].load() == 0; }

  void Set(size_t first, size_t end, bool to) {
    ForEachWord(first, end, [this, to](size_t word, uint64_t bits) {
      to ? words_[word].fetch_or(bits) : words_[word].fetch_and(~bits);
      return true;
    });
  }
  // The same as Set to false. Touches no memory of the table's where none is set.
  void Clear(size_t first, size_t end) {
    ForEachWord(first, end, [this](size_t word, uint64_t bits) {
      if ((words_[word].load() & bits) != 0) words_[word].fetch_and(~bits);
      return true;
    });
  }
  bool All(size_t first, size_t end) const {
    return ForEachWord(first, end, [this](size_t word, uint64_t bits) { return (words_[word].load() & bits) == bits; });
  }
  bool Any(size_t first, size_t end) const {
    return !ForEachWord(first, end, [this](size_t word, uint64_t bits) { return (words_[word].load() & bits) == 0; });
  }

 private:
  // As long as `f` says so; whether it was called for all.
  template <typename F>
  static bool ForEachWord(size_t first, size_t end, const F& f) {
    for (size_t next; first < end; first = next) {
      next = std::min(end, (first / 64 + 1) * 64);
      const size_t count = next - first;
      if (!f(first / 64, (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << first % 64)) return false;
    }
    return true;
  }

  std::atomic<uint64_t>* words_ = nullptr;
};

}  // namespace ramspan
