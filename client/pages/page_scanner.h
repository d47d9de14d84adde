// PageScanner: what the engine asks about pins, answered for blocks of pages, too; all else is the front's. The composition root puts it
// between the engine and the front, because those two do not know pages.
// Thread-safety: any thread. Ownership: borrows both.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "client/engine/pin_scanner.h"
#include "client/pages/page_space.h"

namespace ramspan {

class PageScanner final : public PinScanner {
 public:
  explicit PageScanner(PinScanner* front) : front_(front) {}

  // Release: the space is complete. Once, before its first block.
  void SetSpace(PageSpace* space) { space_.store(space, std::memory_order_release); }
  // For whom the calling thread serves page faults until the next call: a number for policies, which follow threads. kNoThread: for itself.
  static void ServeThread(uint32_t number) { served_ = number; }

  void Barrier() override { front_->Barrier(); }
  void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) override {
    front_->FindPinned(chunks, pinned);
    if (PageSpace* space = this->space()) space->TakeAway(chunks, pinned);
  }
  void SetWaiting(Chunk* chunk) override { front_->SetWaiting(chunk); }
  Verdict JudgeWaiters() override {
    const PageSpace* const here = space();
    if (here == nullptr) return front_->JudgeWaiters();
    if (here->WillLetGo()) return Verdict::kSomebodyMayUnpin;
    const Verdict verdict = front_->JudgeWaiters();
    return verdict == Verdict::kNobodyElse ? Verdict::kDeadlock : verdict;  // threads that pin only blocks of pages are not in its tables
  }
  Pins CountPins() const override { return front_->CountPins(); }
  bool MayWait(std::chrono::steady_clock::duration waited) override { return front_->MayWait(waited); }
  void HoldUpOthers(const void* who, std::chrono::steady_clock::duration waited, uint64_t bytes) override { front_->HoldUpOthers(who, waited, bytes); }
  void DataHasOutgrownMemory() override { front_->DataHasOutgrownMemory(); }
  void EndHoldUp(const void* who) override { front_->EndHoldUp(who); }
  bool HoldsUpOthers() const override { return front_->HoldsUpOthers(); }
  void ForgetFrames(std::span<std::byte> frames) override {
    if (PageSpace* space = this->space()) space->ForgetFrames(frames);
  }
  uint32_t ThisThread() const override { return served_ == kNoThread ? front_->ThisThread() : served_; }
  void TakeTouches(const Hear& hear) override { front_->TakeTouches(hear); }
  uint64_t touches_dropped() const override { return front_->touches_dropped(); }

 private:
  PageSpace* space() const { return space_.load(std::memory_order_acquire); }

  PinScanner* const front_;
  std::atomic<PageSpace*> space_{nullptr};
  static inline thread_local constinit uint32_t served_ = kNoThread;
};

}  // namespace ramspan
