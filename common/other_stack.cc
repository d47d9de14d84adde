#include "common/other_stack.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>

#include "common/check.h"

namespace ramspan::detail {
namespace {

constexpr size_t kPage = 4096, kStackBytes = size_t{256} << 10;  // a miss takes some 10 KiB

struct Contexts {
  ucontext_t back, there;
  void (*function)(void*);
  void* argument;
};

size_t WholePages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// makecontext passes int arguments only.
void Start(unsigned high, unsigned low) {
  auto* const contexts = reinterpret_cast<Contexts*>(uintptr_t{high} << 32 | low);
  contexts->function(contexts->argument);
}

// By the system call: libc's names may be the preloaded library's.
char* Map(size_t bytes) {
  const long begin = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  RS_CHECK(begin != -1, "no memory for a stack of %zu KiB", bytes >> 10);
  return reinterpret_cast<char*>(begin);
}

}  // namespace

OtherStack::OtherStack(size_t bytes) : begin_(Map(WholePages(bytes) + WholePages(sizeof(Contexts)) + kStackBytes)), before_(WholePages(bytes) + WholePages(sizeof(Contexts))) {}

OtherStack::~OtherStack() { syscall(SYS_munmap, begin_, before_ + kStackBytes); }

void OtherStack::Run(void (*function)(void*), void* argument) const {
  auto* const contexts = reinterpret_cast<Contexts*>(begin_ + before_ - WholePages(sizeof(Contexts)));
  contexts->function = function;
  contexts->argument = argument;
  RS_CHECK(getcontext(&contexts->there) == 0, "getcontext failed");
  contexts->there.uc_stack.ss_sp = begin_ + before_;
  contexts->there.uc_stack.ss_size = kStackBytes;
  contexts->there.uc_link = &contexts->back;
  const auto address = reinterpret_cast<uintptr_t>(contexts);
  makecontext(&contexts->there, reinterpret_cast<void (*)()>(Start), 2, static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  RS_CHECK(swapcontext(&contexts->back, &contexts->there) == 0, "swapcontext failed");
}

}  // namespace ramspan::detail
