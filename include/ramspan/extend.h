// Swaps and an eviction policy of the program's own, in place of the configured ones or beside them.
// Thread-safety: as each class says; the functions from any thread, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ramspan/detail/resident.h"
#include "ramspan/detail/span.h"
#include "ramspan/options.h"

namespace ramspan {

// A place for objects that the program provides: a data base, a compressed heap, a device. Derive from it, AddSwap it,
// UseSwap it.
//
// Thread-safety: calls come from any thread, several at once, on different slots. REQUIRES: none of them uses Ramspan
// (managedPtr, adhereTo, this header), because the thread may be in the middle of an eviction. What would wait for that throws Error:
// pulling and making objects, LISTOFINGREDIENTS, RemoveSwap, CloseSwap, WaitForTransfers, SetEvictionPolicy, SetMemoryLimit, Reconfigure. A call may ask,
// though: GetStatistics, StatsJson, MemoryLimit, SwapLimit and EffectiveOptions of <ramspan/runtime.h>; SwapInUse, GetSwapFragmentation
// and GetSwapUse below (which asks the store's Capacity; within Capacity it gives what that has said last).
class RAMSPAN_API SwapStore {
 public:
  virtual ~SwapStore() = default;
  virtual std::string Name() const { return "custom"; }
  // Bytes that it can hold, now. Ramspan keeps the sum of the slots' sizes below it. It is asked with each Write, when there
  // seems to be no room, and every few milliseconds: one that has become smaller is noticed then.
  virtual uint64_t Capacity() const = 0;
  // The store is full and `bytes` are needed: makes Capacity larger, or returns false. May block (ask somebody). An
  // exception of Extend or Capacity counts as no room; its text is part of what is then thrown to whoever needs memory.
  virtual bool Extend(uint64_t /*bytes*/) { return false; }
  // Each moves all `bytes` or returns false (an exception counts as false). After a failed Write the object stays in
  // memory; a failed Read is tried again and then thrown to whoever pulls. Slots are written whole, read as written,
  // and may be written again; their numbers are never given twice. Checksums are Ramspan's business.
  virtual bool Write(uint64_t slot, const void* data, size_t bytes) = 0;
  virtual bool Read(uint64_t slot, void* data, size_t bytes) = 0;
  // The slot is not needed any more. It may never have been written. Its bytes do not count from the moment on in which the
  // object gave it up; the call comes a little later, but before the next Write begins, and before RemoveSwap or AbandonSwap
  // returns. Not at the end of the process, and not for what AbandonSwap gives up with the swap.
  virtual void Erase(uint64_t slot, size_t bytes) noexcept = 0;
};

// Local files beside the configured ones.
struct SwapFiles {
  std::string mask;    // a path with two %d: process id, file number
  uint64_t bytes = 0;  // at most
  bool direct = false;
  SwapPolicy policy = SwapPolicy::kFail;
};

// Names a swap of this process. kConfigured: remote memory and files, as the configuration says. A function that is given
// the name of a swap that was removed or abandoned throws ConfigError.
enum class SwapId : int { kConfigured = 0 };

// One more swap, not yet in use; at most 12 at a time. The store must live until RemoveSwap. Starts Ramspan.
// Throws ConfigError: the files cannot be made (message says why), or too many swaps.
RAMSPAN_API SwapId AddSwap(SwapStore* store);
RAMSPAN_API SwapId AddSwapFiles(const SwapFiles& files);

// Objects that leave memory from now on go there: to a store and nowhere else, to files with remote memory before them
// where there are servers. Objects that are in another swap stay there until they change.
RAMSPAN_API void UseSwap(SwapId id);
RAMSPAN_API SwapId SwapInUse();

// Brings its objects home (blocks, evicts others to the swap in use, which becomes the configured one if this was it; swap that was
// closed stays closed) and forgets the swap. Throws OutOfMemory, OutOfSwap, SwapUnavailable with the swap still there: what is not in
// memory nor in another swap has no room there, or other threads' pins have held memory for about a second. `patiently`: waits for pins as a
// pull does, as long as their threads may release them, and other threads wait for the end; for who cannot call again (a destructor).
// REQUIRES: not the configured one.
RAMSPAN_API void RemoveSwap(SwapId id, bool patiently = false);
// The same without bringing anything home: objects that are only there throw DataLost from now on. For destructors: an error
// is said on standard error.
RAMSPAN_API void AbandonSwap(SwapId id) noexcept;

// No object leaves memory any more, until UseSwap; those in any swap come home. Throws OutOfMemory, OutOfSwap when they
// do not fit the memory limit (at once), or pins hold it, as for RemoveSwap; then the swap is open as before.
RAMSPAN_API void CloseSwap();

// Blocks until no transfer to or from any swap is under way: for ever while other threads keep swapping. TransfersUnderWay
// does not block. FreeCleanCopies: swap gives up its copies of objects that are in memory, until `bytes` are free.
RAMSPAN_API void WaitForTransfers();
RAMSPAN_API bool TransfersUnderWay();
RAMSPAN_API void FreeCleanCopies(uint64_t bytes);

struct SwapUse {
  uint64_t capacity = 0;  // bytes
  uint64_t used = 0;      // by objects there and by clean copies of objects in memory; files count whole pages
};
RAMSPAN_API SwapUse GetSwapUse(SwapId id);

// How a swap's files are filled, in bytes. Slots of remote memory and of a store are not known.
struct SwapFragmentation {
  uint64_t free = 0;       // in files that are there
  uint64_t whole = 0;      // used by objects that lie in one piece
  uint64_t scattered = 0;  // used by objects in several pieces
};
RAMSPAN_API SwapFragmentation GetSwapFragmentation(SwapId id);

// As SetSwapLimit and SetSwapPolicy of <ramspan/runtime.h>. REQUIRES: files, or the configured swap.
RAMSPAN_API void SetSwapLimit(SwapId id, uint64_t bytes);
RAMSPAN_API void SetSwapPolicy(SwapId id, SwapPolicy policy);

// Who leaves when memory is needed, and who may be fetched ahead. Objects are known by numbers, which are used again
// when their objects are gone. An object here is what is swapped as one: small ones come as bundles (the key `bundles`).
// Derive from it and SetEvictionPolicy it.
//
// Thread-safety: one call at a time, of any thread, with no lock that a pull or any other call of Ramspan's needs; who needs
// memory waits for it, so be quick, throw nothing, and use nothing of Ramspan but the functions of Objects (only within a
// call), GetStatistics and MemoryLimit: what would wait for the call throws Error. What happened is told in order, before the next
// question: an object may have left, come or ended meanwhile. Naming such a one does no harm. Where the heap (operator new) has no more,
// some of it is not told; then nothing is told of objects that were not told as Created.
class RAMSPAN_API EvictionPolicy {
 public:
  // Where a policy writes the numbers of objects: std::span<uint32_t> in C++20, and in C++17 what is used like one.
  using Ids = detail::Span<uint32_t>;

  // What a policy may ask about an object.
  class Objects {
   public:
    virtual uint64_t Bytes(uint32_t id) const = 0;
    virtual bool InMemory(uint32_t id) const = 0;         // and not on its way out
    virtual bool InSwap(uint32_t id) const = 0;           // and not on its way in
    virtual bool TestAndClearUsed(uint32_t id) const = 0;  // whether it was pulled since the last call

   protected:
    ~Objects() = default;
  };

  virtual ~EvictionPolicy() = default;
  // Created: also for each object that exists when the policy is set, in the order of their making.
  virtual void Created(const Objects& objects, uint32_t id) = 0;
  virtual void Freed(const Objects& objects, uint32_t id) = 0;
  // The program came for an object that was not in memory.
  virtual void Missed(const Objects& objects, uint32_t id) = 0;
  // The program came for an object that ReadAhead had named, for the first time.
  virtual void AheadUsed(const Objects&, uint32_t /*id*/) {}
  // Fills `out` with objects InMemory, in the order in which they should leave, until their bytes reach `bytes`; returns
  // how many. Objects that are pulled stay all the same: the next call should name others. Where it names too few,
  // Ramspan chooses.
  virtual size_t Victims(const Objects& objects, uint64_t bytes, Ids out) = 0;
  // Fills `out` with objects InSwap to be fetched now, of at most `bytes` together.
  virtual size_t ReadAhead(const Objects&, uint64_t /*bytes*/, Ids) { return 0; }
};

// From now on `policy` decides; nullptr: the configured one again. It must live until the next call of this function,
// after whose return it is not called any more. With the one that decides already nothing changes. Starts Ramspan.
RAMSPAN_API void SetEvictionPolicy(EvictionPolicy* policy);

}  // namespace ramspan
