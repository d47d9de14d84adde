// Pin against evict, in every order of their steps. A pin has three steps: its slot is stored, the state word is loaded
// (open: the pin holds; closed: it goes to the engine, at once where that looks for the chunk's pins or is just writing it), the slot is cleared. The engine's way of a chunk out and back is
// cut at each of its calls to the ports: membarrier, scan of the pin tables, submission, poll. A test runs that way once
// for each choice of the cuts at which the three steps of a pin happen, on the real engine and the real pin tables, and
// looks at each cut whether what is pinned stays where it is, with the right bytes.
//
// The orders are those of sequential consistency, which the membarrier supplies between the slot's store and the word's
// load; that the code needs no more than that is TSan's business and argued in detail/resident.h.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "client/front/pin_registry.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/policies.h"

namespace ramspan {
namespace {

constexpr uint64_t kBytes = 64 << 10;

// Counts the cuts and does at each what the test wants.
class Cuts {
 public:
  std::function<void(int)> at_cut;
  int count = 0;
  bool came = false;  // a pin has come to the engine, which opened the chunk for it
  void Reach() {
    if (at_cut) at_cut(count);
    ++count;
  }
};

class CutScanner final : public PinScanner {
 public:
  explicit CutScanner(Cuts* cuts) : cuts_(cuts) {}
  void Barrier() override {
    barrier_seen_ = true;
    cuts_->Reach();  // closed, no fence yet
    real_.Barrier();
    cuts_->Reach();
  }
  // The cuts are ordered by the test itself, so they alone would not miss a barrier that is not issued.
  void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) override {
    EXPECT_TRUE(std::exchange(barrier_seen_, false)) << "the tables are scanned without a barrier before";
    for (const Chunk* chunk : chunks) EXPECT_TRUE(cuts_->came || !Has(chunk, kReadable | kWritable)) << "scanned while pins may still come";
    real_.FindPinned(chunks, pinned);
    cuts_->Reach();  // scanned, not yet acted upon
  }
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override { return Verdict::kDeadlock; }  // one thread plays them all

 private:
  bool barrier_seen_ = false;
  Cuts* const cuts_;
  PinRegistry& real_ = PinRegistry::Get();
};

class CutTier final : public ForwardingTier {
 public:
  CutTier(const FakeTierOptions& options, Cuts* cuts) : ForwardingTier(&real_), real_(options), cuts_(cuts) {}
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override {
    cuts_->Reach();
    real_.SubmitWrite(batch);
    cuts_->Reach();
  }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override {
    cuts_->Reach();
    real_.SubmitRead(batch);
    cuts_->Reach();
  }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    const size_t n = real_.Poll(done, wait);
    if (n > 0) cuts_->Reach();  // moved, not yet told to the engine
    return n;
  }

 private:
  FakeTier real_;
  Cuts* const cuts_;
};

// A pin by hand, one step at a time: those that tests/resident finds in detail/resident.h's PinInSlot, which is compiled
// there over atomics that record them. (The header itself cannot stop between two of its steps: it is inlined.)
class HandPin {
 public:
  // In the thread's own table. One for each pin would never be given up as long as the thread lives: each scan would read them
  // all, and a hundred rounds of these tests would not end.
  HandPin(Chunk* chunk, bool write, bool beyond)
      : chunk_(chunk), write_(write), table_(static_cast<ThreadTable*>(detail::t_pins != nullptr ? detail::t_pins : PinRegistry::Get().Adopt())) {
    if (!beyond) return;
    if (table_->more == nullptr) PinRegistry::Get().MakeMorePins(table_);
    more_ = table_->more;
    at_ = more_->Find();
    if (at_ == detail::MorePins::kSlots) at_ = more_->FindNext();
  }
  ~HandPin() { Clear(); }
  void Store() {
    (more_ != nullptr ? more_->slots[at_] : table_->slots[0]).store(chunk_, std::memory_order_release);
    if (more_ != nullptr) more_->RaiseEnd(at_);
  }
  // True: the pin holds. As on the fast path, or as PinSlow does for an open word that lacks a flag.
  bool Load() {
    const uint64_t need = kReadable | (write_ ? kWritable : 0);
    if ((chunk_->state.load(std::memory_order_acquire) & need) != need) return false;
    SetBits(chunk_, kReferenced | (write_ ? kDirty : 0));
    return true;
  }
  void Clear() { more_ != nullptr ? more_->Unpin(at_, true) : table_->slots[0].store(nullptr, std::memory_order_release); }

 private:
  Chunk* const chunk_;
  const bool write_;
  ThreadTable* const table_;
  detail::MorePins* more_ = nullptr;  // null: in the table
  unsigned at_ = 0;
};

enum class Where { kSlot, kBeyond, kCounted };
struct Setting {
  bool write, dirty, synchronous;
  Where where;
  bool counted() const { return where == Where::kCounted; }
};

class World {
 public:
  explicit World(const Setting& setting)
      : setting_(setting),
        scanner_(&cuts_),
        tier_(FakeTierOptions{.seed = 3, .delay_steps_max = 3, .synchronous = setting.synchronous}, &cuts_),
        engine_(EngineOptions(), &tier_, &scanner_,
                DefaultPolicy()) {
    target_ = engine_.Create(kBytes).value();
    EXPECT_TRUE(engine_.Acquire(target_, true).ok());
    std::memset(target_->frame, letter_, kBytes);
    if (!setting.dirty) {  // out and in again: clean, with a slot
      Displace();
      EXPECT_TRUE(engine_.Acquire(target_, false).ok());
    }
  }
  ~World() {
    engine_.Drain();
    engine_.Free(target_);
  }

  // The target is made to leave, as far as pins allow, while the pin's steps happen at cuts store <= load <= clear.
  // Returns the number of cuts that there were.
  int Run(int store, int load, int clear) {
    HandPin pin(target_, setting_.write, setting_.where == Where::kBeyond);
    bool stored = false, holds = false, cleared = false;
    const void* frame = nullptr;
    cuts_.count = 0;
    cuts_.came = false;
    cuts_.at_cut = [&](int cut) {
      if (cut == store) {
        setting_.counted() ? static_cast<void>(target_->state.fetch_add(kOneCountedPin)) : pin.Store();
        stored = true;
      }
      if (stored && !cleared && cut == load && (pin.Load() || ComesMeanwhile())) {
        holds = true;
        frame = target_->frame;
        if (setting_.write) std::memset(target_->frame, ++letter_, kBytes);
      }
      if (holds) LookAt(frame);
      if (stored && cut == clear && (holds || cut > load)) {
        Clear(&pin);
        holds = false;
        cleared = true;
      }
    };
    Displace();
    cuts_.at_cut = nullptr;
    const int cuts = cuts_.count;
    if (stored && !cleared) {
      if (!holds) {  // the slow path, which waited for the engine's mutex until now
        const Status status = engine_.Acquire(target_, setting_.write);
        EXPECT_TRUE(status.ok()) << status.ToString();
        if (setting_.write) std::memset(target_->frame, ++letter_, kBytes);
      }
      LookAt(target_->frame);
      Displace();  // cannot: the target is pinned
      LookAt(target_->frame);
      Clear(&pin);
    }
    EXPECT_TRUE(engine_.IsValid());
    EXPECT_TRUE(engine_.Acquire(target_, false).ok());
    LookAt(target_->frame);
    return cuts;
  }

 private:
  static Engine::Options EngineOptions() {
    Engine::Options options;
    options.budget = 2 * kBytes + (200 << 10);  // descriptors, their reserve, and one chunk
    options.deadlock_settle = std::chrono::milliseconds(0);
    options.preemptive = false;
    return options;
  }
  // The slow path, where it need not wait: the pins of the chunk are being looked for, or it is written and this is a reader.
  bool ComesMeanwhile() {
    const Phase phase = PhaseOf(target_);
    if (phase != Phase::kResident && (setting_.write || phase != Phase::kWriting)) return false;
    const Status status = engine_.Acquire(target_, setting_.write);
    EXPECT_TRUE(status.ok()) << status.ToString();
    cuts_.came = true;
    return true;
  }
  void Clear(HandPin* pin) {
    setting_.counted() ? static_cast<void>(target_->state.fetch_sub(kOneCountedPin)) : pin->Clear();
  }
  // Asks for so much memory that the target must leave, if it can.
  void Displace() {
    const uint64_t limit = EngineOptions().budget;
    static_cast<void>(engine_.SetBudget(kBytes / 2 + (64 << 10)));  // beside the descriptors
    static_cast<void>(engine_.SetBudget(limit));
    engine_.Drain();
  }
  // What a program that holds a pin sees.
  void LookAt(const void* frame) {
    ASSERT_EQ(target_->frame, frame) << "a pinned frame moved";
    const Phase phase = PhaseOf(target_);
    ASSERT_TRUE(phase == Phase::kResident || phase == Phase::kWriting) << static_cast<int>(phase);
    const auto* bytes = static_cast<const unsigned char*>(frame);
    ASSERT_EQ(bytes[0], letter_);
    ASSERT_EQ(bytes[kBytes - 1], letter_);
  }

  const Setting setting_;
  unsigned char letter_ = 'a';
  Cuts cuts_;
  CutScanner scanner_;
  CutTier tier_;
  Engine engine_;
  Chunk* target_;
};

std::string NameOf(const Setting& s) {
  return std::string(s.write ? "Writer" : "Reader") + (s.dirty ? "Dirty" : "Clean") + (s.synchronous ? "Sync" : "Async") +
         (s.counted() ? "Counted" : s.where == Where::kBeyond ? "Beyond" : "Slot");
}

class PinAgainstEvict : public testing::TestWithParam<Setting> {};

TEST_P(PinAgainstEvict, InEveryOrderWhatIsPinnedStaysAndNoByteIsLost) {
  const int cuts = World(GetParam()).Run(-1, -1, -1);
  ASSERT_GE(cuts, 3) << "the target did not leave at all";
  const uint32_t tables = PinRegistry::Get().threads();
  int orders = 0;
  for (int store = 0; store <= cuts; ++store) {
    for (int load = store; load <= cuts; ++load) {
      for (int clear = load; clear <= cuts; ++clear, ++orders) {
        SCOPED_TRACE("store at " + std::to_string(store) + ", load at " + std::to_string(load) + ", clear at " +
                     std::to_string(clear) + " of " + std::to_string(cuts));
        World(GetParam()).Run(store, load, clear);
        if (HasFailure()) return;
      }
    }
  }
  RecordProperty("orders", orders);
  EXPECT_EQ(PinRegistry::Get().threads(), tables) << "what is left behind slows every later scan down";
}

// Does something once while an evictor has let go of the mutex to look for pins.
class MeanwhileScanner final : public PinScanner {
 public:
  std::function<void()> meanwhile;
  void Barrier() override {
    if (const std::function<void()> once = std::exchange(meanwhile, {})) once();
  }
  void FindPinned(std::span<Chunk* const>, std::span<bool>) override {}
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override { return Verdict::kDeadlock; }
};

TEST(FreeAgainstEvict, AChunkThatIsFreedWhileItsPinsAreLookedForIsNobodyElsesUntilThen) {
  MeanwhileScanner scanner;
  FakeTier tier(FakeTierOptions{.seed = 3, .synchronous = true});
  Engine::Options options;
  options.budget = 2 * kBytes + (200 << 10);
  options.preemptive = false;
  Engine engine(options, &tier, &scanner, DefaultPolicy());
  Chunk* const freed = engine.Create(kBytes).value();
  Chunk* const wanted = engine.Create(kBytes).value();
  ASSERT_TRUE(engine.Acquire(freed, true).ok());
  Chunk* other = nullptr;
  scanner.meanwhile = [&] {
    engine.Free(freed);
    other = engine.Create(kBytes).value();
  };
  ASSERT_TRUE(engine.Acquire(wanted, true).ok());
  ASSERT_NE(other, nullptr) << "nobody has looked for pins";
  EXPECT_NE(other, freed);
  EXPECT_EQ(engine.counters().chunks, 2u);
  EXPECT_TRUE(engine.IsValid());
  EXPECT_EQ(engine.Create(kBytes).value(), freed) << "its descriptor does not come back";
}

std::vector<Setting> Settings() {
  std::vector<Setting> all;
  for (const Where where : {Where::kSlot, Where::kBeyond, Where::kCounted}) {
    for (int i = 0; i < 8; ++i) all.push_back({(i & 1) != 0, (i & 2) != 0, (i & 4) != 0, where});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, PinAgainstEvict, testing::ValuesIn(Settings()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace ramspan
