// Runs a function on a stack of its own, and returns to the caller's.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace ramspan {

namespace detail {
// A mapping that nobody else knows, with room for `bytes` above the stack, aligned as a page. It ends with the object, which is not used on it.
class OtherStack {
 public:
  explicit OtherStack(size_t bytes);
  ~OtherStack();
  OtherStack(const OtherStack&) = delete;
  OtherStack& operator=(const OtherStack&) = delete;
  void* room() const;  // null: there is no memory for a stack
  void Run(void (*function)(void*), void* argument) const;

 private:
  const size_t above_;
  char* const mapping_;
};
}  // namespace detail

// What `function` returns. It is moved there, so what it captures by value is not on the caller's stack either. It must not throw. Where there is no memory for a stack it runs on the caller's.
template <typename F>
auto OnOtherStack(F function) {
  using Result = decltype(function());
  struct Job {
    F function;
    std::conditional_t<std::is_void_v<Result>, char, Result> result;
  };
  static_assert(alignof(Job) <= 4096);
  const detail::OtherStack stack(sizeof(Job));
  if (stack.room() == nullptr) return function();
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
