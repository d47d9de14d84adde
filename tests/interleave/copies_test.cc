// Where a transfer is a copy by the thread that submits it, others that wait for one have nothing to poll for.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// Once armed, it stands still where more than kBytes have been copied out since, until it is let go. Counts who asks it for ends.
class SlowCopies final : public ForwardingTier {
 public:
  static constexpr uint64_t kBytes = 256 * kKiB;
  SlowCopies() : ForwardingTier(&inner_) {}

  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override {
    {
      std::unique_lock lock(mutex_);
      for (IoRequest* io : batch) copied_ += io->bytes;
      if (armed_ && copied_ > kBytes) {
        last_ = batch.back()->slot;
        stands_ = true;
        changed_.notify_all();
        changed_.wait_for(lock, std::chrono::seconds(20), [this] { return !armed_; });
        stands_ = false;
      }
    }
    ForwardingTier::SubmitWrite(batch);
  }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    polls += 1;
    return ForwardingTier::Poll(done, wait);
  }
  void Arm() {
    std::lock_guard lock(mutex_);
    armed_ = true;
    copied_ = 0;
  }
  void LetGo() {
    std::lock_guard lock(mutex_);
    armed_ = false;
    changed_.notify_all();
  }
  // The slot that is copied to last where it stands.
  SlotRef AwaitStanding() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [this] { return stands_; });
    return stands_ ? last_ : SlotRef{};
  }
  bool stands() {
    std::lock_guard lock(mutex_);
    return stands_;
  }
  std::atomic<uint64_t> polls{0};

 private:
  FakeTier inner_{{.seed = 5, .synchronous = true}};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool armed_ = false, stands_ = false;
  uint64_t copied_ = 0;
  SlotRef last_;
};

// Memory full of changed chunks, half of the data. A thread that needs one more copies several out together, and stands still in the middle of it.
class Copies : public testing::Test {
 protected:
  static constexpr uint64_t kChunk = 128 * kKiB;
  void SetUp() override {
    for (int i = 0; i < 256; ++i) chunks_.push_back(engine_.Create(kChunk).value());
    for (Chunk* chunk : chunks_) ASSERT_TRUE(engine_.Acquire(chunk, true).ok());
    for (Chunk* chunk : chunks_) {
      if (PhaseOf(chunk) == Phase::kResident) {
        ASSERT_TRUE(engine_.Acquire(chunk, true).ok());
      }
    }
    evictor_ = std::thread([this] {
      for (Chunk* chunk = NextSwapped(); chunk != nullptr && !stood_; chunk = NextSwapped()) {
        tier_.Arm();
        EXPECT_TRUE(engine_.Acquire(chunk, false).ok());
      }
    });
    standing_ = tier_.AwaitStanding();
    stood_ = true;
    ASSERT_TRUE(standing_) << "nothing was copied out";
  }
  void TearDown() override {
    tier_.LetGo();
    evictor_.join();
    engine_.Drain();
    EXPECT_TRUE(engine_.IsValid());
    for (Chunk* chunk : chunks_) engine_.Free(chunk);
  }
  // Null: there is none any more.
  Chunk* NextSwapped() {
    for (size_t i = next_++; i < chunks_.size(); i = next_++) {
      if (PhaseOf(chunks_[i]) == Phase::kSwapped) return chunks_[i];
    }
    return nullptr;
  }

  NoPins pins_;
  SlowCopies tier_;
  Engine engine_{{.budget = 16 * kMiB, .preemptive = false}, &tier_, &pins_, PolicyNamed("cyclic")};
  std::vector<Chunk*> chunks_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stood_{false};
  std::thread evictor_;
  SlotRef standing_;
};

TEST_F(Copies, WhoWaitsForMemoryGoesOnBeforeAllThatLeavesHasBeenCopied) {
  Chunk* const chunk = NextSwapped();
  ASSERT_NE(chunk, nullptr);
  ASSERT_TRUE(engine_.Acquire(chunk, false).ok());
  EXPECT_TRUE(tier_.stands()) << "it had to wait for all that is copied out together";
}

// A tier that copies has nothing to wait for, and says so at once. Who asked again at once would keep a core and the engine's mutex from others.
TEST_F(Copies, WhoWaitsForAnothersCopyDoesNotSpin) {
  Chunk* copied = nullptr;
  for (Chunk* chunk : chunks_) {
    if (PhaseOf(chunk) == Phase::kWriting && chunk->slot.bits == standing_.bits) copied = chunk;
  }
  ASSERT_NE(copied, nullptr);
  const uint64_t begin = tier_.polls;
  std::thread writer([&] { EXPECT_TRUE(engine_.Acquire(copied, true).ok()); });
  // They take what has become free, wait for more, and after a while copy out themselves.
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      for (Chunk* chunk = NextSwapped(); chunk != nullptr && tier_.stands(); chunk = NextSwapped()) EXPECT_TRUE(engine_.Acquire(chunk, false).ok());
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  const uint64_t polls = tier_.polls - begin;
  EXPECT_TRUE(tier_.stands());
  tier_.LetGo();
  writer.join();
  for (std::thread& reader : readers) reader.join();
  EXPECT_LT(polls, 5000u) << "by five threads in 250 ms";  // of the writer one for each 200 us
}

}  // namespace
}  // namespace ramspan
