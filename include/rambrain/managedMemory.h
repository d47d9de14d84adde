// Managers. A manager that a program constructs becomes the default one and puts its limits, its swap and (where the
// program derived it) its strategy into force; when it goes, the one before it comes back with its own. All objects are
// the one Ramspan's of the process: they live on when the manager goes under which they were made, and count against
// the limit of whichever manager is the default.
//
// Thread-safety: getters, statistics and setMemoryLimit from any thread; construction and destruction from one. Within a call of a swap's or a
// strategy's no manager can be constructed (incompleteSetupException); one that is destroyed there is not called any more, but what needs
// the end of that call (the memory limit before, its objects' way home from its swap) waits for the next manager: the log says so.
#pragma once

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>

#include "rambrain/exceptions.h"
#include "rambrain/managedMemoryChunk.h"
#include "rambrain/managedSwap.h"
#include "ramspan/detail/object.h"
#include "ramspan/runtime.h"

namespace rambrain {

class RAMSPAN_API managedMemory {
 public:
  managedMemory(const managedMemory&) = delete;
  managedMemory& operator=(const managedMemory&) = delete;
  virtual ~managedMemory();

  static managedMemory* defaultManager;  // never null
  static constexpr memoryID invalid = 0;
  static constexpr memoryID root = 1;

  // No object leaves memory any more; those in swap come home. Throws memoryException when they do not fit the memory
  // limit, with the swap open as before. A manager constructed later opens its own.
  void closeSwap();

  // Swaps out until the new limit holds (blocks). False, with the old limit still in force, when more is pinned than
  // that or swap is full. Ramspan's least limit is 1 MiB: smaller ones mean that.
  bool setMemoryLimit(global_bytesize size);

  // Bytes. Of a manager that is not the default one: the limit that it will set when it comes back; nothing used.
  global_bytesize getMemoryLimit() const;
  global_bytesize getUsedMemory() const;     // whole pages, for that is what the limit counts
  global_bytesize getSwappedMemory() const;  // of objects that are only in swap
  global_bytesize getFreeSwapMemory() const;
  global_bytesize getTotalSwapMemory() const;

  // false: a pull waits for other threads' adhereTos to go. true: it throws memoryException at once. Returns the old
  // setting, at first true as in Rambrain; but until the first call a pull waits. A wait that cannot end throws.
  bool setOutOfSwapIsFatal(bool fatal = true);

  // Since the start or the last reset of this manager's counts.
  void printSwapstats() const;  // to stderr
  void resetSwapstats();
  double getHitsOverMisses() const;  // pulls that found their data in memory over those that did not
  double getTotalSwappedOutBytes() const;
  double getTotalSwappedInBytes() const;

  // What SIGUSR1 prints to stdout, tab-separated: bytes chosen to leave, written, written since the last line, chosen to
  // come in, read, read since the last line, hits over misses, memory used in bytes and as a fraction, swap likewise.
  // Chosen includes what needed no transfer, since the copy on the other side was still good.
  static void sigswapstats(int = 0);
  // What SIGUSR2 prints to stdout: bytes of the swap files that are free, in whole objects, in scattered ones; the free
  // fraction; the fraction of the swap's size that is not in files yet; whether the numbers add up ("sane").
  static void sigStat(int = 0);
  // The line of sigswapstats, a time in ms in front, every `interval_ms` to a file (nullptr: to stdout). 0 ends it.
  // Throws incompleteSetupException when the file cannot be made. Compiling with -DLOGSTATS calls it at the program's
  // start with Rambrain's "rambrain-swapstats.log" and 100.
  static void logSwapstats(const char* path, unsigned int interval_ms);
  static void versionInfo();  // to stderr

  // The tree of objects: those that were made by an object's constructor are its children. Objects that were made while
  // tracking was on are in it; compiling with -DPARENTAL_CONTROL switches it on at the program's start. trackHierarchy
  // returns the old setting.
  static bool trackHierarchy(bool on = true);
  void printTree(managedMemoryChunk* current = nullptr, unsigned int nspaces = 0);  // to stdout
  unsigned int getNumberOfChildren(const memoryID& id);                             // 0 for an id that is not there
  // The id of the object behind a managedPtr<T, 1>; invalid for one that is not in the tree.
  template <typename P>
  static memoryID idOf(const P& data) {
    return IdOf(data.Behind());
  }

  // Objects with destructors that nobody destroyed are destroyed when the program exits, parents before their parts.
  // false: they are left alone. Returns the old setting.
  static bool destroyForgotten(bool on);

  // For rambrainglobals::config: changes what the configured manager has, also while another one is the default.
  static void WithConfigured(const std::function<void()>& change);
  static global_bytesize ConfiguredLimit();
  // A limit as the program gave it, raised to Ramspan's least one; the first time says so on stderr.
  static global_bytesize AtLeastLeast(global_bytesize limit);
  // Throws memoryException when the default manager is a dummyManagedMemory.
  static void RequireManager() {
    if (__builtin_expect(refuses_.load(std::memory_order_relaxed), 0)) ThrowNoManager();
  }

 protected:
  // For a program's own strategy: derive, override what follows, and end the class with a member
  //   inCharge strategy{*this};
  // which puts the strategy into force, from when it is constructed to when it is destroyed: while all other members are
  // there. Without it the manager has its limits and Ramspan's strategy. Throws as cyclicManagedMemory's constructor.
  managedMemory(managedSwap* swap, global_bytesize size = gig);

  enum swapErrorCode { ERR_SUCCESS, ERR_SWAPFULL, ERR_MORETHANTOTALRAM, ERR_NOTENOUGHCANDIDATES };

  // All of these are called one at a time, under Ramspan's lock. REQUIRES: they are quick, throw nothing, and use nothing
  // of Ramspan's or Rambrain's but letGo, fetchAhead and isResident. What a manager that overrides none does is leave
  // the choice to Ramspan.
  //
  // Memory is needed: calls letGo for objects that are resident, until they have min_size bytes. An object that an
  // adhereTo holds stays all the same; the next call should name others. Where too few are named, Ramspan chooses. The
  // returned code is for the program's own use.
  virtual swapErrorCode swapOut(global_bytesize min_size);
  // The program came for an object that is not in memory. Calls fetchAhead for those that should come too. Not for the
  // object itself: that comes by itself. What it returns is for the program's own use.
  virtual bool swapIn(managedMemoryChunk& chunk);
  // The program came for an object that had been fetched ahead, for the first time. (Other uses cost nothing, and so are
  // not told.)
  virtual bool touch(managedMemoryChunk& chunk);
  // An object was made, or was there when the strategy came into force; an object is going.
  virtual void schedulerRegister(managedMemoryChunk& chunk);
  virtual void schedulerDelete(managedMemoryChunk& chunk);

  bool letGo(managedMemoryChunk& chunk);      // within swapOut; false: enough named
  bool fetchAhead(managedMemoryChunk& chunk);  // within swapIn and touch; false: enough named
  bool isResident(const managedMemoryChunk& chunk) const;

  class RAMSPAN_API inCharge {
   public:
    explicit inCharge(managedMemory& manager);
    ~inCharge();
    inCharge(const inCharge&) = delete;
    inCharge& operator=(const inCharge&) = delete;

   private:
    managedMemory& manager_;
  };

 private:
  friend class cyclicManagedMemory;
  friend class dummyManagedMemory;
  friend class managedSwap;
  class Strategy;

  struct Settings {
    global_bytesize memory = 0;
    bool fatal = true, waits = true;
    bool loading = true, unloading = true;
  };
  enum class Kind { kConfigured, kProgram, kDummy };

  managedMemory(Kind kind, managedSwap* swap, global_bytesize size);
  static void SwapGone(const managedSwap* swap) noexcept;  // the program destroys a swap before its managers
  bool IsDefault() const { return defaultManager == this; }
  ramspan::Statistics Counts() const;
  static bool ConfiguredPreemptive();
  void Capture();                   // the settings in force
  void ComeIntoForce(global_bytesize size);
  void PutIntoForce();              // limits, swap and settings; throws ramspan::Error
  void Enforce();                   // likewise; throws rambrainException
  void SwitchStrategy();            // to this manager's; throws ramspan::Error, but never on the way to Ramspan's own
  [[noreturn]] static void ThrowNoManager();
  static memoryID IdOf(ramspan::detail::Object object);

  static std::atomic<bool> refuses_;

  const Kind kind_;
  managedSwap* swap_;  // null: the configured one, also after the program has destroyed the manager's own
  managedMemory* previous_ = nullptr;
  Settings settings_;
  std::atomic<bool> is_in_force_{true};  // false: the settings could not be put into force, so what is in force is not this manager's
  bool captured_ = false;  // of the configured manager: its settings hold what the configuration says
  ramspan::Statistics base_;  // counts at the last reset
  std::unique_ptr<Strategy> strategy_;
};

namespace rambrain_detail {
// Tells Ramspan, before it starts, that this is a Rambrain program: its configuration files, default swap files and
// signals are Rambrain's.
RAMSPAN_API bool SpeakRambrain();
#ifndef RAMBRAIN_IN_LIBRARY  // which all programs load
inline const bool kSpeaksRambrain = SpeakRambrain();
#endif
}  // namespace rambrain_detail

#ifdef LOGSTATS
namespace rambrain_detail {
inline const bool kLogstats = (managedMemory::logSwapstats("rambrain-swapstats.log", 100), true);
}
#endif
#ifdef PARENTAL_CONTROL
namespace rambrain_detail {
inline const bool kParentalControl = managedMemory::trackHierarchy(true);
}
#endif

}  // namespace rambrain
