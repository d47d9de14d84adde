// What a lying client can send: random bytes, and valid messages with some bytes changed. Nothing may crash the server,
// take a lease from another client, or make its books wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "common/wire.h"
#include "memserver/server.h"

namespace ramspan {
namespace {

constexpr uint64_t kPoolBytes = uint64_t{16} << 20;

std::vector<std::byte> RandomBytes(std::mt19937* random, size_t length) {
  std::vector<std::byte> bytes(length);
  for (std::byte& b : bytes) b = static_cast<std::byte>((*random)());
  return bytes;
}

WireRecord RandomMessage(std::mt19937* random) {
  constexpr WireType kTypes[] = {WireType::kLeaseRequest, WireType::kLeaseReturn, WireType::kActivity,
                                 WireType::kLeaseGrant, WireType::kFull, WireType::kSpare};
  WireMessage message{.type = kTypes[(*random)() % std::size(kTypes)], .sequence = static_cast<uint32_t>((*random)())};
  const auto granules = [&](uint64_t most) { return (1 + (*random)() % most) * kLeaseGranule; };
  if (message.type == WireType::kLeaseRequest) {
    message.bytes = granules(200);
    message.minimum_bytes = std::min(message.bytes, granules(20));
    message.flags = static_cast<uint32_t>((*random)());
  } else if (message.type == WireType::kLeaseReturn) {
    message.lease = 1 + (*random)() % 500;
  } else if (message.type == WireType::kLeaseGrant) {
    message.lease = 1;
    message.bytes = granules(10);
  } else if (message.type == WireType::kFull) {
    message.flags = 1;
  }
  return Encode(message);
}

// What Decode promises of each record that it returns, said once more and in other words.
void ExpectPromised(const WireMessage& m, const WireRecord& record) {
  ASSERT_EQ(Encode(m), record) << "a field or padding was overlooked";
  ASSERT_LE(m.free_bytes, kPoolBytesMax);
  ASSERT_LE(m.bytes, kPoolBytesMax);
  ASSERT_LE(m.offset, kPoolBytesMax);
  ASSERT_LE(m.offset + m.bytes, kPoolBytesMax);
  if (m.type == WireType::kLeaseRequest || m.type == WireType::kLeaseGrant) {
    ASSERT_GT(m.bytes, 0u);
    ASSERT_EQ(m.bytes % kLeaseGranule, 0u);
    ASSERT_EQ(m.offset % kLeaseGranule, 0u);
  }
  if (m.type == WireType::kLeaseRequest) {
    ASSERT_GT(m.minimum_bytes, 0u);
    ASSERT_LE(m.minimum_bytes, m.bytes);
  }
  ASSERT_EQ(m.lease != 0, m.type == WireType::kLeaseReturn || m.type == WireType::kLeaseGrant);
}

// Whole fields replaced by values at the edges, singly and in pairs: random bytes never get past the magic number.
TEST(WireFuzz, ValidRecordsWithFieldsReplacedKeepEveryPromiseOrAreRefused) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr struct { size_t at, bytes; } kFields[] = {{6, 2}, {8, 4}, {12, 4}, {16, 8}, {24, 8}, {32, 8}, {40, 8}, {48, 8}, {56, 8}};
  const uint64_t edges[] = {0, 1, 2, 3, 4, 16, 17, kLeaseGranule - 1, kLeaseGranule, 3 * kLeaseGranule, kPoolBytesMax - kLeaseGranule,
                            kPoolBytesMax, kPoolBytesMax + kLeaseGranule, uint64_t{1} << 63, ~uint64_t{0} - kLeaseGranule + 1, ~uint64_t{0}};
  int valid = 0, refused = 0;
  for (int i = 0; i < 200000; ++i) {
    WireRecord record = RandomMessage(&random);
    for (unsigned replaced = random() % 3; replaced > 0; --replaced) {
      const auto& field = kFields[random() % std::size(kFields)];
      const uint64_t value = edges[random() % std::size(edges)];
      for (size_t b = 0; b < field.bytes; ++b) record[field.at + b] = static_cast<std::byte>(value >> (8 * b));
    }
    const Result<WireMessage> message = Decode(record);
    ++(message.ok() ? valid : refused);
    if (message.ok()) {
      ASSERT_NO_FATAL_FAILURE(ExpectPromised(message.value(), record));
    }
  }
  EXPECT_GT(valid, 10000);
  EXPECT_GT(refused, 10000);
}

TEST(WireFuzz, FrontsOfValidRecordsWithAnyEndAreDecodedOrRefusedButNeverCrash) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> record = RandomBytes(&random, random() % 130);
    const WireRecord valid = RandomMessage(&random);
    // The front of a valid record, so that more than the magic number is looked at.
    std::copy_n(valid.begin(), std::min<size_t>(record.size(), random() % 30), record.begin());
    const Result<WireMessage> message = Decode(record);
    if (message.ok()) {
      ASSERT_EQ(record.size(), kWireBytes);
      ASSERT_TRUE(std::ranges::equal(Encode(message.value()), record));
    }
  }
}

TEST(WireFuzz, WhateverDecodesEncodesToTheSameBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 100000; ++i) {
    WireRecord record = RandomMessage(&random);
    for (unsigned flips = random() % 3; flips > 0; --flips) record[random() % kWireBytes] ^= std::byte(1u << random() % 8);
    const Result<WireMessage> message = Decode(record);
    if (message.ok()) {
      ASSERT_EQ(Encode(message.value()), record);
    }
  }
}

TEST(WireFuzz, ALyingClientNeverCrashesTheServerOrTakesWhatAnotherHolds) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  MemServer server({.pool_bytes = kPoolBytes, .clients = 3});
  const MemServer::Clock::time_point now{};
  // Client 0 is honest and holds one lease; 1 and 2 send anything.
  const std::optional<WireMessage> honest = server.Handle(
      0, Encode({.type = WireType::kLeaseRequest, .bytes = kLeaseGranule, .minimum_bytes = kLeaseGranule}), now);
  ASSERT_TRUE(honest.has_value());
  for (int i = 0; i < 20000; ++i) {
    const uint32_t client = 1 + random() % 3;  // 3 is no client at all
    if (random() % 4 == 0) {
      server.Handle(client, RandomBytes(&random, random() % 130), now);
      continue;
    }
    WireRecord record = RandomMessage(&random);
    if (random() % 2 == 0) record[random() % kWireBytes] ^= static_cast<std::byte>(random());
    const std::optional<WireMessage> answer = server.Handle(client, record, now);
    if (answer) {
      const Result<WireMessage> valid = Decode(Encode(*answer));
      ASSERT_TRUE(valid.ok()) << valid.status().message();
    }
    if (answer && answer->type == WireType::kLeaseGrant) {
      ASSERT_TRUE(answer->offset >= honest->offset + honest->bytes || answer->offset + answer->bytes <= honest->offset);
    }
    ASSERT_EQ(server.leases().HeldBy(0), kLeaseGranule);
    if (i % 500 == 0) {
      ASSERT_TRUE(server.leases().IsValid());
    }
  }
  EXPECT_TRUE(server.leases().IsValid());
}

}  // namespace
}  // namespace ramspan
