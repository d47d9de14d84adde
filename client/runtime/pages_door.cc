#include "client/runtime/pages_door.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "client/front/session.h"
#include "client/front/throw_status.h"
#include "client/pages/fault_server.h"
#include "client/pages/fork_copy.h"
#include "client/runtime/forked_pages.h"
#include "client/runtime/page_call.h"
#include "common/config_values.h"
#include "common/log.h"
#include "common/reserve_addresses.h"
#include "common/units.h"

namespace ramspan::detail {

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
// Without mapped files, and memory servers of this host among them. Needs no heap.
uint64_t OwnMemory() {
  char text[128] = {};
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  unsigned long all = 0, resident = 0, shared = 0;
  const bool known = read(file, text, sizeof text - 1) > 0 && sscanf(text, "%lu %lu %lu", &all, &resident, &shared) == 3;
  close(file);
  return known ? (resident - std::min(resident, shared)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}
}  // namespace

void LeaveAddressesToProgram() noexcept {
  is_unmodified.store(true, std::memory_order_relaxed);
  LeaveHalfOfAddresses();
}
uint64_t PagesCramped() noexcept {
  const PageSpace* const space = PagesIfStarted();
  return space != nullptr ? space->counters().cramped : 0;
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
    LogWarning("--pages has swapped nothing: the program has %s of memory at its end, and had no allocation of at least %s, which it would take (ramspan run --pages-above SIZE), nor a mapping that was made larger than 1 MiB. The memory limit of %s did not hold",
               FormatBytes(memory).c_str(), FormatBytes(PagesAboveOfEnvironment()).c_str(), FormatBytes(limit).c_str());
  } catch (const std::exception&) {
  }
}

void TellOfMemoryBeside(uint64_t limit, uint64_t pages_above, const std::function<size_t()>& far_servers) {
  constexpr uint64_t kBuffers = 48 << 20;  // of libfabric's for each, over tcp (docs/operations.md)
  constexpr uint64_t kBesideLeast = 32 << 20, kBesidePart = 4;  // of the limit; less is libraries, stacks and what any malloc keeps
  static bool told = false;
  if (told || !is_unmodified.load(std::memory_order_relaxed)) return;
  uint64_t memory = OwnMemory();
  const uint64_t much = limit + std::max(kBesideLeast, limit / kBesidePart);
  if (memory < much) return;
  memory -= std::min(memory, far_servers() * kBuffers);
  if (memory < much) return;
  told = true;
  const char* const takes_more = pages_above > 4096 ? "--pages-above 4KiB --page-block 4KiB takes smaller ones; for" : "For";
  LogWarning("the program has %s of memory, and the limit of %s holds only for what --pages takes: allocations of at least %s. The rest is in smaller ones, stacks, libraries, and the heaps of languages that reserve theirs whole (Java, Go). "
             "%s those below 4 KiB (a row, a node at a time) leave room beside the limit, let the program allocate many together, or port what holds them (docs/pages.md)",
             FormatBytes(memory).c_str(), FormatBytes(limit).c_str(), FormatBytes(pages_above).c_str(), takes_more);
}

size_t UsedPages(void* begin, size_t bytes, bool* are_protected) noexcept { return PagesIfStarted()->UsedBytesFrom(begin, bytes, are_protected); }

int SignalOfPages() noexcept { return PagesIfStarted()->userfault().signal(); }

bool CopyOfParentsPages() noexcept { return ForkCopy::Ask(nullptr); }
int DescriptorOfCopy() noexcept { return ForkCopy::descriptor(); }
void DropPagesInChild(void* begin, size_t bytes) noexcept {
  if (ForkCopy::Ask(nullptr)) forked_pages::Drop(begin, bytes);
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
  return call.Run([begin, bytes](PageSpace& space) { return space.Reallocate(begin, bytes); });
}
void ReleasePages(void* begin, size_t bytes) noexcept {
  const PageCall call;
  call.Run([begin, bytes](PageSpace& space) { space.Release(begin, bytes); });
}
bool TakePagesAgain(void* begin, size_t bytes) noexcept {
  const PageCall call;
  return call.Run([begin, bytes](PageSpace& space) { return space.TakeAgain(begin, bytes); });
}
bool PagesAreUsed(const void* begin, size_t bytes) noexcept { return PagesIfStarted()->IsUsed(begin, bytes); }
size_t PinPagesForCall(void* begin, size_t bytes) noexcept {
  const PageCall call;
  return call.Run([begin, bytes](PageSpace& space) { return space.PinForCall(begin, bytes); });
}
void UnpinPagesForCall(const void* begin, size_t bytes) noexcept {
  const PageCall call;
  call.Run([begin, bytes](PageSpace& space) { space.UnpinForCall(begin, bytes); });
}
bool IsForkedChild() noexcept { return Session::InForkedChild(); }
bool IsUnknownChild() noexcept { return Session::InForkedChild() && !Session::IsToldOfFork(); }
void ExchangeHandlerOfOthers(const struct sigaction* action, struct sigaction* before) noexcept {
  if (Session::IsToldOfFork()) return forked_pages::ExchangeHandler(action, before);
  if (Session::InForkedChild()) return FaultServer::ExchangeHandlerOfOthers(action, before);
  // With all signals blocked, those by which pages come too.
  const bool changes = action != nullptr;
  struct sigaction next = {};
  if (changes) next = *action;
  const PageCall call;
  const struct sigaction was = call.Run([changes, next](PageSpace&) {
    struct sigaction of_before = {};
    FaultServer::ExchangeHandlerOfOthers(changes ? &next : nullptr, &of_before);
    return of_before;
  });
  if (before != nullptr) *before = was;
}
void RegisterForkHandlers() noexcept { forked_pages::RegisterHandlers(); }
bool LockPages(void* begin, size_t bytes, bool untouched_too) noexcept {
  const PageCall call;
  return call.Run([begin, bytes, untouched_too](PageSpace& space) { return space.Lock(begin, bytes, untouched_too).ok(); });
}
size_t UnitOfPages() noexcept { return PagesIfStarted()->unit_bytes(); }
void SetPagesInherited(const void* begin, size_t bytes, bool are_inherited) noexcept {
  if (const PageSpace* const space = PagesIfStarted()) space->SetInherited(begin, bytes, are_inherited);
}
void UnlockPages(void* begin, size_t bytes) noexcept {
  const PageCall call;
  call.Run([begin, bytes](PageSpace& space) { space.Unlock(begin, bytes); });
}
int LockOthers() noexcept {
  const PageCall call;
  return call.Run([](PageSpace& space) { return WithinHeap([&space] { return space.LockOthers(); }, ENOMEM); });
}

int ProtectPages(void* begin, size_t bytes, int protection) noexcept {
  const PageCall call;
  return call.Run([begin, bytes, protection](PageSpace& space) { return space.Protect(begin, bytes, protection); });
}

}  // namespace ramspan::detail
