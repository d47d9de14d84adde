// <ramspan/pages.h>, <ramspan/rs_malloc.h>, and the start of the page mode.
#include "ramspan/pages.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "client/front/pin_registry.h"
#include "client/front/throw_status.h"
#include "client/pages/fault_server.h"
#include "client/pages/fork_copy.h"
#include "client/pages/page_scanner.h"
#include "client/pages/page_space.h"
#include "client/runtime/options.h"
#include "client/runtime/pages_door.h"
#include "client/runtime/runtime.h"
#include "common/check.h"
#include "common/config_values.h"
#include "common/log.h"
#include "common/public_call.h"
#include "common/raise.h"
#include "common/reserve_addresses.h"
#include "common/units.h"
#include "ramspan/errors.h"
#include "ramspan/rs_malloc.h"

namespace ramspan {

namespace {

// Where all of it is, also in a forked child, which has none of it.
std::atomic<char*> homes_begin{nullptr};
std::atomic<size_t> homes_bytes{0};  // stored last

bool IsHome(const void* address) {
  const size_t bytes = homes_bytes.load(std::memory_order_acquire);
  return static_cast<size_t>(static_cast<const char*>(address) - homes_begin.load(std::memory_order_relaxed)) < bytes;
}

// By the system call itself: libc's name may be the preloaded library's, which keeps such addresses free.
void MapInChild(void* begin, size_t bytes, int protection) { syscall(SYS_mmap, begin, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0); }

// The program's own of SIGSEGV, in a child whose handler is BringToChild: the child has one thread when it is set, and others change it with all signals blocked.
struct sigaction segv_of_program = {};
// Other threads of the child may have touched something just before it was there. An address at which there is nothing comes again and again.
constexpr int kFaultsWithCopy = 1000;
std::atomic<int> faults_with_copy{0};

void ExplainInChild(const char* why_not) {
  static constexpr char kText[] = "ramspan: a forked child uses memory of its parent that is swapped by pages, and has no copy of it: ";
  static constexpr char kRemedy[] =
      "\nramspan: let the child exec another program, or use threads; ramspan run --pages-above SIZE leaves smaller allocations to malloc, which children share\n";
  static_cast<void>(!write(STDERR_FILENO, kText, sizeof(kText) - 1));
  static_cast<void>(!write(STDERR_FILENO, why_not, strlen(why_not)));
  static_cast<void>(!write(STDERR_FILENO, kRemedy, sizeof(kRemedy) - 1));
}

// What the child touches of its parent's memory comes now, as a copy. All others are the program's.
void BringToChild(int number, siginfo_t* info, void* context) {
  struct sigaction own = segv_of_program;
  if (info->si_code > 0 && IsHome(info->si_addr)) {
    const bool had_all = ForkCopy::descriptor() < 0;
    if (ForkCopy::Ask(info->si_addr) && (!had_all || faults_with_copy.fetch_add(1) < kFaultsWithCopy)) return;
    if (const char* const why_not = ForkCopy::why_not()) {
      ExplainInChild(why_not);
      own = {};  // and ends: a handler of the program's would come back to it for ever
    }
  }
  if ((own.sa_flags & SA_SIGINFO) == 0 && own.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if ((own.sa_flags & SA_SIGINFO) != 0 || (own.sa_handler != SIG_DFL && own.sa_handler != SIG_IGN)) {
    if ((own.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) segv_of_program = {};
    {
      const detail::Inside inside;
      sigset_t mask = static_cast<ucontext_t*>(context)->uc_sigmask;
      sigorset(&mask, &mask, &own.sa_mask);
      sigdelset(&mask, SIGSEGV);  // it may use such memory
      pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    }
    (own.sa_flags & SA_SIGINFO) != 0 ? own.sa_sigaction(number, info, context) : own.sa_handler(number);
    return;
  }
  const detail::Inside inside;
  signal(number, SIG_DFL);  // the instruction is executed again
  if (info->si_code <= 0) raise(number);
}

PageSpace* parents_space = nullptr;  // as it was at the fork, in a child

void BeforeFork() {
  ForkCopy::Prepare();
  FaultServer::BeforeFork();
}
void InParentAfterFork() { ForkCopy::InParent(); }
void InForkedChild() {
  FaultServer::InForkedChild();
  // Nobody else's: what is mapped later would pass for memory that was the parent's.
  if (!ForkCopy::is_first_child()) return ForkCopy::InChild();
  MapInChild(homes_begin.load(), homes_bytes.load(), PROT_NONE);
  Session::CloseInForkedChild();  // handlers of the program's may give such memory back before it is the runtime's turn
  struct sigaction action = {};
  action.sa_sigaction = BringToChild;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  const detail::Inside inside;
  if (sigaction(SIGSEGV, &action, &segv_of_program) != 0) return;
  struct sigaction own;
  FaultServer::ExchangeHandlerOfOthers(nullptr, &own);
  if (parents_space->userfault().signal() == SIGSEGV) segv_of_program = own;
  if (parents_space->userfault().signal() == SIGBUS) sigaction(SIGBUS, &own, nullptr);  // nothing comes by it here
  ForkCopy::InChild();
}

}  // namespace

PageSpace& Runtime::StartPages() {
  MutexLock lock(pages_mutex_);
  if (PageSpace* space = pages_.load(std::memory_order_acquire)) return *space;
  Result<std::unique_ptr<PageSpace>> made = PageSpace::Create(engine_.get(), {config_.page_block, config_.page_faults, config_.page_moves});
  if (!made.ok()) Raise(ConfigError(made.status().message()));
  auto* const server = new FaultServer(made.value().get(), PinRegistry::Get().threads());
  if (Status status = server->Start(); !status.ok()) Raise(ConfigError(status.message()));
  PageSpace* const space = std::move(made).value().release();  // for ever: pages are used until the process ends
  homes_begin.store(space->homes().begin, std::memory_order_relaxed);
  homes_bytes.store(space->homes().bytes, std::memory_order_release);
  parents_space = space;
  const std::string mask = SwapfileMask(config_);
  const size_t slash = mask.rfind('/');
  ForkCopy::Open(space, {.folder = slash == std::string::npos ? "." : mask.substr(0, slash + 1), .copies = config_.page_children});
  detail::RegisterForkHandlers();
  PublicCall::PutHandlersOff();
  scanner_->SetSpace(space);
  pages_.store(space, std::memory_order_release);
  return *space;
}

namespace {

PageSpace* PagesIfStarted() {
  Runtime* const runtime = Runtime::IfStarted();
  return runtime == nullptr ? nullptr : runtime->pages_if_started();
}

// A public call that may take the engine's mutex, or make blocks leave.
struct PageCall {
  const PublicCall call;
  PageSpace* const space = PagesIfStarted();
  const PageSpace::StackHeld stack{space};
};

// As malloc says it, and the reason once.
template <typename F>
void* OrNull(const F& call) {
  try {
    return call();
  } catch (const std::exception& e) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true)) LogWarning("memory that is swapped by pages is not to be had: %s", e.what());
  }
  errno = ENOMEM;
  return nullptr;
}

constexpr size_t kLeast = size_t{64} << 10;  // below it, malloc

}  // namespace

namespace {

// Its copy of the parent's memory. Addresses stay Ramspan's.
void DropInChild(void* begin, size_t bytes) {
  if (bytes > 0) MapInChild(begin, bytes, PROT_NONE);
}

// Whole pages are others' then.
void DiscardInChild(char* begin, size_t bytes) {
  if (!ForkCopy::Ask(nullptr)) return;
  constexpr size_t kPage = 4096;
  char* const end = begin + bytes;
  char* const first = std::min(end, begin + -reinterpret_cast<uintptr_t>(begin) % kPage);
  char* const last = std::max(first, end - reinterpret_cast<uintptr_t>(end) % kPage);
  memset(begin, 0, static_cast<size_t>(first - begin));
  if (last > first) MapInChild(first, static_cast<size_t>(last - first), PROT_READ | PROT_WRITE);
  memset(last, 0, static_cast<size_t>(end - last));
}

void FreeInChild(void* begin) {
  const size_t bytes = parents_space->BytesOf(begin), unit = parents_space->unit_bytes();
  if (ForkCopy::why_not() == nullptr && ForkCopy::descriptor() < 0) DropInChild(begin, (bytes + unit - 1) / unit * unit);  // else there is no copy, or not yet
}

}  // namespace

void* AllocatePages(size_t bytes, size_t alignment) {
  if (Session::InForkedChild()) {  // which has no servers and no thread that moves data: malloc's
    void* const begin = aligned_alloc(std::max(alignment, alignof(std::max_align_t)), std::max<size_t>((bytes + alignment - 1) / alignment * alignment, 1));
    if (begin == nullptr) throw std::bad_alloc();
    return memset(begin, 0, bytes);
  }
  const PageCall call;
  RefuseWithinProgramCode("AllocatePages");
  return AsPublicCall([&] {
    void* const begin = Runtime::Get().pages().Allocate(bytes, alignment);
    if (begin == nullptr) throw std::bad_alloc();
    return begin;
  });
}

void FreePages(void* begin) noexcept {
  if (begin == nullptr) return;
  if (Session::InForkedChild()) return IsPaged(begin) ? FreeInChild(begin) : free(begin);
  const PageCall call;
  if (call.space == nullptr || !call.space->Owns(begin)) {
    LogWarning("the process ends: the program calls FreePages(%p), which is not memory of AllocatePages", begin);
    std::abort();
  }
  call.space->Free(begin);
}

bool IsPaged(const void* address) noexcept { return IsHome(address); }

size_t PagedBytes(const void* begin) noexcept {
  PageSpace* const space = Session::InForkedChild() ? parents_space : PagesIfStarted();
  return space != nullptr && IsPaged(begin) ? space->BytesOf(begin) : 0;
}

void advise(const void* begin, size_t bytes, advice what) noexcept {
  if (!IsPaged(begin) || Session::InForkedChild()) return;
  const PageCall call;
  Runtime* const runtime = Runtime::IfStarted();
  if (what == advice::sequential || what == advice::random) call.space->ExpectUse(begin, bytes, what == advice::random);
  call.space->ForEachChunk(begin, bytes, [&](Chunk* chunk, const std::atomic<Chunk*>* place) { runtime->engine().Advise(chunk, what, place); });
}

void discard(void* begin, size_t bytes) noexcept {
  if (!IsPaged(begin) || bytes == 0) return;
  if (Session::InForkedChild()) return DiscardInChild(static_cast<char*>(begin), bytes);
  const PageCall call;
  call.space->Discard(begin, bytes);
}

PageStatistics GetPageStatistics() noexcept {
  PageSpace* const space = PagesIfStarted();
  if (space == nullptr) return {};
  const PageSpace::Counters counters = space->counters();
  return {.block_bytes = space->unit_bytes(),
          .faults = counters.faults,
          .blocks_in = counters.moves_home,
          .blocks_out = counters.moves_away,
          .zero_blocks = counters.zero_blocks,
          .stuck = counters.stuck,
          .adapts = space->adapts(),
          .merges = counters.merges,
          .splits = counters.splits,
          .serves_system_calls = space->userfault().serves_system_calls(),
          .copies = !space->userfault().moves()};
}

namespace detail {

PageAddresses AddressesOfPages() noexcept {
  PageSpace* const space = PagesIfStarted();
  if (space == nullptr) return {};
  const AddressRange homes = space->homes();
  return {reinterpret_cast<uintptr_t>(homes.begin), homes.bytes};
}

namespace {
std::atomic<bool> is_unmodified{false};

uint64_t PeakOfProcess() {
  // With mapped files, and of the programs, too, that this process was before exec; so the exact one is looked at only where this is much.
  rusage use{};
  return getrusage(RUSAGE_SELF, &use) == 0 ? static_cast<uint64_t>(use.ru_maxrss) << 10 : 0;
}
uint64_t OwnMemory() {
  uint64_t kib = 0;
  if (FILE* const status = fopen("/proc/self/status", "re")) {
    char line[256];
    while (fgets(line, sizeof(line), status) != nullptr && sscanf(line, "RssAnon: %lu", &kib) != 1) {
    }
    fclose(status);
  }
  return kib << 10;
}
}  // namespace

void LeaveAddressesToProgram() noexcept {
  is_unmodified.store(true, std::memory_order_relaxed);
  LeaveHalfOfAddresses();
}
size_t PagesAboveOfUnmodified() noexcept { return is_unmodified.load(std::memory_order_relaxed) ? PagesAbove() : 0; }

void TellOfNoPages() noexcept {
  constexpr uint64_t kBesideLeast = 32 << 20;  // libraries, stacks, and what any malloc keeps
  const char* const text = std::getenv("RAMSPAN_MEMORY");
  uint64_t limit = 0;
  try {
    if (text == nullptr || !SetMemory(text, &limit).ok() || PeakOfProcess() < limit + kBesideLeast) return;
    const uint64_t memory = OwnMemory();
    if (memory < limit + kBesideLeast) return;
    LogWarning("--pages has swapped nothing: the program has %s of memory at its end, and had no allocation of at least %s, which it would take (ramspan run --pages-above SIZE). The memory limit of %s did not hold",
               FormatBytes(memory).c_str(), FormatBytes(PagesAboveOfEnvironment()).c_str(), FormatBytes(limit).c_str());
  } catch (const std::exception&) {
  }
}

size_t UsedPages(void* begin, size_t bytes, bool* are_protected) noexcept { return PagesIfStarted()->UsedBytesFrom(begin, bytes, are_protected); }

int SignalOfPages() noexcept { return PagesIfStarted()->userfault().signal(); }

bool CopyOfParentsPages() noexcept { return ForkCopy::Ask(nullptr); }
int DescriptorOfCopy() noexcept { return ForkCopy::descriptor(); }
void DropPagesInChild(void* begin, size_t bytes) noexcept {
  if (ForkCopy::Ask(nullptr)) DropInChild(begin, bytes);
}

int DescriptorOfPages() noexcept { return PagesIfStarted()->userfault().fd(); }

// What is wrong is an error at the start.
size_t PagesAboveOfEnvironment() noexcept {
  uint64_t bytes = kPagesAbove;
  const char* const text = std::getenv("RAMSPAN_PAGES_ABOVE");
  if (text == nullptr) return bytes;
  try {
    static_cast<void>(SetPagesAbove(text, &bytes));
  } catch (const std::exception&) {
  }
  return bytes;
}

size_t PagesAbove() noexcept { return Runtime::IfStarted()->pages_above(); }

void* ReallocatePages(void* begin, size_t bytes) noexcept {
  const PageCall call;
  return call.space->Reallocate(begin, bytes);
}
void ReleasePages(void* begin, size_t bytes) noexcept {
  const PageCall call;
  call.space->Release(begin, bytes);
}
bool PagesAreUsed(const void* begin, size_t bytes) noexcept { return PagesIfStarted()->IsUsed(begin, bytes); }
size_t PinPagesForCall(void* begin, size_t bytes) noexcept {
  const PageCall call;
  return call.space->PinForCall(begin, bytes);
}
void UnpinPagesForCall(const void* begin, size_t bytes) noexcept {
  const PublicCall call;
  PagesIfStarted()->UnpinForCall(begin, bytes);
}
void ExchangeHandlerOfOthers(const struct sigaction* action, struct sigaction* before) noexcept {
  if (!Session::InForkedChild()) return FaultServer::ExchangeHandlerOfOthers(action, before);
  const Inside inside;
  sigset_t all, mask;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &mask);
  const struct sigaction now = segv_of_program;
  if (action != nullptr) segv_of_program = *action;
  if (before != nullptr) *before = now;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}
void RegisterForkHandlers() noexcept {
  static std::atomic<bool> registered{false};
  if (!registered.exchange(true)) pthread_atfork(BeforeFork, InParentAfterFork, InForkedChild);
}
bool LockPages(void* begin, size_t bytes, bool untouched_too) noexcept {
  const PageCall call;
  return call.space->Lock(begin, bytes, untouched_too).ok();
}
void UnlockPages(void* begin, size_t bytes) noexcept {
  const PublicCall call;
  PagesIfStarted()->Unlock(begin, bytes);
}
int LockOthers() noexcept {
  const PublicCall call;
  return WithinHeap([] { return PagesIfStarted()->LockOthers(); }, ENOMEM);
}

int ProtectPages(void* begin, size_t bytes, int protection) noexcept {
  const PageCall call;
  return call.space->Protect(begin, bytes, protection);
}

}  // namespace detail

}  // namespace ramspan

using ramspan::AllocatePages;
using ramspan::IsPaged;
using ramspan::OrNull;
using ramspan::PagedBytes;

extern "C" {

RAMSPAN_API void* rs_aligned_alloc(size_t alignment, size_t bytes) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    errno = EINVAL;
    return nullptr;
  }
  if (bytes < ramspan::kLeast) return aligned_alloc(std::max(alignment, alignof(std::max_align_t)), (bytes + alignment - 1) & ~(alignment - 1));
  return OrNull([&] { return AllocatePages(bytes, alignment); });
}

RAMSPAN_API void* rs_malloc(size_t bytes) {
  return bytes < ramspan::kLeast ? malloc(bytes) : OrNull([&] { return AllocatePages(bytes); });
}

RAMSPAN_API void* rs_calloc(size_t count, size_t bytes) {
  size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) {
    errno = ENOMEM;
    return nullptr;
  }
  return all < ramspan::kLeast ? calloc(count, bytes) : rs_malloc(all);
}

RAMSPAN_API void rs_free(void* begin) { IsPaged(begin) ? ramspan::FreePages(begin) : free(begin); }

RAMSPAN_API void* rs_realloc(void* begin, size_t bytes) {
  if (begin == nullptr) return rs_malloc(bytes);
  if (!IsPaged(begin) && bytes < ramspan::kLeast) return realloc(begin, bytes);
  if (IsPaged(begin) && bytes >= ramspan::kLeast && !ramspan::Session::InForkedChild()) {
    void* const moved = ramspan::detail::ReallocatePages(begin, bytes);
    if (moved == nullptr) errno = ENOMEM;
    return moved;
  }
  void* const larger = rs_malloc(bytes);
  if (larger == nullptr) return nullptr;
  memcpy(larger, begin, std::min(bytes, IsPaged(begin) ? PagedBytes(begin) : malloc_usable_size(begin)));
  rs_free(begin);
  return larger;
}

}  // extern "C"
