// An object a thread, for buffers that keep their capacity from call to call, also in calls from exit handlers. There a
// plain thread_local is destroyed already, while swap is still drained and freed: using it corrupts the heap. This one is
// made anew then, and is not destroyed a second time.
#pragma once

#include <utility>

namespace ramspan {

// `Tag` tells the buffers of one type apart: ThreadScratch<std::vector<Piece>, struct PiecesTag>().
template <typename T, typename Tag>
T& ThreadScratch() {
  // Needs no destructor, so it is valid until the thread is gone.
  static thread_local constinit T* object = nullptr;
  if (object == nullptr) [[unlikely]] {
    struct Owner {
      ~Owner() { delete std::exchange(object, nullptr); }
    };
    static thread_local Owner owner;
    static_cast<void>(owner);
    object = new T;
  }
  return *object;
}

}  // namespace ramspan
