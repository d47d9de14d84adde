#include "common/other_stack.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "common/check.h"

namespace ramspan::detail {
namespace {

constexpr size_t kPage = 4096, kStackBytes = size_t{256} << 10;  // a miss takes some 10 KiB

struct Contexts {
  ucontext_t back, there;
  void (*function)(void*);
  void* argument;
};

constexpr size_t kContextsBytes = kPage, kMappingBytes = kPage + kStackBytes + kContextsBytes + OtherStack::kRoom;
static_assert(sizeof(Contexts) <= kContextsBytes);

constexpr size_t kKeptMost = 4;
std::atomic<char*> kept[kKeptMost];  // who takes one out has it
// What one thread gives back to the kernel another one may get, at the same addresses. The kernel orders the two, which the thread sanitizer does not see of bare
// system calls: release before the one, acquire after the other.
std::atomic<uint32_t> given_back{0};

constexpr timespec kNap = {0, 100'000};

// makecontext passes int arguments only.
void Start(unsigned high, unsigned low) {
  auto* const contexts = reinterpret_cast<Contexts*>(uintptr_t{high} << 32 | low);
  contexts->function(contexts->argument);
}

// A guard, the stack, and above it what it must not reach. By the system calls: libc's names may be the preloaded library's. Null: there is no memory.
char* Map() {
  const long all = syscall(SYS_mmap, nullptr, kMappingBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (all == -1) return nullptr;
  static_cast<void>(given_back.load(std::memory_order_acquire));
  char* const begin = reinterpret_cast<char*>(all);
  if (syscall(SYS_mprotect, begin + kPage, kMappingBytes - kPage, PROT_READ | PROT_WRITE) == 0) return begin;
  syscall(SYS_munmap, begin, kMappingBytes);
  return nullptr;
}

char* Take() {
  for (;;) {
    for (std::atomic<char*>& one : kept) {
      if (char* const mapping = one.exchange(nullptr, std::memory_order_acquire)) return mapping;
    }
    if (char* const mapping = Map()) return mapping;
    syscall(SYS_nanosleep, &kNap, nullptr);
  }
}

// Release: who takes it next writes where this thread has.
void Keep(char* mapping) {
  for (std::atomic<char*>& one : kept) {
    char* none = nullptr;
    if (one.compare_exchange_strong(none, mapping, std::memory_order_release, std::memory_order_relaxed)) return;
  }
  given_back.fetch_add(1, std::memory_order_release);
  syscall(SYS_munmap, mapping, kMappingBytes);
}

}  // namespace

OtherStack::OtherStack() : mapping_(Take()) {}
OtherStack::~OtherStack() { Keep(mapping_); }

void* OtherStack::room() const { return mapping_ + kPage + kStackBytes + kContextsBytes; }

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

bool ramspan::ReserveOtherStack() {
  char* const mapping = detail::Map();
  if (mapping != nullptr) detail::Keep(mapping);
  return mapping != nullptr;
}
