// UseHistory: the last uses of chunks in their order, and what they say about the next ones. Programs that iterate repeat themselves, so the
// use that goes on now has mostly been made before: UseHistory looks for that place and says how long it was from there to the next use of
// the same chunk. Found, in this order: behind the place of the use before; where the same chunk came behind the same three, then the same one,
// chunk before it; else the last use of this chunk. With the first of these a sequence of any length is followed as soon as it has been found
// once; with the others, it is found again behind a disturbance.
//
// Some loops do the same with other chunks each time: a product of matrices goes through all of B for each row of A. So each thread's uses are
// also held against those of an earlier pass at the same pace. As long as enough of them are the same, a chunk in the place of another one, of which
// nothing better is known, is expected to be used again when that one was.
//
// Time is counted in uses, modulo 2^32; all differences that matter are far below half of it. Each thread has a place of its own, and what came
// before a use is what that thread used.
//
// Memory: 20 bytes for each use that is remembered, taken when it is made and touched as it fills; 4 a chunk. Uses allocate nothing, and nothing needs the heap.
// Thread-safety: none; the policy's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "client/policy/id_table.h"
#include "common/zero_array.h"

namespace ramspan {

class UseHistory {
 public:
  // Remembers `uses`, a power of two. Throws std::bad_alloc.
  explicit UseHistory(uint32_t uses);
  static constexpr uint32_t kThreads = 64;  // more of them share places
  static constexpr uint64_t kBytesAUse = 20, kBytesAChunk = 4;

  // Remembers `uses`, a power of two, from now on; of what has been, the latest. Where there is no memory for that, all stays as it is.
  void Resize(uint32_t uses) noexcept;
  uint64_t uses() const { return uint64_t{mask_} + 1; }

  // Room for ids below this. Throws std::bad_alloc.
  void Reserve(uint32_t chunks) { lasts_.Reserve(chunks); }
  // How long until the chunk's next use, in uses of any chunk. 0: nothing is known, it has never been used before. `in_time`: it was expected now.
  uint32_t Use(uint32_t chunk, uint32_t thread, bool in_time = false);
  // The id may become another chunk's.
  void Forget(uint32_t chunk) { lasts_[chunk] = kNone; }

  uint32_t now() const { return now_; }  // the number of uses so far
  uint32_t last(uint32_t chunk) const { return lasts_[chunk]; }
  // Uses in a row that were found behind the place of the one before.
  uint32_t run(uint32_t thread) const { return Of(thread).run; }

  // The chunks that the thread used behind the place at which it is now, in order, as long as `f` returns true.
  template <typename F>
  void ForEachNext(uint32_t thread, F f) const {
    if (!IsRemembered(Of(thread).place)) return;
    for (uint32_t at = Entry(Of(thread).place).successor; IsRemembered(at) && f(Entry(at).chunk); at = Entry(at).successor) {
    }
  }

 private:
  static constexpr uint32_t kNone = 0;          // no use has the number 0
  static constexpr size_t kOrders[] = {3, 1};   // how many chunks before it are looked at
  static constexpr int32_t kModelGain = 4, kModelBegin = 4, kModelMost = 8;  // one use in five has to be the same for a pass to go on with its model
  static constexpr int32_t kKinshipMost = 8;

  struct Use_ {
    uint32_t chunk = 0;
    uint32_t interval = 0;      // to the chunk's next use; 0: it has had none
    uint32_t successor = kNone; // the same thread's next use
  };
  struct Model {  // an earlier pass
    uint32_t role = kNone;             // its use in whose place the last one was made
    int32_t score = 0;
    int32_t kinship = 0;               // of the chunks of both in the same place: whether they are used again after the same time
    bool trusted() const { return score > kModelBegin; }
  };
  struct Thread {
    std::array<uint32_t, 3> before{};  // the chunks that it used last, the last one first
    uint32_t used = 0;                 // how many of them
    uint32_t last = kNone;             // its last use
    uint32_t place = kNone;            // where that one has been made before
    uint32_t run = 0;
    Model model, rival;
  };

  Thread& Of(uint32_t thread) { return threads_[thread % kThreads]; }
  const Thread& Of(uint32_t thread) const { return threads_[thread % kThreads]; }
  const Use_& Entry(uint32_t use) const { return uses_[use & mask_]; }
  Use_& Entry(uint32_t use) { return uses_[use & mask_]; }
  bool IsRemembered(uint32_t use) const { return use != kNone && now_ - use <= mask_; }
  uint32_t& Found(size_t order, uint64_t context) { return found_[order][static_cast<size_t>(context >> 32) & mask_]; }
  using Contexts = std::array<uint64_t, std::size(kOrders)>;
  static uint64_t Context(const Thread& thread, uint32_t chunk, size_t order);
  static Contexts ContextsOf(const Thread& thread, uint32_t chunk);
  uint32_t FindPlace(Thread* thread, uint32_t chunk, const Contexts& contexts, bool* known);
  void Follow(Model* model, uint32_t chunk) const;
  void FollowModels(Thread* thread, uint32_t chunk, uint32_t place) const;
  uint32_t IntervalOfRole(Model* model, uint32_t chunk, uint32_t own) const;

  uint32_t mask_;
  ZeroArray<Use_> uses_;
  std::array<ZeroArray<uint32_t>, 2> found_;  // by context: the last use in it
  IdTable<uint32_t> lasts_;                     // by chunk: its last use
  std::array<Thread, kThreads> threads_;
  uint32_t now_ = 0;
};

}  // namespace ramspan
