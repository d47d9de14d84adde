// PinGate: for short whiles, threads that hold no pins pin nothing. A thread that needs at once what several others hold (adhereAll, a chunk
// larger than theirs) would wait for ever beside threads that pin again without a pause what they have just released: there is never a
// moment when nobody does, and the memory of one is not enough. Who holds pins goes on, so that it comes to release them; so does who pins what
// is too small to matter.
//
// It is shut for kFirst, open for kRest times as long as it is shut next, which is twice as long, up to kLongest, and so on: waits for pins that are held
// for longer cost the others a fifth of their time at most, however long. Each that waits begins anew.
// Thread-safety: any thread. Lock-free, because a signal handler may pull. Blocking: only Pass, for kLongest at most.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ramspan {

class PinGate {
 public:
  using Duration = std::chrono::steady_clock::duration;
  static constexpr Duration kPatience = std::chrono::milliseconds(20);  // with others that take turns by themselves
  static constexpr Duration kFirst = std::chrono::milliseconds(10), kLongest = std::chrono::milliseconds(160);
  static constexpr int kRest = 4;
  static constexpr uint64_t kMatters = 64;  // a chunk of a 64th of what is needed does: there may be as many threads

  static PinGate& Get() { return gate_; }

  // A look of `who` (any address that is its own), which has waited for so long, or less, for so many bytes: shuts the gate or opens it, as the
  // schedule says. It does nothing while another one's wait does so.
  void Look(const void* who, Duration waited, uint64_t bytes);
  // It waits no more: the gate is open.
  void End(const void* who);

  bool IsShut() const { return shut_until_.load(std::memory_order_relaxed) != 0; }
  // Whether it is, for who pins so many bytes.
  bool IsShutFor(uint64_t bytes) const { return IsShut() && bytes >= needed_.load(std::memory_order_relaxed) / kMatters; }
  // Waits while it is shut. REQUIRES: the calling thread holds no pins.
  void Pass() const;

 private:
  // Neither publishes anything.
  std::atomic<const void*> who_{nullptr};  // whose turn it is to change what follows
  std::atomic<int64_t> shut_until_{0};     // of the steady clock; 0: open
  std::atomic<int64_t> open_until_{0};
  std::atomic<uint64_t> needed_{0};        // bytes
  std::atomic<int64_t> next_{0};           // how long it is shut the next time
  static PinGate gate_;
};

}  // namespace ramspan
