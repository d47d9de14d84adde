// A chunk that becomes several: their slots are parts of its own, and nothing is written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/retirable_tier.h"
#include "client/swap/slot_space.h"
#include "common/checksum.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr uint64_t kWhole = 256 << 10, kPart = 64 << 10;
constexpr size_t kParts = kWhole / kPart;

// One region in memory.
class RegionTier final : public PlainTier {
 public:
  explicit RegionTier(uint64_t bytes) : memory_(bytes) { space_.AddRegion(bytes); }
  bool may_cut = true;
  uint64_t writes = 0, reads = 0;
  uint64_t used() const { return space_.used_bytes(); }
  bool IsValid() const { return space_.IsValid(); }
  std::vector<char>& memory() { return memory_; }

  Capabilities capabilities() const noexcept override { return {.name = "region", .synchronous = true}; }
  Result<SlotRef> Reserve(size_t bytes) override {
    const SlotRef slot = space_.Reserve(bytes);
    return slot ? Result<SlotRef>(slot) : Result<SlotRef>(ResourceExhausted("full"));
  }
  bool MayCut(SlotRef slot, size_t) const noexcept override { return may_cut && !slot_bits::IsRow(slot); }
  void Free(SlotRef slot, size_t bytes) noexcept override { space_.Free(slot, bytes); }
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { Copy(batch, &writes, [](char* swap, char* frame, size_t n) { std::memcpy(swap, frame, n); }); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { Copy(batch, &reads, [](char* swap, char* frame, size_t n) { std::memcpy(frame, swap, n); }); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds) override {
    const size_t n = std::min(done.size(), done_.size());
    std::copy_n(done_.begin(), n, done.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<ptrdiff_t>(n));
    return n;
  }
  TierStats stats() const noexcept override { return {.slot_bytes_used = space_.used_bytes(), .metadata_bytes = space_.metadata_bytes()}; }

 private:
  template <typename F>
  void Copy(std::span<IoRequest* const> batch, uint64_t* count, const F& copy) {
    for (IoRequest* one : batch) {
      std::vector<Extent> extents;
      space_.Resolve(one->slot, one->bytes, &extents);
      auto* frame = static_cast<char*>(one->buffer);
      for (const Extent& e : extents) {
        copy(memory_.data() + e.offset, frame, e.bytes);
        frame += e.bytes;
      }
      one->result = StatusCode::kOk;
      one->bytes_done = one->bytes;
      ++*count;
      done_.push_back(one);
    }
  }
  std::vector<char> memory_;
  SlotSpace space_;
  std::vector<IoRequest*> done_;
};

class Cut : public testing::TestWithParam<bool> {
 protected:
  Cut() {
    auto region = std::make_unique<RegionTier>(16 * kMiB);
    region_ = region.get();
    tier_ = std::make_unique<RetirableTier>(std::move(region));
    engine_ = std::make_unique<Engine>(Engine::Options{.budget = 8 * kMiB, .preemptive = false, .checksum = GetParam()}, tier_.get(), &pins_, DefaultPolicy());
  }
  ~Cut() override {
    EXPECT_TRUE(engine_->IsValid());
    EXPECT_TRUE(region_->IsValid());
    EXPECT_EQ(region_->used(), 0u) << "a slot, or a part of one, was not given back";
  }
  static char At(uint64_t offset) { return static_cast<char>(offset / 4096 * 7 + offset % 251 + 1); }

  // In swap, unchanged, and pinned in memory.
  Chunk* Whole() {
    Chunk* const chunk = engine_->Create(kWhole).value();
    EXPECT_TRUE(engine_->AcquireCounted(chunk, true).ok());
    for (uint64_t i = 0; i < kWhole; ++i) static_cast<char*>(chunk->frame)[i] = At(i);
    Unpin(chunk);
    EvictAll();
    EXPECT_TRUE(engine_->AcquireCounted(chunk, false).ok());
    return chunk;
  }
  std::vector<Chunk*> PartsOf(const Chunk* whole) {
    std::vector<Chunk*> parts;
    for (size_t i = 0; i < kParts; ++i) {
      parts.push_back(engine_->Create(kPart).value());
      parts[i]->checksum = Checksum(static_cast<const std::byte*>(whole->frame) + i * kPart, kPart);
    }
    return parts;
  }
  void EvictAll() {
    Chunk* const all = engine_->Create(engine_->budget()->frames_limit() / kSwapGranule * kSwapGranule).value();
    EXPECT_TRUE(engine_->AcquireCounted(all, false).ok());
    Unpin(all);
    engine_->Free(all);
  }
  static void Unpin(Chunk* chunk) { chunk->state.fetch_sub(kOneCountedPin, std::memory_order_release); }
  void ExpectHolds(Chunk* chunk, uint64_t offset) {
    ASSERT_TRUE(engine_->AcquireCounted(chunk, false).ok());
    for (uint64_t i = 0; i < chunk->bytes; ++i) {
      if (static_cast<const char*>(chunk->frame)[i] != At(offset + i)) {
        ADD_FAILURE() << "byte " << i << " of what begins at " << offset << " is wrong";
        break;
      }
    }
    Unpin(chunk);
  }

  NoPins pins_;
  RegionTier* region_;
  std::unique_ptr<RetirableTier> tier_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(Cut, PartsHoldWhatTheWholeHeldAndNothingIsWritten) {
  Chunk* const whole = Whole();
  const std::vector<Chunk*> parts = PartsOf(whole);
  const uint64_t written = region_->writes, used = region_->used();
  ASSERT_TRUE(engine_->Cut(whole, parts));
  EXPECT_TRUE(engine_->IsValid());
  Unpin(whole);
  engine_->Free(whole);
  EXPECT_EQ(region_->used(), used);
  for (const size_t i : {2, 0, 3, 1}) ExpectHolds(parts[i], i * kPart);
  EvictAll();
  EXPECT_EQ(region_->writes, written) << "what swap held already was written again";
  for (size_t i = 0; i < kParts; ++i) ExpectHolds(parts[i], i * kPart);
  for (const size_t i : {1, 3, 0, 2}) {
    engine_->Free(parts[i]);
    EXPECT_EQ(region_->used() % kPart, 0u);
  }
}

TEST_P(Cut, APartThatChangesIsWrittenAlone) {
  Chunk* const whole = Whole();
  const std::vector<Chunk*> parts = PartsOf(whole);
  ASSERT_TRUE(engine_->Cut(whole, parts));
  Unpin(whole);
  engine_->Free(whole);
  const uint64_t written = region_->writes;
  ASSERT_TRUE(engine_->AcquireCounted(parts[1], true).ok());
  std::memset(parts[1]->frame, 'x', kPart);
  Unpin(parts[1]);
  EvictAll();
  EXPECT_EQ(region_->writes, written + 1);
  for (const size_t i : {0, 2, 3}) ExpectHolds(parts[i], i * kPart);
  ASSERT_TRUE(engine_->AcquireCounted(parts[1], false).ok());
  EXPECT_EQ(static_cast<const char*>(parts[1]->frame)[kPart - 1], 'x');
  Unpin(parts[1]);
  for (Chunk* part : parts) engine_->Free(part);
}

TEST_P(Cut, WhatIsNotInSwapAsItIsStaysWhole) {
  Chunk* const whole = Whole();
  const std::vector<Chunk*> parts = PartsOf(whole);
  region_->may_cut = false;
  EXPECT_FALSE(engine_->Cut(whole, parts)) << "its tier cannot";
  region_->may_cut = true;
  Unpin(whole);
  ASSERT_TRUE(engine_->AcquireCounted(whole, true).ok());
  EXPECT_FALSE(engine_->Cut(whole, parts)) << "it is changed";
  Unpin(whole);
  EvictAll();
  ASSERT_TRUE(engine_->AcquireCounted(whole, false).ok());
  tier_->Close();
  EXPECT_FALSE(engine_->Cut(whole, parts)) << "who brings home all that is in a tier that is given up would miss the parts";
  Unpin(whole);
  ExpectHolds(whole, 0);
  for (Chunk* part : parts) engine_->Free(part);
  engine_->Free(whole);
}

// The caller has found that it cannot be several, and says that what is in memory is all that there is of it.
TEST_P(Cut, TheWholeLivesOnWhereItsPartsAreDropped) {
  Chunk* const whole = Whole();
  const std::vector<Chunk*> parts = PartsOf(whole);
  ASSERT_TRUE(engine_->Cut(whole, parts));
  SetBits(whole, kDirty);
  for (Chunk* part : parts) engine_->Free(part);
  Unpin(whole);
  EvictAll();
  ExpectHolds(whole, 0);
  engine_->Free(whole);
}

TEST_P(Cut, WhatIsWrongInSwapIsFoundInThePart) {
  if (!GetParam()) GTEST_SKIP() << "without checksums nobody sees it";
  Chunk* const whole = Whole();
  const std::vector<Chunk*> parts = PartsOf(whole);
  ASSERT_TRUE(engine_->Cut(whole, parts));
  Unpin(whole);
  engine_->Free(whole);
  region_->memory()[slot_bits::GranuleOf(parts[2]->slot) * kSwapGranule + 17] ^= 1;
  EXPECT_EQ(engine_->AcquireCounted(parts[2], false).code(), StatusCode::kDataLoss);
  for (const size_t i : {0, 1, 3}) ExpectHolds(parts[i], i * kPart);
  for (Chunk* part : parts) engine_->Free(part);
}

INSTANTIATE_TEST_SUITE_P(Checksums, Cut, testing::Bool(), [](const auto& test) { return test.param ? "With" : "Without"; });

}  // namespace
}  // namespace ramspan
