// The heap (operator new) may have no more, in the middle of anything. Nothing may come of that but an error: not the program's end, no
// chunk that stays closed or in flight, no frame or slot that is lost, and no byte. The memory limit does not help: it is about frames
// and descriptors, and std::bad_alloc comes from what is beside it.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "client/front/throw_status.h"
#include "client/runtime/mover.h"
#include "client/swap/file_swap.h"
#include "client/swap/lease_space.h"
#include "client/swap/remote_swap.h"
#include "client/swap/retirable_tier.h"
#include "client/swap/store_swap.h"
#include "client/swap/tiered_swap.h"
#include "ramspan/errors.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/heap_watch.h"
#include "tests/support/local_transport.h"
#include "tests/support/map_store.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"
#include "tests/support/unwatched_transport.h"

namespace ramspan {
namespace {

// Each call of the port finds no heap now and then: those that may throw do, and of a batch each request for itself is refused.
class HeaplessTier final : public ForwardingTier {
 public:
  HeaplessTier(SwapTier* tier, uint64_t seed) : ForwardingTier(tier), random_(seed) {}
  double rate = 0;
  mutable std::map<std::string, int> failed;  // how often each

  Result<SlotRef> Reserve(size_t bytes) override { return MayThrow("Reserve"), ForwardingTier::Reserve(bytes); }
  Result<SlotRef> TryReserve(size_t bytes) override { return MayThrow("TryReserve"), ForwardingTier::TryReserve(bytes); }
  // It is asked seldom, so each second time.
  Status MakeRoom(size_t bytes, Patience patience) override {
    if (rate > 0 && ++asked_for_room_ % 2 != 0) {
      ++failed["MakeRoom"];
      throw std::bad_alloc();
    }
    return ForwardingTier::MakeRoom(bytes, patience);
  }
  SlotRef TryMoveUp(SlotRef slot, size_t bytes) override { return MayThrow("TryMoveUp"), ForwardingTier::TryMoveUp(slot, bytes); }
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override {
    return MayThrow("TryExchange"), ForwardingTier::TryExchange(given, bytes, taken);
  }
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { Submit(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { Submit(batch, false); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    MayThrow("Poll");
    size_t n = 0;
    for (; n < done.size() && !refused_.empty(); refused_.pop_back()) done[n++] = refused_.back();
    return n > 0 ? n : ForwardingTier::Poll(done, wait);
  }
  void Upkeep() override { MayThrow("Upkeep"), ForwardingTier::Upkeep(); }

 private:
  bool Fails(const char* call) {
    if (std::uniform_real_distribution<>(0, 1)(random_) >= rate) return false;
    ++failed[call];
    return true;
  }
  void MayThrow(const char* call) {
    if (Fails(call)) throw std::bad_alloc();
  }
  void Submit(std::span<IoRequest* const> batch, bool is_write) {
    for (IoRequest* request : batch) {
      if (Fails(is_write ? "SubmitWrite" : "SubmitRead")) {
        request->is_write = is_write;
        request->result = StatusCode::kFailedPrecondition;
        request->bytes_done = 0;
        refused_.push_back(request);
      } else {
        IoRequest* const one[] = {request};
        is_write ? ForwardingTier::SubmitWrite(one) : ForwardingTier::SubmitRead(one);
      }
    }
  }
  std::mt19937_64 random_;
  int asked_for_room_ = 0;
  std::vector<IoRequest*> refused_;
};

// ScarceObjects of several sizes, each with the bytes of its last write.
class ScarceObjects {
 public:
  explicit ScarceObjects(Engine* engine) : engine_(engine) {}
  ~ScarceObjects() {
    for (One& one : all_) engine_->Free(one.chunk);
  }
  void Make(int count) {
    for (int i = 0; i < count; ++i) {
      all_.push_back({engine_->Create(4096 * (1 + i % 5) - i % 7).value()});
      ASSERT_TRUE(Access(all_.size() - 1, true).ok());
    }
  }
  // What the engine says; bytes that are not those of the last write fail the test.
  Status Access(size_t i, bool write, const std::function<Status(Chunk*, bool)>& acquire) {
    One& one = all_[i];
    Status status = acquire(one.chunk, write);
    if (!status.ok()) return status;
    auto* bytes = static_cast<unsigned char*>(one.chunk->frame);
    if (one.version != 0) {
      EXPECT_EQ(bytes[0], Letter(i)) << "object " << i;
      EXPECT_EQ(std::memcmp(bytes, bytes + 1, one.chunk->bytes - 1), 0) << "object " << i;
    }
    if (!write) return status;
    ++one.version;
    std::memset(bytes, Letter(i), one.chunk->bytes);
    return status;
  }
  Status Access(size_t i, bool write) {
    return Access(i, write, [this](Chunk* chunk, bool w) { return engine_->Acquire(chunk, w); });
  }
  size_t size() const { return all_.size(); }

 private:
  struct One {
    Chunk* chunk;
    int version = 0;
  };
  unsigned char Letter(size_t i) const { return static_cast<unsigned char>(i * 31 + static_cast<size_t>(all_[i].version) * 7 + 1); }
  Engine* const engine_;
  std::vector<One> all_;
};

// Of the heap, or of writes that fail again and again because of it.
bool IsOfTheHeap(const Status& status) {
  return status.code() == StatusCode::kFailedPrecondition || status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kResourceExhausted;
}

struct Fakes {
  explicit Fakes(uint64_t seed, uint64_t lower_bytes) {
    std::vector<std::unique_ptr<SwapTier>> tiers;
    for (const bool upper : {true, false}) {
      auto tier = std::make_unique<FakeTier>(FakeTierOptions{.seed = seed, .capacity_bytes = upper ? kMiB / 4 : lower_bytes, .full_asks = !upper && seed % 2 == 0});
      fakes.push_back(tier.get());
      tiers.push_back(std::move(tier));
    }
    swap = std::make_unique<TieredSwap>(std::move(tiers), std::chrono::milliseconds(0));
  }
  std::vector<FakeTier*> fakes;
  std::unique_ptr<TieredSwap> swap;
};

// One thread is the program and the mover in turn, so that a seed is one run.
TEST(HeapGone, WhateverCallOfATierFindsNoneNoByteIsLost) {
  std::map<std::string, int> failed;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fakes under(seed, seed % 3 == 0 ? kMiB : 8 * kMiB);  // full, or with room
    HeaplessTier tier(under.swap.get(), seed);
    NoPins pins;
    Engine engine({.budget = kMiB, .deadlock_settle = std::chrono::milliseconds(0)}, &tier, &pins, DefaultPolicy());
    {
      ScarceObjects objects(&engine);
      objects.Make(140);
      std::mt19937_64 random(seed);
      tier.rate = 0.15;
      for (int step = 0; step < 600; ++step) {
        const size_t i = step % 3 ? static_cast<size_t>(step) % objects.size() : random() % objects.size();
        const Status status = objects.Access(i, random() % 3 == 0);
        ASSERT_TRUE(status.ok() || IsOfTheHeap(status)) << status.ToString();
        engine.MoverStep();
        ASSERT_TRUE(engine.IsValid()) << step;
      }
      tier.rate = 0;
      for (size_t i = 0; i < objects.size(); ++i) {
        const Status status = objects.Access(i, false);
        ASSERT_TRUE(status.ok()) << i << ": " << status.ToString();
      }
      EXPECT_GT(engine.heap_failures(), 0u);
    }
    engine.Drain();
    EXPECT_TRUE(engine.IsValid());
    EXPECT_EQ(engine.counters().resident_bytes, 0u);
    for (const FakeTier* fake : under.fakes) EXPECT_EQ(fake->slots(), 0u) << "slots that nobody has";
    for (const auto& [call, times] : tier.failed) failed[call] += times;
  }
  for (const char* call : {"TryReserve", "MakeRoom", "TryMoveUp", "TryExchange", "SubmitWrite", "SubmitRead", "Poll", "Upkeep"}) {
    EXPECT_GT(failed[call], 0) << call;
  }
}

// What the program is told names the remedy, and the object is as it was.
TEST(HeapGone, TheProgramIsToldWhatToDo) {
  Fakes under(1, 8 * kMiB);
  HeaplessTier tier(under.swap.get(), 1);
  NoPins pins;
  Engine engine({.budget = kMiB, .preemptive = false}, &tier, &pins, DefaultPolicy());
  ScarceObjects objects(&engine);
  objects.Make(200);
  for (size_t i = 0; i < objects.size(); ++i) ASSERT_TRUE(objects.Access(i, false).ok());
  tier.rate = 1;
  Status status;
  const std::function<Status(Chunk*, bool)> acquire = [&](Chunk* chunk, bool write) {
    tier.rate = 0.9;  // not 1: what never ends is waited for
    Status result = engine.Acquire(chunk, write);
    tier.rate = 0;
    return result;
  };
  for (size_t i = 0; i < objects.size() && status.ok(); ++i) status = objects.Access(i, false, acquire);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();  // the public OutOfMemory
  EXPECT_NE(status.message().find("lower the limit"), std::string::npos) << status.message();
  for (size_t i = 0; i < objects.size(); ++i) ASSERT_TRUE(objects.Access(i, false).ok());
}

// The text of OutOfMemory was copied to the heap that had none, so programs got std::bad_alloc in its place.
TEST(HeapGone, TheExceptionThatSaysSoNeedsNone) {
  uint64_t random = 1;
  try {
    const ScarceHeap none(&random, 1);
    ThrowStatus(OutOfHeap());
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("lower the limit"), std::string::npos) << error.what();
    return;
  }
  FAIL() << "nothing was thrown";
}

// It was half gone: its region removed, itself still noted. The next look ended the program.
TEST(HeapGone, AnIdleLeaseIsTakenWholeOrNotAtAll) {
  LeaseSpace space;
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(space.Add({.id = i, .offset = i * kMiB, .bytes = kMiB}));
  std::vector<LeaseSpace::Lease> idle;
  uint64_t random = 1;
  EXPECT_THROW(
      {
        const ScarceHeap none(&random, 1);
        space.TakeIdle({}, {}, 0, &idle);
      },
      std::bad_alloc);
  EXPECT_TRUE(idle.empty());
  EXPECT_EQ(space.leases(), 3u);
  space.TakeIdle({}, {}, 0, &idle);
  EXPECT_EQ(idle.size(), 3u);
  EXPECT_EQ(space.leases(), 0u);
}

// They were collected in a list first, in a destructor: std::terminate in MPI_Finalize.
TEST(HeapGone, LeasesAreGivenBackAtTheEnd) {
  LocalServers servers({.servers = 2, .near = 1});
  UnwatchedTransport transport(servers.Connect(0));
  auto swap = std::make_unique<RemoteSwap>(transport, RemoteSwapOptions{});
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(swap->Reserve(kMiB).ok());
  ASSERT_GT(servers.server(0).leases().leases() * servers.server(1).leases().leases(), 0u);
  {
    const EndingHeap none(0);
    swap.reset();
  }
  transport.Receive();
  for (uint32_t i = 0; i < 2; ++i) EXPECT_EQ(servers.server(i).leases().leases(), 0u);
}

// Where what is said of a lease, or to its server, needs heap, the lease stays with the server.
TEST(HeapGone, ATransportWithoutHeapEndsNothing) {
  struct Mute final : UnwatchedTransport {
    using UnwatchedTransport::UnwatchedTransport;
    void Send(uint32_t server, const WireMessage& message) override { ScarceHeap::MayThrow(), UnwatchedTransport::Send(server, message); }
    std::optional<Control> Receive() override { return ScarceHeap::MayThrow(), UnwatchedTransport::Receive(); }
  };
  LocalServers servers({.servers = 1});
  Mute transport(servers.Connect(0));
  auto swap = std::make_unique<RemoteSwap>(transport, RemoteSwapOptions{});
  ASSERT_TRUE(swap->Reserve(kMiB).ok());
  const EndingHeap none(0);
  swap.reset();
  EXPECT_TRUE(EndingHeap::refused());
}

// It counted as dead before there were words for it, so nobody ever read that it was.
TEST(HeapGone, WhoseServerHasDiedIsToldAllTheSame) {
  for (int given = 0;; ++given) {
    LocalServers servers({.servers = 1});
    UnwatchedTransport transport(servers.Connect(0));
    RemoteSwap swap(transport, RemoteSwapOptions{});
    ASSERT_TRUE(swap.Reserve(kMiB).ok());
    servers.Kill(0);
    testing::internal::CaptureStderr();
    bool refused = false;
    {
      const EndingHeap ending(given);
      static_cast<void>(WithinHeap([&] { return swap.Upkeep(), true; }, false));
      refused = EndingHeap::refused();
    }
    swap.Upkeep();
    const std::string said = testing::internal::GetCapturedStderr();
    const size_t told = said.find("died with");
    EXPECT_NE(told, std::string::npos) << given << " allocations: " << said;
    EXPECT_EQ(said.find("died with", told + 1), std::string::npos) << given << " allocations: " << said;
    if (!refused) break;
    ASSERT_LT(given, 1000);
  }
}

TEST(HeapGone, ASlotOfSeveralExtentsIsTakenWholeOrNotAtAll) {
  SlotSpace space;
  space.AddRegion(512 * kSwapGranule);
  std::vector<SlotRef> slots;
  for (int i = 0; i < 512; ++i) slots.push_back(space.Reserve(kSwapGranule));
  for (size_t i = 0; i < slots.size(); i += 2) space.Free(slots[i], kSwapGranule);
  const uint64_t free = space.free_bytes();
  SlotRef scattered;
  int refused = 0;
  for (; !scattered && refused < 100; ++refused) {
    try {
      const EndingHeap ending(refused);
      scattered = space.Reserve(200 * kSwapGranule);
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(space.free_bytes(), free);
      EXPECT_TRUE(space.IsValid());
    }
  }
  EXPECT_GT(refused, 1) << "then this test shows nothing";
  ASSERT_TRUE(scattered);
  space.Free(scattered, 200 * kSwapGranule);
  EXPECT_EQ(space.free_bytes(), free);
}

// It took the other one's OutOfHeap for its own, and the program got OutOfMemory although it had heap.
TEST(HeapGone, WhoWaitsForAReadThatFoundNoneReadsItself) {
  FakeTier fake;
  HeaplessTier tier(&fake, 1);
  NoPins pins;
  Engine engine({.budget = kMiB, .preemptive = false}, &tier, &pins, PolicyNamed("cyclic"));
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 20; ++i) {
    chunks.push_back(engine.Create(64 << 10).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    std::memset(chunks.back()->frame, 'a' + i, chunks.back()->bytes);
  }
  engine.Drain();
  Chunk* const first = chunks.front();
  ASSERT_EQ(PhaseOf(first), Phase::kSwapped);
  engine.Free(chunks.back());  // the hint takes its frame
  chunks.pop_back();
  tier.rate = 1;
  engine.Prefetch(first);
  tier.rate = 0;
  ASSERT_EQ(PhaseOf(first), Phase::kLoading) << "then this test shows nothing";
  const Status status = engine.Acquire(first, false);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(status.ok() && static_cast<char*>(first->frame)[5] == 'a');
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// The message of what was refused found no heap, and left what had been charged, or the limit that had been set, as it was.
TEST(HeapGone, WhatIsRefusedIsTakenBack) {
  for (const bool keep_room : {true, false}) {
    FakeTier tier({.capacity_bytes = kMiB});
    NoPins pins;
    Engine engine({.budget = kMiB, .preemptive = false, .keep_room = keep_room, .deadlock_settle = std::chrono::milliseconds(0)}, &tier, &pins, DefaultPolicy());
    std::vector<Chunk*> chunks;
    for (Status status; status.ok();) {  // until memory and swap are full
      chunks.push_back(engine.Create(16 << 10).value());
      status = engine.Acquire(chunks.back(), true);
    }
    const uint64_t metadata = engine.budget()->metadata();
    int refused = 0;
    for (int given = 0; given < 400; ++given) {  // the tier allocates for each object that it has no room for
      SCOPED_TRACE(given);
      bool charged = true, lowered = true;
      EXPECT_NO_THROW({
        const EndingHeap ending(given);
        charged = engine.ChargeMetadata(256 << 10).ok();
      });
      EXPECT_NO_THROW({
        const EndingHeap ending(given);
        lowered = engine.SetBudget(kMiB - (256 << 10)).ok();
      });
      EXPECT_FALSE(charged && lowered);
      refused += EndingHeap::refused();
      EXPECT_EQ(engine.budget()->metadata(), metadata);
      EXPECT_EQ(engine.budget()->limit(), kMiB);
    }
    EXPECT_GT(refused, 0);
    EXPECT_TRUE(engine.IsValid());
    for (Chunk* chunk : chunks) engine.Free(chunk);
  }
}

// The place in the list of addresses that nobody may use was allocated in a destructor: the end of the program.
TEST(HeapGone, InDebugModeAFrameComesBack) {
  FakeTier tier;
  NoPins pins;
  Engine engine({.budget = kMiB, .preemptive = false, .debug = true}, &tier, &pins, DefaultPolicy());
  for (int i = 0; i < 300; ++i) {
    Chunk* const chunk = engine.Create(4096).value();
    ASSERT_TRUE(engine.Acquire(chunk, true).ok());
    std::memset(chunk->frame, i, chunk->bytes);
    const EndingHeap ending(0);
    engine.Free(chunk);
  }
  EXPECT_EQ(engine.counters().resident_bytes, 0u);
  EXPECT_TRUE(engine.IsValid());
}

// An exception on the mover's thread ended the program.
TEST(HeapGone, TheMoverGoesOn) {
  Fakes under(2, 8 * kMiB);
  HeaplessTier tier(under.swap.get(), 2);
  NoPins pins;
  Engine engine({.budget = kMiB}, &tier, &pins, DefaultPolicy());
  std::atomic<int> turns{0};
  Mover mover;
  ASSERT_TRUE(mover.Start(&engine, [&](const std::atomic<bool>&) {
    ++turns;
    engine.WakeMover();
    throw std::bad_alloc();
  }).ok());
  const auto begin = std::chrono::steady_clock::now();
  while (turns < 3 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(60)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(turns, 3);
  EXPECT_GE(engine.counters().heap_failures, 2u);
  mover.Stop();
}

// ---- Real tiers, with a heap that refuses one allocation in so many ----

// Servers within the process: their own work has all the heap it wants, and what a transport allocates by itself may fail.
class ScarceTransport final : public UnwatchedTransport {
 public:
  using UnwatchedTransport::UnwatchedTransport;
  void Start(std::span<const Transfer> batch) override {
    ScarceHeap::MayThrow();
    UnwatchedTransport::Start(batch);
  }
  bool Collect(std::vector<Completion>* done) override {
    ScarceHeap::MayThrow();
    const UnwatchedHeap unwatched;
    return to().Collect(done);
  }
};

class ScarceOverServers final : public ForwardingTier {
 public:
  explicit ScarceOverServers(const LocalServersOptions& options, const RemoteSwapOptions& swap)
      : ForwardingTier(&real_), servers_(options), transport_(servers_.Connect(0)), real_(transport_, swap) {}

 private:
  LocalServers servers_;
  ScarceTransport transport_;
  RemoteSwap real_;
};

std::unique_ptr<SwapTier> Files(bool direct) {
  FileSwapOptions options;
  options.mask = testing::TempDir() + "ramspan-heap-%d-%d.swap";
  options.bytes_max = 16 * kMiB;
  options.file_bytes = kMiB;
  options.direct = direct;
  return FileSwap::Create(options).value();
}

struct RealTier {
  const char* name;
  std::function<std::unique_ptr<SwapTier>()> make;
};

MapStore& Store() {
  static MapStore store(16 * kMiB);
  return store;
}

class HeapGoneIn : public testing::TestWithParam<RealTier> {};

TEST_P(HeapGoneIn, NoByteIsLost) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::make_unique<RetirableTier>(GetParam().make()));
    TieredSwap swap(std::move(tiers));
    NoPins pins;
    Engine engine({.budget = kMiB, .deadlock_settle = std::chrono::milliseconds(0)}, &swap, &pins, DefaultPolicy());
    uint64_t heap = seed * 0x9e3779b97f4a7c15;
    std::mt19937_64 random(seed);
    const uint32_t one_in = seed % 3 == 0 ? 2 : seed % 3 == 1 ? 5 : 30;
    auto objects = std::make_unique<ScarceObjects>(&engine);
    objects->Make(100);
    // A thread a round, because much is allocated only once a thread.
    for (int round = 0; round < 10; ++round) {
      std::thread([&] {
        const std::function<Status(Chunk*, bool)> acquire = [&](Chunk* chunk, bool write) {
          const ScarceHeap scarce(&heap, one_in);
          return engine.Acquire(chunk, write);
        };
        for (int step = 0; step < 40; ++step) {
          const Status status = objects->Access(random() % objects->size(), random() % 3 == 0, acquire);
          // Swap is never full, but for the tier whose leases are.
          const bool may_be_full = GetParam().name == std::string("FarScattered");
          EXPECT_TRUE(status.ok() || (IsOfTheHeap(status) && (may_be_full || status.code() != StatusCode::kResourceExhausted))) << status.ToString();
          const ScarceHeap scarce(&heap, one_in);
          try {
            engine.MoverStep();
          } catch (const std::bad_alloc&) {  // as the mover does
          }
        }
      }).join();
      EXPECT_TRUE(engine.IsValid());
    }
    for (size_t i = 0; i < objects->size(); ++i) {
      const Status status = objects->Access(i, false);
      ASSERT_TRUE(status.ok()) << i << ": " << status.ToString();
    }
    objects.reset();
    engine.Drain();
    EXPECT_TRUE(engine.IsValid()) << "with nothing under way";
    EXPECT_EQ(engine.counters().resident_bytes, 0u);
    EXPECT_EQ(engine.counters().swapped_bytes, 0u);
    EXPECT_EQ(swap.stats().slot_bytes_used, 0u) << "slots that nobody has";
  }
  EXPECT_GT(ScarceHeap::refused(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Tiers, HeapGoneIn,
    testing::Values(RealTier{"Files", [] { return Files(false); }}, RealTier{"DirectFiles", [] { return Files(true); }},
                    RealTier{"Near", [] { return std::make_unique<ScarceOverServers>(LocalServersOptions{.near = 1}, RemoteSwapOptions{.answer_timeout = std::chrono::milliseconds(20)}); }},
                    RealTier{"Far", [] { return std::make_unique<ScarceOverServers>(LocalServersOptions{.servers = 2, .delay_max = 3}, RemoteSwapOptions{.answer_timeout = std::chrono::milliseconds(20)}); }},
                    // Leases that are nearly full: slots of several pieces.
                    RealTier{"FarScattered", [] {
                               return std::make_unique<ScarceOverServers>(LocalServersOptions{.servers = 2, .pool_bytes = kMiB / 2 + kMiB / 4},
                                                                    RemoteSwapOptions{.first_lease_bytes = 64 << 10, .lease_bytes_max = 64 << 10, .answer_timeout = std::chrono::milliseconds(20)});
                             }},
                    RealTier{"Store", [] { return std::make_unique<StoreSwap>(&Store()); }}),
    [](const testing::TestParamInfo<RealTier>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ramspan
