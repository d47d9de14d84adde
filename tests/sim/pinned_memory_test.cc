// A network that pins memory: it is told of a buffer once, and from then on moves bytes from and to the pages that the buffer had at
// that moment, whatever is behind the addresses now (InfiniBand). Frames whose pages went back to the kernel get others when they
// are used again, so the network has to be told of those anew; else it sends old bytes, and what is read lands where nobody looks.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/remote_swap.h"
#include "client/swap/retirable_tier.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/forwarding_transport.h"
#include "tests/support/heap_watch.h"
#include "tests/support/local_transport.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// When the pages of which addresses have gone, as the kernel is told. Seen below the library, which can forget to say so.
class PagesThatWent {
 public:
  static PagesThatWent& Get() {
    static PagesThatWent* const pages = new PagesThatWent;
    return *pages;
  }
  void Note(uintptr_t begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (watched_) ranges_.push_back({begin, begin + bytes});
  }
  void Watch(bool watched) {
    const std::lock_guard lock(mutex_);
    watched_ = watched;
    ranges_.clear();
  }
  size_t now() {
    const std::lock_guard lock(mutex_);
    return ranges_.size();
  }
  bool Touched(uintptr_t begin, uintptr_t end, size_t since) {
    const std::lock_guard lock(mutex_);
    for (size_t i = since; i < ranges_.size(); ++i) {
      if (ranges_[i].first < end && begin < ranges_[i].second) return true;
    }
    return false;
  }

 private:
  std::mutex mutex_;
  bool watched_ = false;
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges_;
};

}  // namespace
}  // namespace ramspan

extern "C" int madvise(void* begin, size_t bytes, int advice) noexcept {
  const ramspan::UnwatchedHeap unwatched;  // other tests of this program come here, too
  if (advice == MADV_DONTNEED) ramspan::PagesThatWent::Get().Note(reinterpret_cast<uintptr_t>(begin), bytes);
  return static_cast<int>(syscall(SYS_madvise, begin, bytes, advice));
}

namespace ramspan {
namespace {

// Moves bytes as the transport inside does, and notices where a network that pins would move others.
class PinningTransport final : public ForwardingTransport {
 public:
  explicit PinningTransport(std::unique_ptr<ServerTransport> real) : ForwardingTransport(std::move(real)) {}

  void Start(std::span<const Transfer> batch) override {
    for (const Transfer& transfer : batch) Register(reinterpret_cast<uintptr_t>(transfer.buffer), transfer.bytes);
    to().Start(batch);
  }
  void ForgetMemory(std::span<std::byte> memory) noexcept override {
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    Erase(begin, begin + memory.size());
  }

  size_t stale = 0;       // transfers from or to pages that are not the buffer's any more
  size_t registered = 0;  // how often the network was told

 private:
  struct Known {
    uintptr_t end = 0;
    size_t since = 0;  // what had gone by then
  };

  void Register(uintptr_t begin, size_t bytes) {
    auto known = by_begin_.upper_bound(begin);
    if (known != by_begin_.begin() && std::prev(known)->second.end >= begin + bytes) {
      --known;
      stale += PagesThatWent::Get().Touched(known->first, known->second.end, known->second.since);
      return;
    }
    Erase(begin, begin + bytes);
    by_begin_[begin] = {begin + bytes, PagesThatWent::Get().now()};
    ++registered;
  }
  void Erase(uintptr_t begin, uintptr_t end) {
    auto one = by_begin_.lower_bound(begin);
    if (one != by_begin_.begin() && std::prev(one)->second.end > begin) --one;
    while (one != by_begin_.end() && one->first < end) one = by_begin_.erase(one);
  }

  std::map<uintptr_t, Known> by_begin_;
};

// An engine over one far server, its tier wrapped as in a program.
class PinnedMemory : public testing::Test {
 protected:
  PinnedMemory() { PagesThatWent::Get().Watch(true); }
  ~PinnedMemory() override {
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    engine_.reset();
    PagesThatWent::Get().Watch(false);
  }

  // Few addresses, so that the same ones soon come again.
  void Start(uint64_t budget, bool debug) {
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::make_unique<RetirableTier>(std::make_unique<RemoteSwap>(transport_)));
    remote_ = static_cast<RetirableTier*>(tiers[0].get());
    swap_ = std::make_unique<TieredSwap>(std::move(tiers));
    engine_ = std::make_unique<Engine>(Engine::Options{.budget = budget, .preemptive = false, .debug = debug, .addresses = 16 * kMiB}, swap_.get(), &pins_, DefaultPolicy());
  }
  void Add(uint64_t bytes) {
    chunks_.push_back(engine_->Create(bytes).value());
    letters_.push_back(0);
    Use(chunks_.size() - 1, true);
  }
  // Reads what is there, and writes something else.
  void Use(size_t i, bool write) {
    Chunk* chunk = chunks_[i];
    ASSERT_TRUE(engine_->AcquireCounted(chunk, write).ok());
    auto* bytes = static_cast<unsigned char*>(chunk->frame);
    EXPECT_TRUE(letters_[i] == 0 || (bytes[0] == letters_[i] && bytes[chunk->bytes - 1] == letters_[i]));
    if (write) std::memset(bytes, ++letters_[i], chunk->bytes);
    chunk->state.fetch_sub(kOneCountedPin);
  }
  void UseAll(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < chunks_.size(); ++i) Use(i, random_() % 2 == 0);
    }
  }

  std::mt19937 random_{1};
  NoPins pins_;
  LocalServers servers_{{.pool_bytes = 64 * kMiB}};
  PinningTransport transport_{servers_.Connect(0)};
  RetirableTier* remote_ = nullptr;
  std::unique_ptr<TieredSwap> swap_;
  std::unique_ptr<Engine> engine_;
  std::vector<Chunk*> chunks_;
  std::vector<unsigned char> letters_;
};

TEST_F(PinnedMemory, FramesThatComeAgainAreRegisteredOnce) {
  Start(2 * kMiB, false);
  for (int i = 0; i < 64; ++i) Add(64 << 10);
  UseAll(4);
  EXPECT_EQ(transport_.stale, 0u);
  EXPECT_LE(transport_.registered, 2 * kMiB / (64 << 10)) << "as many as there are frames";
}

// One class of frames with two sizes: a frame of one gives its pages back so that one of the other can have the room.
TEST_F(PinnedMemory, PagesThatWentForAnotherSizeOfFramesAreForgotten) {
  Start(2 * kMiB, false);
  for (int i = 0; i < 32; ++i) {
    Add(40 << 10);
    Add(64 << 10);
    if (i % 8 == 0) Add(512 << 10);
  }
  UseAll(4);
  EXPECT_EQ(transport_.stale, 0u);
}

TEST_F(PinnedMemory, PagesThatWentBecauseTheLimitFellAreForgotten) {
  Start(4 * kMiB, false);
  for (int i = 0; i < 16; ++i) Add(512 << 10);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(engine_->SetBudget(2 * kMiB).ok());
    UseAll(1);
    ASSERT_TRUE(engine_->SetBudget(4 * kMiB).ok());
    UseAll(1);
  }
  EXPECT_EQ(transport_.stale, 0u);
}

// Debug mode unmaps each frame that comes back.
TEST_F(PinnedMemory, PagesOfFramesInQuarantineAreForgotten) {
  Start(4 * kMiB, true);
  for (int i = 0; i < 16; ++i) Add(512 << 10);
  UseAll(6);  // more frames than there are addresses: those of the oldest come again
  EXPECT_EQ(transport_.stale, 0u);
}

TEST_F(PinnedMemory, FramesThatGoAfterRemoteMemoryHasEndedTellNobody) {
  Start(4 * kMiB, false);
  for (int i = 0; i < 6; ++i) Add(512 << 10);
  ASSERT_TRUE(engine_->SetBudget(4 * kMiB).ok());
  engine_->Drain();
  remote_->Retire();
  ASSERT_TRUE(engine_->SetBudget(3 * kMiB + 512 * 1024).ok());
}

}  // namespace
}  // namespace ramspan
