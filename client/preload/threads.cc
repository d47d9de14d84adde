// libramspan-pages, fourth part: threads. Those that Ramspan starts are Ramspan's, and so are those that they start; all others get a stack for the handler that brings
// pages, where that is how they are brought.
// Thread-safety: as the call that it replaces.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "client/preload/homes.h"

extern "C" {
void* __libc_malloc(size_t);
void __libc_free(void*);
}

namespace ramspan::preload {
namespace {

struct Beginning {
  void* (*run)(void*);
  void* argument;
  int inside;
};

// Where the handler of SIGBUS brings pages, which may be those of the thread's stack. Ends with the thread.
class HandlersStack {
 public:
  HandlersStack() : begin_(reinterpret_cast<char*>(syscall(SYS_mmap, nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    stack_t stack = {};
    stack.ss_sp = begin_;
    stack.ss_size = kBytes;
    stack_t before = {};
    if (reinterpret_cast<intptr_t>(begin_) == -1 || sigaltstack(nullptr, &before) != 0 || (before.ss_flags & SS_DISABLE) == 0 || sigaltstack(&stack, nullptr) != 0) Unmap();
  }
  ~HandlersStack() {
    if (begin_ == nullptr) return;
    stack_t now = {}, none = {};
    none.ss_flags = SS_DISABLE;
    if (sigaltstack(nullptr, &now) == 0 && now.ss_sp == begin_ && sigaltstack(&none, nullptr) != 0) return;  // in use
    Unmap();
  }
  HandlersStack(const HandlersStack&) = delete;
  HandlersStack& operator=(const HandlersStack&) = delete;

 private:
  static constexpr size_t kBytes = size_t{256} << 10;
  void Unmap() {
    if (reinterpret_cast<intptr_t>(begin_) != -1) syscall(SYS_munmap, begin_, kBytes);
    begin_ = nullptr;
  }
  char* begin_;
};

void* RunThread(void* beginning) {
  const Beginning begin = *static_cast<Beginning*>(beginning);
  __libc_free(beginning);
  detail::t_inside_ramspan = begin.inside;
  if (begin.inside == 0) MakeStackOfThisThread();
  return begin.run(begin.argument);
}

// A stack of the program's that is swapped by pages: where a thread begins it has no other stack yet, and above that libc keeps what the kernel looks at. It stays until the
// memory is given back.
void HoldTopOf(const pthread_attr_t& attributes) {
  constexpr size_t kTop = size_t{64} << 10;
  void* stack = nullptr;
  size_t bytes = 0;
  if (!in_signals.load(std::memory_order_relaxed) || pthread_attr_getstack(&attributes, &stack, &bytes) != 0 || bytes == 0 || !IsHome(stack)) return;
  char* const top = static_cast<char*>(stack) + (bytes > kTop ? bytes - kTop : 0);
  for (char* page = top; page < static_cast<char*>(stack) + bytes; page += 4096) *const_cast<volatile char*>(page);  // what was never touched could not be held
  const detail::Inside inside;
  static_cast<void>(detail::HoldPages(top, static_cast<size_t>(static_cast<char*>(stack) + bytes - top)));
}

}  // namespace

void MakeStackOfThisThread() {
  static thread_local HandlersStack stack;
  static_cast<void>(stack);
}

}  // namespace ramspan::preload

using ramspan::detail::t_inside_ramspan;
using ramspan::preload::Beginning;
using ramspan::preload::homes;
using ramspan::preload::HoldTopOf;
using ramspan::preload::RunThread;

extern "C" {

RAMSPAN_API int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) noexcept {
  static constinit ramspan::preload::Libc<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)> next("pthread_create");
  // Before the start it is not known whether there will be a handler.
  const bool may_need_stack = homes.bytes == 0 || ramspan::preload::in_signals.load(std::memory_order_relaxed);
  if (t_inside_ramspan == 0 && !may_need_stack) return next(thread, attributes, run, argument);
  if (attributes != nullptr && t_inside_ramspan == 0) HoldTopOf(*attributes);
  auto* const begin = static_cast<Beginning*>(__libc_malloc(sizeof(Beginning)));
  if (begin == nullptr) return EAGAIN;
  *begin = {run, argument, t_inside_ramspan};
  const int error = next(thread, attributes, RunThread, begin);
  if (error != 0) __libc_free(begin);
  return error;
}

}  // extern "C"
