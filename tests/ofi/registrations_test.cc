// Local buffers that the network has to know: made at their first use, kept, counted.
#include <gtest/gtest.h>

#include <vector>

#include "client/transport/ofi_registrations.h"

namespace ramspan {
namespace {

constexpr size_t kPiece = size_t{64} << 10;

class Registrations : public testing::Test {
 protected:
  Registrations() : Registrations(OfiRegistrations::kCountMax) {}
  explicit Registrations(size_t count_max, uint64_t bytes_max = 0)
      : memory_(128 * kPiece),
        registrations_(FabricDomain::OpenAt("127.0.0.1", {.register_local = true, .local_bytes_max = bytes_max}).value(), count_max) {}
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

// A limit of locked memory shows what is really closed.
class RegistrationsOfAMegabyte : public Registrations {
 protected:
  RegistrationsOfAMegabyte() : Registrations(OfiRegistrations::kCountMax, 16 * kPiece) {}
};

TEST_F(RegistrationsOfAMegabyte, WhatIsForgottenIsClosedOnceNobodyUsesItAndBeforeMoreIsRegistered) {
  auto used = registrations_.Find(Piece(0, 8)).value();
  ASSERT_TRUE(registrations_.Find(Piece(8, 8)).ok());
  registrations_.Forget(Piece(0, 16));
  EXPECT_EQ(registrations_.statistics().count, 0u);
  EXPECT_TRUE(registrations_.Find(Piece(8, 8)).ok()) << "anew, beside the one that a transfer uses";
  EXPECT_EQ(registrations_.statistics().made, 3u);
  EXPECT_FALSE(registrations_.Find(Piece(16, 16)).ok()) << "half of what may be registered is in use";
  used.reset();
  EXPECT_TRUE(registrations_.Find(Piece(16, 16)).ok());
}

class FewRegistrations : public Registrations {
 protected:
  FewRegistrations() : Registrations(64) {}
};

TEST_F(FewRegistrations, AFewThatWereNotUsedLatelyMakeRoomAndTheOthersStay) {
  for (size_t i = 0; i < 64; ++i) ASSERT_TRUE(registrations_.Find(Piece(i)).ok());
  for (size_t i = 0; i < 64; i += 4) ASSERT_TRUE(registrations_.Find(Piece(i)).ok());  // these are used again and again
  ASSERT_TRUE(registrations_.Find(Piece(64)).ok());
  EXPECT_GT(registrations_.statistics().count, 16u) << "not all of them at once";
  EXPECT_LE(registrations_.statistics().count, 64u);
  for (size_t i = 0; i < 64; i += 4) ASSERT_TRUE(registrations_.Find(Piece(i)).ok());
  EXPECT_EQ(registrations_.statistics().made, 65u) << "what is used often was not made again";
}

TEST_F(FewRegistrations, WhatTransfersUseStaysHoweverManyMoreCome) {
  std::vector<std::shared_ptr<const FabricRegion>> used;
  for (size_t i = 0; i < 80; ++i) used.push_back(registrations_.Find(Piece(i)).value());
  for (size_t i = 0; i < 80; ++i) EXPECT_EQ(registrations_.Find(Piece(i)).value(), used[i]);
  used.clear();
  for (size_t i = 80; i < 128; ++i) ASSERT_TRUE(registrations_.Find(Piece(i)).ok());
  EXPECT_LE(registrations_.statistics().count, 80u);
}

}  // namespace
}  // namespace ramspan
