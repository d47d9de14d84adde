#include "common/non_temporal_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace ramspan {
namespace {

TEST(NonTemporalCopy, MovesEachByteAndNoOther) {
  constexpr size_t kRoom = 300 * 1024;
  std::mt19937_64 random(1);
  std::vector<unsigned char> from(kRoom), to(kRoom);
  for (unsigned char& byte : from) byte = static_cast<unsigned char>(random());
  for (const size_t bytes : {0, 1, 63, 64, 255, 256, 4096, 8191, 8192, 8193, 8447, 16384, 65535, 65536, 65537, 65600, 131072, 200001, 262144}) {
    for (const size_t to_at : {0, 1, 15, 16, 63, 64}) {
      for (const size_t from_at : {0, 1, 8, 64}) {
        std::fill(to.begin(), to.end(), static_cast<unsigned char>(0xA5));
        std::vector<unsigned char> right = to;
        std::memcpy(right.data() + to_at, from.data() + from_at, bytes);
        NonTemporalCopy(to.data() + to_at, from.data() + from_at, bytes);
        ASSERT_TRUE(to == right) << bytes << " bytes from " << from_at << " to " << to_at;
      }
    }
  }
}

}  // namespace
}  // namespace ramspan
