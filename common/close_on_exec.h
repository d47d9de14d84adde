// Close-on-exec for what other libraries open: libfabric and UCX leave it out, so a program that the application starts (system()) would
// inherit their sockets. Seeing that a descriptor is new does not say whose it is: another thread of the program may have opened one
// at the same moment, and may mean it for a child. So only those are marked that are known to be the library's.
//
// Thread-safety: any thread. Between the opening and the mark, some milliseconds, a child of another thread may inherit the descriptor, as it could
// before: nothing here can hold up posix_spawn or vfork of the program's.
#pragma once

#include <sys/types.h>

#include <vector>

namespace ramspan {

// Marks an epoll set, everything that it waits for, what sets among that wait for, and so on; of pairs of sockets also the other end,
// where the kernel tells it (unix_diag). What a program waits for it has in sets of its own.
void CloseOnExec(int event_queue);
bool IsEventQueue(int number);  // an epoll set

// Marks what is opened from the first moment of this object to the last, provided that the calling thread is the process's only one at the
// first: threads that a library starts meanwhile are the library's. Does nothing in a process with several threads. (Signals are not blocked, because
// MPI_Init may wait for long: what a handler of the program's opens meanwhile is marked, too.)
class CloseOnExecOfACall {
 public:
  CloseOnExecOfACall();
  ~CloseOnExecOfACall();
  CloseOnExecOfACall(const CloseOnExecOfACall&) = delete;
  CloseOnExecOfACall& operator=(const CloseOnExecOfACall&) = delete;
  // Epoll sets that were opened until now, for CloseOnExec later: a network's connections may come when the call is over. Empty where nothing would be marked.
  std::vector<int> EventQueues() const;

 private:
  std::vector<int> Opened() const;

  bool alone_;
  std::vector<int> before_;  // sorted
};

}  // namespace ramspan
