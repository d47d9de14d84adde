// PinScanner: what the engine must know of pins and of the threads that hold them. Implemented by the front.
// Thread-safety: any thread, but for what a call says.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "client/chunk/chunk.h"
#include "client/policy/policy.h"

namespace ramspan {

class PinScanner {
 public:
  virtual ~PinScanner() = default;
  // After this returns, every pin stored before a state word was closed is visible to FindPinned (membarrier).
  virtual void Barrier() = 0;
  // pinned[i] = some thread's table holds chunks[i]. Of those that are not, the frame holds the bytes (client/pages) when it returns.
  virtual void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) = 0;

  // The calling thread starts (chunk) or stops (nullptr) to wait for memory in order to pin `chunk`.
  virtual void SetWaiting(Chunk* chunk) = 0;
  enum class Verdict {
    kSomebodyMayUnpin,  // a living thread that does not wait for memory or for its turn holds pins, or may end a stranger's
    kUnlikely,          // none is known to, but a pin could still go: threads live that hold none, or elements (p[i]) only,
                        // or there are pins of threads that have ended
    kDeadlock,          // all threads that ever pinned wait
    kNobodyElse,        // the same, and there is only the calling one
  };
  // Of the threads beside the calling one.
  virtual Verdict JudgeWaiters() = 0;
  // For messages: how many pins there are just now, of all threads.
  struct Pins {
    uint64_t adhered = 0;  // in threads' tables: adhereTos, blocks, spans
    uint64_t counted = 0;  // in chunks: views, bundles, setUse, and adhereTos for which the tables had no slot
    uint32_t threads = 0;  // that hold those of the former
  };
  virtual Pins CountPins() const { return {}; }
  // Whether the calling thread, which has waited for so long, may wait on for others' pins. Not for ever where it is ending, or the
  // process is: then it holds up an exit() for threads that need not release anything any more.
  virtual bool MayWait(std::chrono::steady_clock::duration /*waited*/) { return true; }
  // One that waits, `who`, has waited for so long for so many bytes that others pin, which may pin again at once what they release: then those that hold
  // nothing are kept from it for short whiles. It is for who waits to look often, and to end it. One at a time; of others it is ignored.
  virtual void HoldUpOthers(const void* /*who*/, std::chrono::steady_clock::duration /*waited*/, uint64_t /*bytes*/) {}
  virtual void EndHoldUp(const void* /*who*/) {}
  // Whether they are just now. They notice at the next pin of a chunk without kReferenced.
  virtual bool HoldsUpOthers() const { return false; }

  // Of memory for `frames` bytes, what pins that can be spared may hold as long as no more data than that is there.
  static uint64_t SpareOfAll(uint64_t frames) { return frames - frames / 8; }
  // All data no longer fits in SpareOfAll, or in memory: who holds pins that he can spare may be in the way. Called under the engine's mutex.
  virtual void DataHasOutgrownMemory() {}

  // The pages of these frames go back to the kernel next. Called under the engine's mutex.
  virtual void ForgetFrames(std::span<std::byte> /*frames*/) {}

  // First touches (policy.h). Threads are those that ever pinned; the calling one may be none of them.
  virtual uint32_t ThisThread() const { return kNoThread; }
  // Hands over what threads have noted until now, each one's in its order. Where nobody has noted anything this costs the same however many
  // threads there are. One caller at a time; `hear` must not pin.
  using Hear = std::function<void(std::span<const Touch>)>;
  virtual void TakeTouches(const Hear& /*hear*/) {}
  virtual uint64_t touches_dropped() const { return 0; }
};

}  // namespace ramspan
