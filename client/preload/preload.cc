// libramspan-pages, first part: what `ramspan run --pages` preloads (LD_PRELOAD) into programs that do not know Ramspan. Large allocations, and anonymous
// mappings (mappings.cc), are memory of <ramspan/pages.h>; all others stay libc's. The page mode is started by the first of them.
//
// What is not taken: mappings of files, shared, fixed or without access; memory that is asked for before this library is initialised; and
// whatever Ramspan itself, and threads that it starts, allocate (own_heap.h): they bring pages, and must not wait for one.
//
// Thread-safety: as the calls that it replaces. No lock of its own but for the start.
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>

#include "client/preload/homes.h"
#include "client/preload/own_heap.h"
#include "ramspan/pages.h"

// The header hides the program's own calls of them behind macros or attributes that do not concern definitions.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace ramspan::preload {
detail::PageAddresses homes;
std::atomic<bool> is_forked{false}, pins_calls{false};
std::atomic<int> page_signal{0};
std::atomic<size_t> taken_from{SIZE_MAX};
}  // namespace ramspan::preload

namespace {

using ramspan::PublicCall;
using ramspan::detail::PageAddresses;
using ramspan::detail::t_inside_ramspan;
using ramspan::preload::homes;
using ramspan::preload::IsHome;
using ramspan::preload::MayTake;
using ramspan::preload::OutOfMemory;
using ramspan::preload::OwnHeap;
using ramspan::preload::Take;
using ramspan::preload::taken_from;

constexpr size_t kPageBytes = 4096;

enum class State { kUnborn, kReady, kStarting, kStarted, kForked };
std::atomic<State> state{State::kUnborn};
std::once_flag once;
struct stat standard_error {};
pid_t loaded_by = 0;  // its forked children had its memory, too, and say nothing of it

[[gnu::noinline]] void Say(const char* what) {
  char text[1200];
  const int length = std::snprintf(text, sizeof(text), "ramspan: %s\n", what);
  if (write(STDERR_FILENO, text, static_cast<size_t>(std::min<int>(length, sizeof(text) - 1))) < 0) return;
}

// A child of before the start begins for itself, where its parent had no other use of Ramspan.
void InForkedChild() {
  if (state.load() == State::kReady && !ramspan::detail::IsForkedChild()) return;
  state.store(State::kForked);
  taken_from.store(SIZE_MAX);
  ramspan::preload::is_forked.store(true);
  ramspan::preload::pins_calls.store(true);  // system calls bring the copy of the parent's memory
}

// libc's own: buffers of streams and folders, which it hands to the kernel by calls that do not come by here.
struct {
  uintptr_t begin = 0, bytes = 0;
} libc_code;

int FindLibc(dl_phdr_info* info, size_t, void* inside) {
  const auto address = reinterpret_cast<uintptr_t>(inside);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, bytes = info->dlpi_phdr[i].p_memsz;
    if (info->dlpi_phdr[i].p_type != PT_LOAD || (info->dlpi_phdr[i].p_flags & PF_X) == 0 || address - begin >= bytes) continue;
    libc_code.begin = begin;
    libc_code.bytes = bytes;
    return 1;
  }
  return 0;
}

[[gnu::constructor]] void AtLoad() {
  pthread_atfork(nullptr, nullptr, InForkedChild);
  ramspan::detail::RegisterForkHandlers();  // now: handlers of the program's own may use such memory
  if (void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD)) dl_iterate_phdr(FindLibc, dlsym(libc, "fopen"));
  // The configuration is read at the start, which comes with the first allocation of this size. (The launcher has read it for the environment.)
  taken_from.store(std::max(ramspan::detail::PagesAboveOfEnvironment(), kPageBytes));
  loaded_by = getpid();
  if (fstat(STDERR_FILENO, &standard_error) != 0) standard_error.st_ino = 0;
  state.store(State::kReady);
}

[[gnu::destructor]] void AtEnd() {
  struct stat now {};
  // The program may have closed its standard error, and opened a file of its own under that number.
  const bool may_tell = fstat(STDERR_FILENO, &now) == 0 && now.st_dev == standard_error.st_dev && now.st_ino == standard_error.st_ino;
  if (state.load(std::memory_order_relaxed) == State::kReady && getpid() == loaded_by && may_tell) ramspan::detail::TellOfNoPages();
}

void Start() {
  state.store(State::kStarting);
  ramspan::detail::LeaveAddressesToProgram();
  try {
    ramspan::FreePages(ramspan::AllocatePages(1));
  } catch (const std::exception& e) {
    Say(e.what());
    _exit(1);
  }
  const PageAddresses found = ramspan::detail::AddressesOfPages();
  if (found.bytes == 0) return InForkedChild();  // one of _Fork, of which nobody was told
  const ramspan::PageStatistics pages = ramspan::GetPageStatistics();
  ramspan::preload::page_signal.store(ramspan::detail::SignalOfPages());
  ramspan::preload::pins_calls.store(!pages.serves_system_calls || pages.copies);
  ramspan::preload::KeepOurs(ramspan::detail::DescriptorOfPages());
  homes.begin = found.begin;  // other threads ask meanwhile whether what they free is there: nothing of theirs is, until `bytes` says so
  std::atomic_thread_fence(std::memory_order_release);
  homes.bytes = found.bytes;
  if (ramspan::preload::page_signal.load() != 0) ramspan::preload::MakeStackOfThisThread();
  taken_from.store(std::max(ramspan::detail::PagesAbove(), kPageBytes));
  state.store(State::kStarted, std::memory_order_release);
}

constexpr size_t kLargeForLibc = size_t{1} << 20;
// Before the start nobody knows yet whether the kernel would find it, and what is taken now stays: it is libc's then, too. Start says it before it stores homes.bytes.
bool MayNeedPins() {
  if (homes.bytes == 0) return true;
  std::atomic_thread_fence(std::memory_order_acquire);
  return ramspan::preload::pins_calls.load(std::memory_order_relaxed);
}
bool IsLibcs(size_t bytes, const void* caller) {
  return bytes < kLargeForLibc && reinterpret_cast<uintptr_t>(caller) - libc_code.begin < libc_code.bytes && MayNeedPins();
}

// REQUIRES: a PublicCall.
void ForgetTopsOf(const void* allocation) {
  using namespace ramspan::preload;
  if (__builtin_expect(holds_tops.load(std::memory_order_relaxed), 0)) ForgetTops(allocation, ramspan::PagedBytes(allocation), Given::kBack);
}

// As realloc.
void* ReallocateOwn(void* begin, size_t bytes) {
  void* const moved = bytes == 0 ? nullptr : malloc(bytes);
  if (moved == nullptr && bytes != 0) return nullptr;
  if (moved != nullptr) memcpy(moved, begin, std::min(bytes, OwnHeap::Bytes(begin)));
  OwnHeap::Free(begin);
  return moved;
}

bool IsPowerOfTwo(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

}  // namespace

void ramspan::preload::AwaitStart() {
  if (t_inside_ramspan == 0 && state.load(std::memory_order_acquire) == State::kStarting) std::call_once(once, Start);
}

void* ramspan::preload::Take(size_t bytes, size_t alignment) {
  if (t_inside_ramspan != 0 || bytes > PTRDIFF_MAX) return nullptr;
  if (const State now = state.load(std::memory_order_relaxed); now == State::kUnborn || now == State::kForked) return nullptr;
  const PublicCall call(PublicCall::Stack::kAny);
  const int error = errno;
  if (state.load(std::memory_order_acquire) != State::kStarted) {
    // The descriptors and threads of a start would be the child's, and what notes them its parent's.
    if (ramspan::preload::HasMemoryOfParent()) return nullptr;
    std::call_once(once, Start);
  }
  if (bytes < taken_from.load(std::memory_order_relaxed)) return nullptr;  // as configured
  void* taken = nullptr;
  try {
    taken = ramspan::AllocatePages(bytes, alignment);
  } catch (const std::exception&) {
  }
  errno = error;
  return taken;
}

extern "C" {

// ---- malloc(3) ----

RAMSPAN_API void* malloc(size_t bytes) {
  if (MayTake(bytes) && !IsLibcs(bytes, __builtin_return_address(0))) {
    if (void* taken = Take(bytes, alignof(std::max_align_t))) return taken;
  }
  void* const own = OwnHeap::Allocate(bytes, alignof(std::max_align_t));
  return __builtin_expect(own == nullptr, 1) ? __libc_malloc(bytes) : own;
}

RAMSPAN_API void* calloc(size_t count, size_t bytes) {
  size_t all = 0;
  if (!__builtin_mul_overflow(count, bytes, &all) && MayTake(all) && !IsLibcs(all, __builtin_return_address(0))) {
    if (void* taken = Take(all, alignof(std::max_align_t))) return taken;
  }
  void* const own = __builtin_mul_overflow(count, bytes, &all) ? nullptr : OwnHeap::Allocate(all, alignof(std::max_align_t));
  return __builtin_expect(own == nullptr, 1) ? __libc_calloc(count, bytes) : memset(own, 0, all);
}

RAMSPAN_API void free(void* begin) {
  if (!IsHome(begin)) return __builtin_expect(begin != nullptr && OwnHeap::Owns(begin), 0) ? OwnHeap::Free(begin) : __libc_free(begin);
  const PublicCall call(PublicCall::Stack::kAny);
  ForgetTopsOf(begin);
  ramspan::FreePages(begin);
}

RAMSPAN_API size_t malloc_usable_size(void* begin) noexcept {
  if (IsHome(begin)) return ramspan::PagedBytes(begin);
  if (begin != nullptr && OwnHeap::Owns(begin)) return OwnHeap::Bytes(begin);
  // Of the library whose malloc is behind the one here: a program's own allocator may be the next one, and does not know what that has given, or have given it (mimalloc has libc's names).
  static const auto of_heap = [] {
    Dl_info about;
    const link_map* where = nullptr;
    const bool is_known = dladdr1(reinterpret_cast<void*>(&__libc_malloc), &about, reinterpret_cast<void**>(const_cast<link_map**>(&where)), RTLD_DL_LINKMAP) != 0;
    void* const library = dlopen(is_known ? where->l_name : "libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    return reinterpret_cast<size_t (*)(void*)>(dlsym(library, "malloc_usable_size"));
  }();
  return of_heap(begin);
}

RAMSPAN_API void* realloc(void* begin, size_t bytes) {
  if (begin == nullptr) return malloc(bytes);
  if (!IsHome(begin)) {
    if (__builtin_expect(OwnHeap::Owns(begin), 0)) return ReallocateOwn(begin, bytes);
    if (!MayTake(bytes) || IsLibcs(bytes, __builtin_return_address(0))) return __libc_realloc(begin, bytes);
    void* const taken = Take(bytes, alignof(std::max_align_t));
    if (taken == nullptr) return __libc_realloc(begin, bytes);
    memcpy(taken, begin, std::min(bytes, malloc_usable_size(begin)));
    __libc_free(begin);
    return taken;
  }
  if (bytes == 0) {
    free(begin);
    return nullptr;
  }
  if (bytes > PTRDIFF_MAX) return OutOfMemory();
  if (MayTake(bytes)) {
    PublicCall call(PublicCall::Stack::kAny);
    ForgetTopsOf(begin);
    void* const moved = ramspan::detail::ReallocatePages(begin, bytes);
    if (moved == nullptr) call.Fail(ENOMEM);
    return moved;
  }
  void* const smaller = __libc_malloc(bytes);
  if (smaller == nullptr) return nullptr;
  memcpy(smaller, begin, std::min(bytes, ramspan::PagedBytes(begin)));
  free(begin);
  return smaller;
}

RAMSPAN_API void* reallocarray(void* begin, size_t count, size_t bytes) noexcept {
  size_t all = 0;
  return __builtin_mul_overflow(count, bytes, &all) ? OutOfMemory() : realloc(begin, all);
}

RAMSPAN_API void* memalign(size_t alignment, size_t bytes) {
  if (MayTake(bytes) && IsPowerOfTwo(alignment)) {
    if (void* taken = Take(bytes, alignment)) return taken;
  }
  void* const own = IsPowerOfTwo(alignment) ? OwnHeap::Allocate(bytes, alignment) : nullptr;
  return __builtin_expect(own == nullptr, 1) ? __libc_memalign(alignment, bytes) : own;
}

RAMSPAN_API void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

RAMSPAN_API int posix_memalign(void** result, size_t alignment, size_t bytes) noexcept {
  if (!IsPowerOfTwo(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int error = errno;
  void* const begin = memalign(alignment, bytes);
  errno = error;
  if (begin == nullptr) return ENOMEM;
  *result = begin;
  return 0;
}

RAMSPAN_API void* valloc(size_t bytes) { return memalign(kPageBytes, bytes); }
RAMSPAN_API void* pvalloc(size_t bytes) {
  return bytes > PTRDIFF_MAX ? OutOfMemory() : memalign(kPageBytes, (bytes + kPageBytes - 1) & ~(kPageBytes - 1));
}

}  // extern "C"
