// Userfault: one userfaultfd(2) and what the page mode does with it. The kernel asks it about each page that is missing in
// the ranges registered with it; pages come there, and leave, by being moved between two ranges: the page itself changes its
// address, no byte is copied. Kernels before Linux 6.8 cannot do that: there they come as copies, and leave with their mapping (mremap) to where they are copied from.
// Where there is no userfaultfd at all (FaultMode::kProtect) pages that are missing have no access rights instead (away_pages.h).
//
// Thread-safety: any thread, after Open. Nothing here allocates, logs or takes a lock, because it is used while a page fault is served.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/config.h"
#include "common/status.h"

namespace ramspan {

inline constexpr size_t kPageBytes = 4096;  // of the MMU

class Userfault {
 public:
  Userfault() = default;
  ~Userfault();
  Userfault(const Userfault&) = delete;
  Userfault& operator=(const Userfault&) = delete;

  // kAuto: kThread where the kernel also reports its own accesses (system calls), else, and where strace or the like traces this process, kSignal; kProtect where there is no userfaultfd. kUnavailable: this system cannot; with the remedy.
  // kMove and kCopy of PageMoves are taken or nothing is; kAuto: kMove where there is that.
  Status Open(FaultMode wanted, PageMoves how = PageMoves::kAuto);

  FaultMode mode() const { return mode_; }
  // Which a missing page causes; 0: none, and Next tells of it.
  int signal() const { return mode_ == FaultMode::kThread ? 0 : mode_ == FaultMode::kSignal ? SIGBUS : SIGSEGV; }
  bool moves() const { return moves_; }
  // Whether system calls find missing pages, too.
  int fd() const { return fd_; }
  bool serves_system_calls() const { return mode_ == FaultMode::kThread && !user_mode_only_; }

  // From now on missing pages of the range are asked for. Whole pages of private anonymous memory. errno; 0 is success, as below.
  int Register(void* begin, size_t bytes);
  int Unregister(void* begin, size_t bytes);
  // The pages of `from`, all of which are there, are at `to` afterwards, where none is, or all are where they were. Threads that wait for one of
  // them go on. `to` is registered. kYes: a forked child may share pages of `from`, which are written to then, so that they are this process's own.
  enum class MayBeShared { kNo, kYes };
  // REQUIRES: moves().
  int Move(void* to, void* from, size_t bytes, MayBeShared shared);
  // What is in the pages of `from`, which is registered, is in those at `to` afterwards, and none is at `from`: at once for all who use it. Or nothing was done. For who may not
  // Move.
  int TakeAway(void* to, void* from, size_t bytes);
  // A copy, where pages cannot be moved. `to` is registered, and none of its pages is there. `done`: how many bytes are, which threads may have changed since.
  int Copy(void* to, const void* from, size_t bytes, size_t* done);
  // So many bytes, none of which is there, are zeros. EEXIST: some are there.
  int Zero(void* begin, size_t bytes);
  // The page of the address is zeros if it is not there, in a range that is.
  void FillHole(const void* address);
  // None of the pages is there, and what was in them is gone. Away: as what has left.
  int Drop(void* begin, size_t bytes);
  // The same of pages in memory of any kind, which keeps its rights: the next touch finds zeros, or, where they are registered, is a fault.
  static int Empty(void* begin, size_t bytes);
  // The range, in which there is no page, has no page tables either, where the kernel frees those (Linux 6.14): with one a huge page that is moved there is split.
  static void FreeTables(void* begin, size_t bytes);
  static bool IsThere(void* page);  // in memory, wherever it is
  // Threads that wait for pages of the range look again.
  void Wake(void* begin, size_t bytes);

  // The next fault of a range, in kThread. Waits at most `timeout_ms`; false: there was none. The process ends where the program has closed the descriptor.
  struct Fault {
    void* address = nullptr;
    uint32_t thread = 0;  // its id
  };
  bool Next(Fault* fault, int timeout_ms);
  // On a thread of its own, which has the descriptor in a table of its own from then on, and no other: the kernel keeps what belongs to it also when the
  // program closes its own by a system call, and the next use ends the process. Else missing pages would be zeros from then on, and nobody told. Returns only where
  // the kernel refuses that.
  void HoldOpen() const;

 private:
  Status OpenWithout(PageMoves how);
  int Ask(unsigned long what, void* of) const;
  [[noreturn]] void EndAsClosed() const;
  int TryMove(char* to, char* from, size_t bytes, MayBeShared shared, std::chrono::steady_clock::duration patience, size_t* done);

  int fd_ = -1;
  FaultMode mode_ = FaultMode::kAuto;
  bool user_mode_only_ = false;
  bool moves_ = false;
};

}  // namespace ramspan
