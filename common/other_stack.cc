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

// A guard, the stack, and above it what it must not reach. By the system calls: libc's names may be the preloaded library's. Null: there is no memory.
char* Map(size_t bytes) {
  const long all = syscall(SYS_mmap, nullptr, kPage + kStackBytes + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (all == -1) return nullptr;
  char* const begin = reinterpret_cast<char*>(all);
  if (syscall(SYS_mprotect, begin + kPage, kStackBytes + bytes, PROT_READ | PROT_WRITE) == 0) return begin;
  syscall(SYS_munmap, begin, kPage + kStackBytes + bytes);
  return nullptr;
}

}  // namespace

OtherStack::OtherStack(size_t bytes) : above_(WholePages(sizeof(Contexts)) + WholePages(bytes)), mapping_(Map(above_)) {}

OtherStack::~OtherStack() {
  if (mapping_ != nullptr) syscall(SYS_munmap, mapping_, kPage + kStackBytes + above_);
}

void* OtherStack::room() const { return mapping_ == nullptr ? nullptr : mapping_ + kPage + kStackBytes + WholePages(sizeof(Contexts)); }

void OtherStack::Run(void (*function)(void*), void* argument) const {
  auto* const contexts = reinterpret_cast<Contexts*>(mapping_ + kPage + kStackBytes);
  contexts->function = function;
  contexts->argument = argument;
  RS_CHECK(getcontext(&contexts->there) == 0, "getcontext failed");
  contexts->there.uc_stack.ss_sp = mapping_ + kPage;
  contexts->there.uc_stack.ss_size = kStackBytes;
  contexts->there.uc_link = &contexts->back;
  const auto address = reinterpret_cast<uintptr_t>(contexts);
  makecontext(&contexts->there, reinterpret_cast<void (*)()>(Start), 2, static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  RS_CHECK(swapcontext(&contexts->back, &contexts->there) == 0, "swapcontext failed");
}

}  // namespace ramspan::detail
