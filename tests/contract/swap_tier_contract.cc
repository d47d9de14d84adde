#include "tests/contract/swap_tier_contract.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "common/checksum.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr auto kDeadline = std::chrono::seconds(60);  // for anything; a tier that needs longer hangs
constexpr std::byte kCanary{0xc5};

// A chunk of the test: a slot, an aligned buffer with a canary behind its last granule, a request.
class Chunk {
 public:
  explicit Chunk(size_t bytes) : padded_(RoundUpToGranule(bytes)) {
    buffer_ = static_cast<std::byte*>(std::aligned_alloc(kSwapGranule, padded_ + kSwapGranule));
    std::memset(buffer_, 0, padded_);
    std::memset(buffer_ + padded_, static_cast<int>(kCanary), kSwapGranule);
    request_.buffer = buffer_;
    request_.bytes = bytes;
    request_.cookie = this;
  }
  ~Chunk() { std::free(buffer_); }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  void Fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (size_t at = 0; at < bytes(); at += sizeof(uint64_t)) {
      const uint64_t word = random();
      std::memcpy(buffer_ + at, &word, std::min(sizeof word, bytes() - at));
    }
    checksum_ = Checksum(buffer_, bytes());
  }
  void Wipe() { std::memset(buffer_, 0xee, padded_); }
  bool HoldsWhatWasFilled() const { return Checksum(buffer_, bytes()) == checksum_; }
  bool CanaryLives() const {
    return std::all_of(buffer_ + padded_, buffer_ + padded_ + kSwapGranule, [](std::byte b) { return b == kCanary; });
  }

  // Counts what Poll returned; the owner of the request may be another thread than the poller.
  static void NoteReturned(IoRequest* request) {
    static_cast<Chunk*>(request->cookie)->returned_.fetch_add(1, std::memory_order_release);
  }
  int returned() const { return returned_.load(std::memory_order_acquire); }
  void ForgetReturned() { returned_.store(0, std::memory_order_relaxed); }

  IoRequest* request() { return &request_; }
  size_t bytes() const { return request_.bytes; }
  SlotRef slot() const { return request_.slot; }
  uint64_t checksum() const { return checksum_; }
  void set_slot(SlotRef slot) { request_.slot = slot; }

 private:
  const size_t padded_;
  std::byte* buffer_;
  uint64_t checksum_ = 0;
  IoRequest request_;
  std::atomic<int> returned_{0};
};

using Chunks = std::vector<std::unique_ptr<Chunk>>;

testing::AssertionResult Succeeded(SwapTier& tier, Chunk& chunk) {
  const IoRequest& r = *chunk.request();
  if (r.result != StatusCode::kOk) return testing::AssertionFailure() << StatusCodeName(r.result);
  if (r.bytes_done != r.bytes) return testing::AssertionFailure() << r.bytes_done << " of " << r.bytes << " bytes";
  if (!chunk.CanaryLives()) return testing::AssertionFailure() << "bytes behind the buffer were overwritten";
  if (!chunk.HoldsWhatWasFilled()) return testing::AssertionFailure() << "wrong bytes, chunk of " << r.bytes;
  if (tier.CapabilitiesOf(r.slot).checksums && r.checksum != chunk.checksum()) {
    return testing::AssertionFailure() << "wrong checksum, chunk of " << r.bytes;
  }
  return testing::AssertionSuccess();
}

// Polls until all of `chunks` were returned.
testing::AssertionResult CollectAll(SwapTier& tier, const std::vector<Chunk*>& chunks) {
  const auto deadline = steady_clock::now() + kDeadline;
  IoRequest* done[5];  // smaller than most batches
  const auto is_back = [](const Chunk* chunk) { return chunk->returned() > 0; };
  while (!std::all_of(chunks.begin(), chunks.end(), is_back)) {
    if (steady_clock::now() > deadline) return testing::AssertionFailure() << "requests are not returned";
    const size_t count = tier.Poll(done, microseconds(1000));
    for (size_t i = 0; i < count; ++i) Chunk::NoteReturned(done[i]);
  }
  for (Chunk* chunk : chunks) {
    if (chunk->returned() == 1) continue;
    return testing::AssertionFailure() << "a request was returned " << chunk->returned() << " times";
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult Transfer(SwapTier& tier, const std::vector<Chunk*>& chunks, bool is_write) {
  std::vector<IoRequest*> requests;
  for (Chunk* chunk : chunks) {
    chunk->ForgetReturned();
    if (!is_write) chunk->Wipe();
    requests.push_back(chunk->request());
  }
  is_write ? tier.SubmitWrite(requests) : tier.SubmitRead(requests);
  if (testing::AssertionResult collected = CollectAll(tier, chunks); !collected) return collected;
  for (Chunk* chunk : chunks) {
    if (testing::AssertionResult ok = Succeeded(tier, *chunk); !ok) return ok;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult Write(SwapTier& tier, Chunk& chunk) { return Transfer(tier, {&chunk}, true); }
testing::AssertionResult Read(SwapTier& tier, Chunk& chunk) { return Transfer(tier, {&chunk}, false); }

std::unique_ptr<Chunk> Reserved(SwapTier& tier, size_t bytes) {
  auto chunk = std::make_unique<Chunk>(bytes);
  Result<SlotRef> slot = tier.Reserve(bytes);
  EXPECT_TRUE(slot.ok()) << bytes << " bytes: " << slot.status().message();
  if (!slot.ok()) return nullptr;
  EXPECT_TRUE(slot.value()) << "an empty slot is no slot";
  chunk->set_slot(slot.value());
  return chunk;
}

void FreeAll(SwapTier& tier, const Chunks& chunks) {
  for (const auto& chunk : chunks) tier.Free(chunk->slot(), chunk->bytes());
}

std::vector<Chunk*> Pointers(const Chunks& chunks) {
  std::vector<Chunk*> pointers;
  for (const auto& chunk : chunks) pointers.push_back(chunk.get());
  return pointers;
}

// Slots of `bytes` until the tier says that it is full.
std::vector<SlotRef> ReserveUntilFull(SwapTier& tier, size_t bytes, uint64_t capacity) {
  std::vector<SlotRef> slots;
  for (uint64_t taken = 0; taken <= 4 * capacity; taken += bytes) {
    Result<SlotRef> slot = tier.Reserve(bytes);
    if (!slot.ok()) {
      EXPECT_EQ(slot.status().code(), StatusCode::kResourceExhausted);
      EXPECT_FALSE(slot.status().message().empty()) << "a full tier says what to enlarge";
      return slots;
    }
    slots.push_back(slot.value());
  }
  ADD_FAILURE() << "the tier took four times its capacity";
  return slots;
}

TEST_P(SwapTierContract, RoundTripsEverySize) {
  for (size_t bytes : {size_t{1}, size_t{2}, size_t{511}, size_t{512}, size_t{513}, size_t{4095}, size_t{4096},
                       size_t{4097}, size_t{12345}, 64 * kKiB - 1, 64 * kKiB, 64 * kKiB + 1, size_t{100'003}, kMiB - 1,
                       kMiB, kMiB + 1, 3 * kMiB + 5, 5 * kMiB}) {
    const std::unique_ptr<Chunk> chunk = Reserved(*tier_, bytes);
    ASSERT_NE(chunk, nullptr);
    chunk->Fill(bytes);
    ASSERT_TRUE(Write(*tier_, *chunk)) << bytes;
    ASSERT_TRUE(Read(*tier_, *chunk)) << bytes;
    tier_->Free(chunk->slot(), bytes);
  }
}

TEST_P(SwapTierContract, EachOfManyRequestsInFlightIsReturnedExactlyOnce) {
  std::mt19937_64 random(20260731);
  Chunks chunks;
  for (uint64_t i = 0; i < 48; ++i) {
    chunks.push_back(Reserved(*tier_, 1 + random() % (128 * kKiB)));
    ASSERT_NE(chunks.back(), nullptr);
    chunks.back()->Fill(i);
  }
  std::vector<Chunk*> order = Pointers(chunks);
  ASSERT_TRUE(Transfer(*tier_, order, true));
  for (int round = 0; round < 5; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    ASSERT_TRUE(Transfer(*tier_, order, false)) << "round " << round;
  }
  IoRequest* more[4];
  EXPECT_EQ(tier_->Poll(more, microseconds(0)), 0u);
  FreeAll(*tier_, chunks);
}

TEST_P(SwapTierContract, ReadsAndWritesOfDifferentSlotsMayMix) {
  Chunks chunks;
  for (uint64_t i = 0; i < 16; ++i) {
    chunks.push_back(Reserved(*tier_, 20 * kKiB + 100 * i));
    ASSERT_NE(chunks.back(), nullptr);
    chunks.back()->Fill(i);
  }
  ASSERT_TRUE(Transfer(*tier_, Pointers(chunks), true));
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      Chunk& chunk = *chunks[i];
      chunk.ForgetReturned();
      IoRequest* one[] = {chunk.request()};
      if ((i + static_cast<size_t>(round)) % 2 == 0) {
        chunk.Fill(1000 * static_cast<uint64_t>(round) + i);
        tier_->SubmitWrite(one);
      } else {
        chunk.Wipe();
        tier_->SubmitRead(one);
      }
    }
    ASSERT_TRUE(CollectAll(*tier_, Pointers(chunks)));
    for (const auto& chunk : chunks) ASSERT_TRUE(Succeeded(*tier_, *chunk)) << "round " << round;
  }
  FreeAll(*tier_, chunks);
}

// One thread's part of the test below: its own chunks, but Poll may hand it any thread's requests.
void WriteAndReadInOneOfManyThreads(SwapTier* tier, uint64_t seed, std::atomic<int>* failures) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40 && *failures == 0; ++round) {
    Chunks chunks;
    for (uint64_t i = 0; i < 4; ++i) {
      auto chunk = std::make_unique<Chunk>(1 + random() % (round % 8 == 0 ? 700 * kKiB : 40 * kKiB));
      Result<SlotRef> slot = tier->Reserve(chunk->bytes());
      if (!slot.ok()) return void(failures->fetch_add(1));
      chunk->set_slot(slot.value());
      chunk->Fill(random());
      chunks.push_back(std::move(chunk));
    }
    const bool ok = Transfer(*tier, Pointers(chunks), true) && Transfer(*tier, Pointers(chunks), false);
    if (!ok) failures->fetch_add(1);
    FreeAll(*tier, chunks);
  }
}

TEST_P(SwapTierContract, FourThreadsSubmitAndPollAtOnce) {
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) threads.emplace_back(WriteAndReadInOneOfManyThreads, tier_.get(), t + 1, &failures);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  IoRequest* more[4];
  EXPECT_EQ(tier_->Poll(more, microseconds(0)), 0u);
}

TEST_P(SwapTierContract, AFullTierSaysSoAndTakesAgainWhatWasFreed) {
  const size_t bytes = 256 * kKiB;
  std::vector<SlotRef> slots = ReserveUntilFull(*tier_, bytes, GetParam().capacity_bytes);
  EXPECT_GE(slots.size() * bytes, GetParam().capacity_bytes);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < slots.size(); i += 3) {
      tier_->Free(slots[i], bytes);
      Result<SlotRef> again = tier_->Reserve(bytes);
      ASSERT_TRUE(again.ok()) << again.status().message();
      slots[i] = again.value();
    }
  }
  for (SlotRef slot : slots) tier_->Free(slot, bytes);
}

TEST_P(SwapTierContract, ALargeChunkIsTakenFromSmallHoles) {
  const size_t hole = 64 * kKiB;
  std::vector<SlotRef> slots = ReserveUntilFull(*tier_, hole, GetParam().capacity_bytes);
  ASSERT_GE(slots.size(), 64u);
  for (size_t i = 0; i < slots.size(); i += 2) tier_->Free(slots[i], hole);
  const std::unique_ptr<Chunk> chunk = Reserved(*tier_, 16 * hole - 77);
  ASSERT_NE(chunk, nullptr);
  chunk->Fill(5);
  EXPECT_TRUE(Write(*tier_, *chunk));
  EXPECT_TRUE(Read(*tier_, *chunk));
  tier_->Free(chunk->slot(), chunk->bytes());
  for (size_t i = 1; i < slots.size(); i += 2) tier_->Free(slots[i], hole);
}

// The slots of one tier and side, which is where one may be made of several: that of the last one.
std::vector<HeldSlot> OfOneSpace(const std::vector<SlotRef>& slots, size_t bytes) {
  std::vector<HeldSlot> space;
  const auto same = [&](SlotRef slot) {
    return slot_bits::TierPlusOne(slot) == slot_bits::TierPlusOne(slots.back()) && slot_bits::IsFar(slot) == slot_bits::IsFar(slots.back());
  };
  for (const SlotRef slot : slots) {
    if (same(slot)) space.push_back({slot, bytes});
  }
  return space;
}

TEST_P(SwapTierContract, AFullTierCutsASlotFromThePlacesOfOthers) {
  const size_t each = 64 * kKiB;
  std::vector<SlotRef> slots = ReserveUntilFull(*tier_, each, GetParam().capacity_bytes);
  const std::vector<SlotRef> rest = ReserveUntilFull(*tier_, kSwapGranule, GetParam().capacity_bytes);
  const std::vector<HeldSlot> given = OfOneSpace(slots, each);
  ASSERT_GE(given.size(), 6u);
  Chunk other(each);  // stays
  other.set_slot(given[5].slot);
  other.Fill(1);
  EXPECT_TRUE(Write(*tier_, other));

  size_t taken = 0;
  EXPECT_FALSE(tier_->TryExchange(std::span(given).first(2), 2 * each + 1, &taken)) << "they are too small";
  EXPECT_FALSE(tier_->TryExchange({}, each, &taken));
  Chunk chunk(3 * each - 77);
  const uint64_t used = tier_->stats().slot_bytes_used;
  chunk.set_slot(tier_->TryExchange(std::span(given).first(5), chunk.bytes(), &taken));
  ASSERT_TRUE(chunk.slot());
  EXPECT_EQ(taken, 3u);
  EXPECT_EQ(tier_->stats().slot_bytes_used, used);
  chunk.Fill(2);
  EXPECT_TRUE(Transfer(*tier_, {&chunk}, true));
  EXPECT_TRUE(Transfer(*tier_, {&chunk, &other}, false));

  for (const HeldSlot& gone : std::span(given).first(3)) std::erase(slots, gone.slot);
  tier_->Free(chunk.slot(), chunk.bytes());
  for (const SlotRef slot : slots) tier_->Free(slot, each);
  for (const SlotRef slot : rest) tier_->Free(slot, kSwapGranule);
}

TEST_P(SwapTierContract, AChunkLargerThanARegionRoundTrips) {
  if (GetParam().region_bytes == 0) GTEST_SKIP() << "has no regions";
  // A small slot first, so that regions exist and the chunk cannot simply get one made to measure.
  const std::unique_ptr<Chunk> small = Reserved(*tier_, 3);
  const std::unique_ptr<Chunk> chunk = Reserved(*tier_, GetParam().region_bytes + 12'345);
  ASSERT_TRUE(small != nullptr && chunk != nullptr);
  small->Fill(1);
  chunk->Fill(2);
  EXPECT_TRUE(Transfer(*tier_, {small.get(), chunk.get()}, true));
  EXPECT_TRUE(Transfer(*tier_, {chunk.get(), small.get()}, false));
  tier_->Free(small->slot(), small->bytes());
  tier_->Free(chunk->slot(), chunk->bytes());
}

TEST_P(SwapTierContract, DistinctSlotsNeverOverlap) {
  std::mt19937_64 random(7);
  Chunks chunks;
  for (uint64_t taken = 0; taken < GetParam().capacity_bytes * 3 / 4;) {
    chunks.push_back(Reserved(*tier_, 1 + random() % (random() % 8 == 0 ? kMiB : 30 * kKiB)));
    ASSERT_NE(chunks.back(), nullptr);
    chunks.back()->Fill(taken);
    taken += RoundUpToGranule(chunks.back()->bytes());
    if (random() % 4 != 0) continue;
    taken -= RoundUpToGranule(chunks.back()->bytes());
    tier_->Free(chunks.back()->slot(), chunks.back()->bytes());
    chunks.pop_back();
  }
  ASSERT_TRUE(Transfer(*tier_, Pointers(chunks), true));
  std::vector<Chunk*> order = Pointers(chunks);
  std::shuffle(order.begin(), order.end(), random);
  ASSERT_TRUE(Transfer(*tier_, order, false));
  FreeAll(*tier_, chunks);
}

TEST_P(SwapTierContract, ARewriteInPlaceReplacesTheBytes) {
  const std::unique_ptr<Chunk> chunk = Reserved(*tier_, 70'001);
  ASSERT_NE(chunk, nullptr);
  for (uint64_t version = 0; version < 5; ++version) {
    chunk->Fill(version);
    ASSERT_TRUE(Write(*tier_, *chunk));
    ASSERT_TRUE(Read(*tier_, *chunk)) << "version " << version;
  }
  tier_->Free(chunk->slot(), chunk->bytes());
}

TEST_P(SwapTierContract, AFreedSlotServesAnotherChunk) {
  for (uint64_t i = 0; i < 20; ++i) {
    const std::unique_ptr<Chunk> chunk = Reserved(*tier_, 1 + i * 3001);
    ASSERT_NE(chunk, nullptr);
    chunk->Fill(i);
    ASSERT_TRUE(Write(*tier_, *chunk));
    ASSERT_TRUE(Read(*tier_, *chunk));
    tier_->Free(chunk->slot(), chunk->bytes());
  }
}

TEST_P(SwapTierContract, StatisticsAddUp) {
  const TierStats before = tier_->stats();
  Chunks chunks;
  uint64_t bytes = 0, granules = 0;
  for (size_t i = 1; i <= 10; ++i) {
    chunks.push_back(Reserved(*tier_, i * 5000));
    ASSERT_NE(chunks.back(), nullptr);
    chunks.back()->Fill(i);
    bytes += i * 5000;
    granules += RoundUpToGranule(i * 5000);
  }
  ASSERT_TRUE(Transfer(*tier_, Pointers(chunks), true));
  ASSERT_TRUE(Transfer(*tier_, Pointers(chunks), false));
  ASSERT_TRUE(Transfer(*tier_, Pointers(chunks), false));
  const TierStats held = tier_->stats();
  EXPECT_EQ(held.writes - before.writes, 10u);
  EXPECT_EQ(held.reads - before.reads, 20u);
  EXPECT_EQ(held.bytes_written - before.bytes_written, bytes);
  EXPECT_EQ(held.bytes_read - before.bytes_read, 2 * bytes);
  EXPECT_EQ(held.errors, before.errors);
  EXPECT_EQ(held.slot_bytes_used - before.slot_bytes_used, granules);
  EXPECT_LE(held.slot_bytes_used, held.slot_bytes_capacity);
  FreeAll(*tier_, chunks);
  EXPECT_EQ(tier_->stats().slot_bytes_used, before.slot_bytes_used);
}

TEST_P(SwapTierContract, PollWithNothingInFlightReturnsAtOnce) {
  IoRequest* done[4];
  const auto begin = steady_clock::now();
  EXPECT_EQ(tier_->Poll(done, std::chrono::seconds(10)), 0u);
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(10)) << "the time that it may wait";
}

TEST_P(SwapTierContract, EmptyBatchesAndEmptyPollsDoNothing) {
  tier_->SubmitWrite({});
  tier_->SubmitRead({});
  EXPECT_EQ(tier_->Poll({}, microseconds(1000)), 0u);
  tier_->Upkeep();
}

TEST_P(SwapTierContract, MoreRequestsThanMaxInFlightAreAllServed) {
  const size_t count = std::min<size_t>(3 * tier_->capabilities().max_in_flight, 400);
  Chunks chunks;
  for (uint64_t i = 0; i < count; ++i) {
    chunks.push_back(Reserved(*tier_, 9000));
    ASSERT_NE(chunks.back(), nullptr);
    chunks.back()->Fill(i);
  }
  EXPECT_TRUE(Transfer(*tier_, Pointers(chunks), true));
  EXPECT_TRUE(Transfer(*tier_, Pointers(chunks), false));
  FreeAll(*tier_, chunks);
}

}  // namespace
}  // namespace ramspan
