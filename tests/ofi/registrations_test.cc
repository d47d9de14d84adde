// Local buffers that the network has to know: made at their first use, kept, counted.
#include <gtest/gtest.h>

#include <vector>

#include "client/transport/ofi_registrations.h"

namespace ramspan {
namespace {

constexpr size_t kPiece = size_t{64} << 10;

class Registrations : public testing::Test {
 protected:
  Registrations() : memory_(8 * kPiece), registrations_(FabricDomain::OpenAt("127.0.0.1", {.provider = "", .register_local = true}).value()) {}
  std::span<std::byte> Piece(size_t first, size_t count = 1) { return {memory_.data() + first * kPiece, count * kPiece}; }

  std::vector<std::byte> memory_;
  OfiRegistrations registrations_;
};

TEST_F(Registrations, ABufferIsRegisteredOnceAndItsPartsWithIt) {
  const auto whole = registrations_.Find(Piece(0, 2)).value();
  EXPECT_NE(whole, nullptr);
  EXPECT_EQ(registrations_.Find(Piece(0, 2)).value(), whole);
  EXPECT_EQ(registrations_.Find(Piece(1)).value(), whole);
  EXPECT_EQ(registrations_.statistics().count, 1u);
  EXPECT_EQ(registrations_.statistics().bytes, 2 * kPiece);
  EXPECT_EQ(registrations_.statistics().made, 1u);
}

TEST_F(Registrations, FramesOfAnotherSizeTakeThePlaceOfThoseThatWereThere) {
  const auto first = registrations_.Find(Piece(0)).value(), second = registrations_.Find(Piece(1)).value();
  const auto both = registrations_.Find(Piece(0, 2)).value();
  EXPECT_NE(both, first);
  EXPECT_NE(both, second);
  EXPECT_EQ(registrations_.statistics().count, 1u);
  EXPECT_EQ(registrations_.statistics().bytes, 2 * kPiece);
}

TEST_F(Registrations, WhatIsForgottenCountsNoMore) {
  ASSERT_TRUE(registrations_.Find(Piece(0)).ok() && registrations_.Find(Piece(2)).ok() && registrations_.Find(Piece(5)).ok());
  registrations_.Forget(Piece(1, 3));
  EXPECT_EQ(registrations_.statistics().count, 2u);
  EXPECT_EQ(registrations_.statistics().bytes, 2 * kPiece);
  ASSERT_TRUE(registrations_.Find(Piece(2)).ok());
  EXPECT_EQ(registrations_.statistics().made, 4u);
}

}  // namespace
}  // namespace ramspan
