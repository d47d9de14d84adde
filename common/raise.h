// Raise: throws an error whose words are seen however the program ends by it.
//
// C++ drops them where an exception leaves an OpenMP region, meets a std::thread that nobody has joined, or leaves a noexcept function that was
// inlined: std::terminate is called "without an active exception". Where two threads come there at once, each cuts off what the other says. So as long
// as an error that was raised is not caught and gone, the handler of std::terminate is one that lets the first thread finish, prints the error that the
// thread has under way where C++ does not know it any more, and calls the handler that the program had. At all other times that handler is the
// program's own, and what the program sets meanwhile stays. What is thrown is an E and nothing else.
// Thread-safety: any thread. Needs no heap beyond the exception's own.
#pragma once

#include <cxxabi.h>

#include <new>
#include <stdexcept>
#include <type_traits>
#include <typeinfo>

namespace ramspan {

// An error is under way as long as this lives.
class ErrorUnderWay {
 public:
  explicit ErrorUnderWay(const char* words) noexcept;
  ~ErrorUnderWay();
  ErrorUnderWay(const ErrorUnderWay&) = delete;
  ErrorUnderWay& operator=(const ErrorUnderWay&) = delete;

 private:
  const int place_;  // of the words; kNowhere: more are under way than there are places for
};

template <class E>
[[noreturn]] void Raise(const E& error) {
  static_assert(std::is_base_of_v<std::runtime_error, E> && std::is_nothrow_copy_constructible_v<E>);
  // As the compiler does for `throw`: memory of the C++ runtime, which calls the destructor when the last handler is left
  // (Itanium C++ ABI, 2.4.1 to 2.4.3). The error is at the beginning, what follows it is nobody's but ours.
  struct Thrown {
    E error;
    ErrorUnderWay under_way;
  };
  void* const memory = abi::__cxa_allocate_exception(sizeof(Thrown));
  auto* const thrown = new (memory) Thrown{error, ErrorUnderWay(error.what())};
  abi::__cxa_throw(&thrown->error, const_cast<std::type_info*>(&typeid(E)), [](void* gone) { static_cast<Thrown*>(gone)->~Thrown(); });
}

}  // namespace ramspan
