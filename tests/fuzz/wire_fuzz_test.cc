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
                                 WireType::kLeaseGrant, WireType::kFull};
  WireMessage message{.type = kTypes[(*random)() % std::size(kTypes)], .sequence = static_cast<uint32_t>((*random)())};
  const auto granules = [&](uint64_t most) { return (1 + (*random)() % most) * kLeaseGranule; };
  if (message.type == WireType::kLeaseRequest) {
    message.bytes = granules(200);
    message.minimum_bytes = std::min(message.bytes, granules(20));
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

TEST(WireFuzz, RandomBytesAreDecodedOrRefusedButNeverCrash) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 100000; ++i) {
    const Result<WireMessage> message = Decode(RandomBytes(&random, random() % 130));
    EXPECT_FALSE(message.ok());  // the magic number and 20 zero bytes do not come by chance
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
  const auto now = MemServer::Clock::now();
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
