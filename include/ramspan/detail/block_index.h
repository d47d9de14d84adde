// BlockIndex: in which block of an array an element is, and where there. Private to Ramspan although installed (resident.h). Value type.
#pragma once

#include <cstddef>

namespace ramspan::detail {

class BlockIndex {
 public:
  explicit BlockIndex(size_t block_elements) : elements_(block_elements), shift_(ShiftOf(block_elements)) {}
  size_t elements() const { return elements_; }  // of all blocks but perhaps the last
  struct Place {
    size_t block, offset;
  };
  // A division takes as long as some pins do, so powers of two are shifted.
  Place Locate(size_t i) const {
    if (__builtin_expect(shift_ != kNone, 1)) return {i >> shift_, i & (elements_ - 1)};
    return {i / elements_, i % elements_};
  }
  size_t Block(size_t i) const { return __builtin_expect(shift_ != kNone, 1) ? i >> shift_ : i / elements_; }
  size_t First(size_t block) const { return block * elements_; }
  bool is_power_of_two() const { return shift_ != kNone; }
  unsigned shift() const { return shift_; }  // REQUIRES: is_power_of_two()
  size_t Count(size_t n) const { return n == 0 ? 0 : Block(n - 1) + 1; }  // of blocks that n elements need

 private:
  static constexpr unsigned kNone = 64;
  static unsigned ShiftOf(size_t elements) {
    unsigned shift = 0;
    while (shift < kNone - 1 && (size_t{1} << shift) < elements) ++shift;
    return (size_t{1} << shift) == elements ? shift : kNone;
  }
  size_t elements_;
  unsigned shift_;
};

}  // namespace ramspan::detail
