#include "common/wire.h"

#include <gtest/gtest.h>

#include <vector>

namespace ramspan {
namespace {

std::vector<WireMessage> OneOfEachType() {
  return {
      {.type = WireType::kLeaseRequest, .sequence = 7, .bytes = 4 * kLeaseGranule, .minimum_bytes = kLeaseGranule},
      {.type = WireType::kLeaseReturn, .sequence = 8, .lease = 99},
      {.type = WireType::kActivity},
      {.type = WireType::kActivity, .bytes = kPoolBytesMax},
      {.type = WireType::kBye, .flags = kByeTogether},
      {.type = WireType::kLeaseGrant,
       .sequence = 7,
       .lease = 0xfedcba9876543210,
       .offset = 16 * kLeaseGranule,
       .bytes = kLeaseGranule,
       .free_bytes = 12345},
      {.type = WireType::kFull, .sequence = 7, .flags = static_cast<uint32_t>(FullReason::kQuota), .free_bytes = 1},
      {.type = WireType::kSpare},
  };
}

TEST(Wire, EveryTypeSurvivesARoundTrip) {
  for (const WireMessage& message : OneOfEachType()) {
    const Result<WireMessage> back = Decode(Encode(message));
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back.value(), message);
  }
}

TEST(Wire, TheBytesAreLittleEndianOnEveryHost) {
  const WireRecord record = Encode({.type = WireType::kLeaseReturn, .sequence = 0x01020304, .lease = 0x0a0b});
  EXPECT_EQ(record[0], std::byte{'R'});
  EXPECT_EQ(record[3], std::byte{'N'});
  EXPECT_EQ(record[6], std::byte{2});
  EXPECT_EQ(record[8], std::byte{4});
  EXPECT_EQ(record[11], std::byte{1});
  EXPECT_EQ(record[16], std::byte{0x0b});
  EXPECT_EQ(record[17], std::byte{0x0a});
}

TEST(Wire, ARecordOfAnyOtherLengthIsRefused) {
  const WireRecord record = Encode({.type = WireType::kActivity});
  const std::vector<std::byte> longer(1000);
  EXPECT_FALSE(Decode({}).ok());
  EXPECT_FALSE(Decode(std::span(record).first(63)).ok());
  EXPECT_FALSE(Decode(longer).ok());
}

TEST(Wire, AnotherMagicVersionOrTypeIsRefused) {
  for (const size_t at : {0, 4, 6}) {
    WireRecord record = Encode({.type = WireType::kActivity});
    record[at] ^= std::byte{0x40};
    EXPECT_EQ(Decode(record).status().code(), StatusCode::kInvalidArgument) << at;
  }
}

TEST(Wire, AnotherVersionIsNamedWithTheRemedy) {
  WireRecord record = Encode({.type = WireType::kActivity});
  record[4] = std::byte{9};
  EXPECT_NE(Decode(record).status().message().find("use one Ramspan version"), std::string::npos);
}

TEST(Wire, FieldsThatATypeDoesNotUseMustBeZero) {
  // A byte set in each of lease, offset, bytes, minimum_bytes, free_bytes, padding.
  for (const WireMessage& message : OneOfEachType()) {
    const WireRecord good = Encode(message);
    for (size_t at = 16; at < kWireBytes; at += 8) {
      bool field_is_zero = true;
      for (size_t i = 0; i < 8; ++i) field_is_zero = field_is_zero && good[at + i] == std::byte{0};
      if (!field_is_zero) continue;
      WireRecord bad = good;
      bad[at + 2] = std::byte{1};  // 64 KiB: a size that would be fine elsewhere
      const bool used = (message.type == WireType::kLeaseGrant && at == 24) ||
                        (message.type == WireType::kActivity && at == 32);
      EXPECT_EQ(Decode(bad).ok(), used) << static_cast<int>(message.type) << " byte " << at;
    }
  }
}

TEST(Wire, SizesThatAreNoMultipleOfTheGranuleOrOverflowAreRefused) {
  WireMessage request{.type = WireType::kLeaseRequest, .bytes = kLeaseGranule, .minimum_bytes = kLeaseGranule};
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kLeaseGranule + 1, kPoolBytesMax + kLeaseGranule, ~uint64_t{0}}) {
    request.bytes = bytes;
    EXPECT_FALSE(Decode(Encode(request)).ok()) << bytes;
  }
  WireMessage grant{.type = WireType::kLeaseGrant, .lease = 1, .bytes = kLeaseGranule};
  for (const uint64_t offset : {uint64_t{1}, kPoolBytesMax, ~uint64_t{0} - kLeaseGranule + 1}) {
    grant.offset = offset;
    EXPECT_FALSE(Decode(Encode(grant)).ok()) << offset;
  }
}

TEST(Wire, AMinimumAboveTheWishIsRefused) {
  EXPECT_FALSE(Decode(Encode({.type = WireType::kLeaseRequest, .bytes = kLeaseGranule, .minimum_bytes = 2 * kLeaseGranule}))
                   .ok());
}

TEST(Wire, LeaseZeroIsNobodys) {
  EXPECT_FALSE(Decode(Encode({.type = WireType::kLeaseReturn, .lease = 0})).ok());
  EXPECT_FALSE(Decode(Encode({.type = WireType::kLeaseGrant, .lease = 0, .bytes = kLeaseGranule})).ok());
}

}  // namespace
}  // namespace ramspan
