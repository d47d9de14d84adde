// EventDescriptors: the epoll descriptors of this process, which are those of the libraries in it. MPI has no call that waits
// for the network without spinning. But UCX and libfabric's TCP providers watch their sockets through epoll sets, which become
// readable as soon as there is something for MPI's progress to do, and a thread may wait for that beside them.
//
// It is a hint and no more: what a network says without a descriptor (InfiniBand, shared memory) is not seen, and what another
// thread of this process has dealt with meanwhile does not wake this one. So every wait needs an end of its own.
//
// Thread-safety: none. Ownership: borrows the descriptors; one that its library has closed is no longer waited for.
#pragma once

#include <poll.h>

#include <chrono>
#include <vector>

namespace ramspan {

class EventDescriptors {
 public:
  // None.
  EventDescriptors() = default;
  // Those that are open now. Empty where /proc cannot be read or no library has any.
  static EventDescriptors OfThisProcess();

  bool empty() const { return descriptors_.empty(); }
  // Waits until one of them is ready, at most `timeout`; with 0 it only looks. True: one is. Changes none of them. May also
  // return false early, at a signal.
  bool Wait(std::chrono::microseconds timeout);

 private:
  std::vector<pollfd> descriptors_;
};

}  // namespace ramspan
