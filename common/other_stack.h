// Runs a function on a stack of its own, and returns to the caller's. Some stacks are kept: to make one and give it back costs 40 us, and there may be no memory for it.
// Thread-safety: any thread.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace ramspan {

// False: there is no memory for a stack. Else there is always one from now on, for which a thread may have to wait until another one has returned.
bool ReserveOtherStack();

namespace detail {
// A mapping that nobody else knows, with room above the stack for what is passed to it. The object is not used on it.
class OtherStack {
 public:
  static constexpr size_t kRoom = 4096;  // bytes, aligned as a page

  OtherStack();  // waits until there is one
  ~OtherStack();
  OtherStack(const OtherStack&) = delete;
  OtherStack& operator=(const OtherStack&) = delete;
  void* room() const;
  void Run(void (*function)(void*), void* argument) const;

 private:
  char* const mapping_;
};
}  // namespace detail

// What `function` returns. It is moved there, so what it captures by value is not on the caller's stack either. It must not throw.
template <typename F>
auto OnOtherStack(F function) {
  using Result = decltype(function());
  struct Job {
    F function;
    std::conditional_t<std::is_void_v<Result>, char, Result> result;
  };
  static_assert(alignof(Job) <= detail::OtherStack::kRoom && sizeof(Job) <= detail::OtherStack::kRoom);
  const detail::OtherStack stack;
  Job* const job = new (stack.room()) Job{std::move(function), {}};
  stack.Run(
      [](void* argument) {
        Job* const here = static_cast<Job*>(argument);
        if constexpr (std::is_void_v<Result>) {
          here->function();
        } else {
          here->result = here->function();
        }
      },
      job);
  if constexpr (std::is_void_v<Result>) {
    job->~Job();
  } else {
    Result result = std::move(job->result);
    job->~Job();
    return result;
  }
}

}  // namespace ramspan
