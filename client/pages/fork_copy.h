// ForkCopy: what a forked child sees of its parent's memory that is swapped by pages: what a child sees of any memory, a copy of what was there at the fork.
//
// The child has none of that memory, and most children exec another program at once. So fork(2) waits in the parent until it is known what the child does:
//   exec, or its end     its end of a socket closes, and nothing is copied
//   a touch              it asks by that socket for the block, and for all after some of those
//   neither, for a while it may come to touch some
// In the last case, or when it asks for all, the parent writes all of it to a file without a name, which the child maps, privately, where the memory was. Other threads of the
// parent go on meanwhile: what they change while fork runs, the child may see. What the child changes is its own, and counts in no limit.
//
// Thread-safety: Prepare, InParent and InChild are for pthread_atfork, and do nothing before Open; Ask is for any thread of the child, and for handlers of signals. Ownership: of the sockets. Errors: what
// keeps the child from its copy is told to the child, which ends at its first touch.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/reserve_addresses.h"

namespace ramspan {

class PageSpace;

// A range of the memory, and where in the file it is. Bytes.
struct CopiedRun {
  uint64_t home = 0;  // from the first home on
  uint64_t bytes = 0;
  uint64_t offset = 0;
  int protection = PROT_READ | PROT_WRITE;  // another one: of pages that are of other runs, too
  bool is_zeros = false;  // it is not in the file
};

class ForkCopy {
 public:
  // `folder`: for the file. Never copies: children have none of the memory.
  struct Options {
    std::string folder;
    bool copies = true;
  };
  // Once. Borrows `space`, for ever.
  static void Open(PageSpace* space, const Options& options);

  static void Prepare();
  static void InParent();
  static void InChild();
  static bool is_first_child();  // before InChild: not a child's child, which has what its parent has
  static bool is_of_unknown_child();  // its parent is itself a child, of which no handler was told (_Fork, clone), and may have other memory where homes were
  // In a child: gets the block of the parent's memory that has `address`, or more; null: all of it. False: it has none. Waits for the parent. Async-signal-safe.
  static bool Ask(const void* address);
  // Why it has none; null: it has one, or may have.
  static const char* why_not();
  // The descriptor by which a child asks, as long as it has not got all; -1: none. The program must not close it.
  static int descriptor();
};

}  // namespace ramspan
