// An object a thread, for buffers that keep their capacity from call to call, also in calls from exit handlers and from the destructors of
// thread_local objects and thread-specific data. A plain thread_local is destroyed already in some of these, while swap is still drained and freed. And the first
// use of one with a destructor takes the dynamic linker's lock, for which threads that others wait for must not wait: who has it may be
// in a library's constructor, and wait for them (dlopen).
#pragma once

#include <utility>

namespace ramspan {
namespace detail {

// A thread's own. `drop` is called at its end, before the thread's memory goes and after the destructors of its thread_local objects; not for the
// thread that calls exit().
struct AtThreadEnd {
  void (*drop)();
  AtThreadEnd* next = nullptr;
};
// REQUIRES: it is not listed yet, or was dropped. Without room for it nothing is called.
void CallAtThreadEnd(AtThreadEnd* end) noexcept;

}  // namespace detail

// `Tag` tells the buffers of one type apart: ThreadScratch<std::vector<Piece>, struct PiecesTag>().
template <typename T, typename Tag>
T& ThreadScratch() {
  static thread_local constinit T* object = nullptr;
  static thread_local constinit detail::AtThreadEnd end{[] { delete std::exchange(object, nullptr); }};
  if (object == nullptr) [[unlikely]] {
    T* const made = new T;
    if (object != nullptr) return delete made, *object;  // a signal handler that has interrupted this was faster
    object = made;
    detail::CallAtThreadEnd(&end);
  }
  return *object;
}

}  // namespace ramspan
