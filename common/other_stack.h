// Runs a function on a stack of its own, and returns to the caller's.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace ramspan {

namespace detail {
// A mapping that nobody else knows, with `bytes` for what runs there at its begin, aligned as a page. It ends with the object, which is not used on it.
class OtherStack {
 public:
  explicit OtherStack(size_t bytes);
  ~OtherStack();
  OtherStack(const OtherStack&) = delete;
  OtherStack& operator=(const OtherStack&) = delete;
  void* begin() const { return begin_; }
  void Run(void (*function)(void*), void* argument) const;

 private:
  char* const begin_;
  const size_t before_;  // bytes that are not stack
};
}  // namespace detail

// What `function` returns. It is moved there, so what it captures by value is not on the caller's stack either. It must not throw. Ends the process where there is no memory for a stack.
template <typename F>
auto OnOtherStack(F function) {
  using Result = decltype(function());
  struct Job {
    F function;
    std::conditional_t<std::is_void_v<Result>, char, Result> result;
  };
  static_assert(alignof(Job) <= 4096);
  const detail::OtherStack stack(sizeof(Job));
  Job* const job = new (stack.begin()) Job{std::move(function), {}};
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
