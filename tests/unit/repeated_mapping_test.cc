#include "common/repeated_mapping.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/sizes.h"

namespace ramspan {
namespace {

TEST(RepeatedMapping, TheSameFewPagesStandThereAgainAndAgain) {
  Result<RepeatedMapping> mapping = RepeatedMapping::Make(300 * kMiB + 1);
  ASSERT_TRUE(mapping.ok()) << mapping.status().message();
  EXPECT_GE(mapping.value().bytes(), 300 * kMiB + 1);
  EXPECT_EQ(mapping.value().window_bytes(), 2 * kMiB);
  std::byte* const data = mapping.value().data();
  std::memset(data, 1, 2 * kMiB);
  for (uint64_t at = 0; at < mapping.value().bytes(); at += 2 * kMiB) ASSERT_EQ(data[at + 77], std::byte{1}) << at;
  data[mapping.value().bytes() - 1] = std::byte{9};
  EXPECT_EQ(data[2 * kMiB - 1], std::byte{9});
}

TEST(RepeatedMapping, EveryLengthCanBeHadOrIsRefused) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 36}) {
    Result<RepeatedMapping> mapping = RepeatedMapping::Make(bytes);
    ASSERT_TRUE(mapping.ok()) << bytes << ": " << mapping.status().message();
    EXPECT_LE(mapping.value().window_bytes(), std::max(2 * kMiB, bytes / 8192));
  }
  EXPECT_FALSE(RepeatedMapping::Make(~uint64_t{0}).ok());
}

}  // namespace
}  // namespace ramspan
