// libramspan-pages: the calls of mmap(2) and mlock(2), for what is swapped by pages: mapped, given back, moved, advised, protected, locked.
//
// Thread-safety: as the calls that it replaces. No lock of its own.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>

#include "client/preload/homes.h"
#include "ramspan/pages.h"

namespace {

using ramspan::PublicCall;
using ramspan::detail::t_inside_ramspan;
using ramspan::preload::Given;
using ramspan::preload::homes;
using ramspan::preload::IsChildWithCopy;
using ramspan::preload::IsHome;
using ramspan::preload::MayTake;
using ramspan::preload::OutOfMemory;
using ramspan::preload::Take;

constexpr size_t kPageBytes = 4096;
// Interpreters map their heaps in pieces of up to a MiB, and expect them in forked children.
constexpr size_t kLeastMapping = (size_t{1} << 20) + 1;

constexpr int kMadviseCollapse = 25;  // of Linux 6.1 (linux/mman.h), for headers that are older

// What a system call's wrapper returns.
template <typename T>
T Returned(long result) {
  return (T)result;  // a pointer or an int: syscall(2) has set errno
}

// Whole pages; 0: there are not as many.
size_t WholePages(size_t bytes) { return (bytes + kPageBytes - 1) & ~(kPageBytes - 1); }

bool AreUsed(const void* begin, size_t bytes) {
  return bytes <= homes.begin + homes.bytes - reinterpret_cast<uintptr_t>(begin) && ramspan::detail::PagesAreUsed(begin, bytes);
}

void Forget(const void* begin, size_t bytes, Given given) {
  if (__builtin_expect(ramspan::preload::holds_tops.load(std::memory_order_relaxed), 0)) ramspan::preload::ForgetTops(begin, bytes, given);
}

// Whether the program may read and write all of it.
bool IsPlainInChild(uintptr_t begin, size_t bytes) {
  const ramspan::detail::Inside inside;
  FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  char line[512], rights[5] = "";
  uintptr_t first = 0, end = 0;
  bool is_plain = true;
  while (is_plain && std::fgets(line, sizeof(line), maps) != nullptr) {
    is_plain = std::sscanf(line, "%lx-%lx %4s", &first, &end, rights) != 3 || end <= begin || first >= begin + bytes || std::strncmp(rights, "rw-", 3) == 0;
  }
  std::fclose(maps);
  return is_plain;
}

// Whether it is all private, anonymous, read and written, and nobody's stack or heap: what mmap had taken if it had been as large then.
bool IsPlainMapping(uintptr_t begin, size_t bytes) {
  const ramspan::detail::Inside inside;
  FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  char line[512], rights[5] = "", name[2] = "";
  uintptr_t first = 0, end = 0, until = begin;
  unsigned long node = 0;
  while (until < begin + bytes && std::fgets(line, sizeof(line), maps) != nullptr) {
    const int n = std::sscanf(line, "%lx-%lx %4s %*x %*s %lu %1s", &first, &end, rights, &node, name);
    if (n < 4 || end <= until) continue;
    if (first > until || n > 4 || node != 0 || std::strcmp(rights, "rw-p") != 0) break;
    until = end;
  }
  std::fclose(maps);
  return until >= begin + bytes;
}

// A mapping that was too small to be taken and grows to what is. Null: as the system does it.
void* TakenWhileItGrows(char* address, size_t before, size_t bytes, int flags) {
  if (flags != MREMAP_MAYMOVE || before == 0 || before >= kLeastMapping || bytes < kLeastMapping || !MayTake(bytes) || t_inside_ramspan != 0 || IsChildWithCopy()) return nullptr;
  if (reinterpret_cast<uintptr_t>(address) % kPageBytes != 0 || WholePages(bytes) == 0 || !IsPlainMapping(reinterpret_cast<uintptr_t>(address), WholePages(before))) return nullptr;
  void* const taken = Take(WholePages(bytes), kPageBytes);
  if (taken == nullptr) return nullptr;
  memcpy(taken, address, WholePages(before));
  syscall(SYS_munmap, address, WholePages(before));
  return taken;
}

// Of whole pages. What is behind it in the copy of the parent's memory is something else. What has other rights stays, as in the parent.
void* RemappedInChild(char* address, size_t before, size_t bytes, int flags) {
  if ((flags & ~MREMAP_MAYMOVE) != 0 || (bytes > before && flags == 0)) return OutOfMemory(), MAP_FAILED;
  if (bytes <= before) {
    if (bytes < before) ramspan::detail::DropPagesInChild(address + bytes, before - bytes);
    return address;
  }
  if (!IsPlainInChild(reinterpret_cast<uintptr_t>(address), before)) return OutOfMemory(), MAP_FAILED;
  const long moved = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (moved == -1) return MAP_FAILED;
  memcpy(reinterpret_cast<void*>(moved), address, before);
  ramspan::detail::DropPagesInChild(address, before);
  return reinterpret_cast<void*>(moved);
}

}  // namespace

extern "C" {

RAMSPAN_API void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  constexpr int kHints = MAP_NORESERVE | MAP_POPULATE;
  const bool is_plain = (flags & ~kHints) == (MAP_PRIVATE | MAP_ANONYMOUS) && protection == (PROT_READ | PROT_WRITE);
  if (is_plain && bytes >= kLeastMapping && MayTake(bytes)) {
    if (void* taken = Take((bytes + kPageBytes - 1) & ~(kPageBytes - 1), kPageBytes)) return taken;
  }
  if (IsHome(address) && (flags & MAP_FIXED) != 0 && t_inside_ramspan == 0) {
    if (bytes == 0 || reinterpret_cast<uintptr_t>(address) % kPageBytes != 0) return errno = EINVAL, MAP_FAILED;  // first, as the kernel: all else would round
    if ((flags & ~(kHints | MAP_FIXED)) != (MAP_PRIVATE | MAP_ANONYMOUS) || protection != (PROT_READ | PROT_WRITE)) {
      OutOfMemory();  // a file, or what is shared, cannot be there
      return MAP_FAILED;
    }
    if (IsChildWithCopy()) return Returned<void*>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
    bytes = WholePages(bytes);
    if (bytes == 0 || !AreUsed(address, bytes) || !ramspan::detail::TakePagesAgain(address, bytes)) return OutOfMemory(), MAP_FAILED;
    PublicCall call(PublicCall::Stack::kAny);
    if (ramspan::detail::ProtectPages(address, bytes, PROT_READ | PROT_WRITE) != 0) return call.Fail(ENOMEM), MAP_FAILED;
    Forget(address, bytes, Given::kBack);
    ramspan::detail::UnlockPages(address, bytes);
    ramspan::discard(address, bytes);
    return address;
  }
  return Returned<void*>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}
RAMSPAN_API void* mmap64(void* address, size_t bytes, int protection, int flags, int fd, off64_t offset) noexcept __attribute__((alias("mmap")));

RAMSPAN_API int munmap(void* address, size_t bytes) noexcept {
  if (!IsHome(address) || t_inside_ramspan != 0) return Returned<int>(syscall(SYS_munmap, address, bytes));
  if (bytes == 0 || reinterpret_cast<uintptr_t>(address) % kPageBytes != 0 || bytes > homes.begin + homes.bytes - reinterpret_cast<uintptr_t>(address)) {
    errno = EINVAL;
    return -1;
  }
  const PublicCall call(PublicCall::Stack::kAny);
  bytes = (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
  Forget(address, bytes, Given::kBack);
  IsChildWithCopy() ? ramspan::detail::DropPagesInChild(address, bytes) : ramspan::detail::ReleasePages(address, bytes);
  return 0;
}

RAMSPAN_API void* mremap(void* address, size_t before, size_t bytes, int flags, ...) noexcept {
  void* to = nullptr;
  if ((flags & MREMAP_FIXED) != 0) {
    va_list rest;
    va_start(rest, flags);
    to = va_arg(rest, void*);
    va_end(rest);
  }
  if (!IsHome(address)) {
    const auto place = reinterpret_cast<uintptr_t>(to);
    if (t_inside_ramspan == 0 && to != nullptr && homes.bytes > 0 && place < homes.begin + homes.bytes && bytes > 0 && (place >= homes.begin || homes.begin - place < bytes)) {
      OutOfMemory();  // it would not be swapped, and nobody would know
      return MAP_FAILED;
    }
    if (void* const taken = TakenWhileItGrows(static_cast<char*>(address), before, bytes, flags)) return taken;
    return Returned<void*>(syscall(SYS_mremap, address, before, bytes, flags, to));
  }
  const bool is_child = IsChildWithCopy();
  before = WholePages(before);
  bytes = WholePages(bytes);
  const bool is_in_homes = before > 0 && bytes > 0 && reinterpret_cast<uintptr_t>(address) % kPageBytes == 0 && before <= homes.begin + homes.bytes - reinterpret_cast<uintptr_t>(address);
  if (!is_in_homes) return errno = EINVAL, MAP_FAILED;
  if (!is_child && !AreUsed(address, before)) return errno = EFAULT, MAP_FAILED;
  if (is_child) return RemappedInChild(static_cast<char*>(address), before, bytes, flags);
  PublicCall call(PublicCall::Stack::kAny);
  if ((flags & ~MREMAP_MAYMOVE) != 0) {  // to a place of the caller's, or with something left behind
    call.Fail(ENOMEM);
    return MAP_FAILED;
  }
  if (bytes <= before) {
    if (bytes < before) Forget(static_cast<char*>(address) + bytes, before - bytes, Given::kBack);
    if (bytes < before) ramspan::detail::ReleasePages(static_cast<char*>(address) + bytes, before - bytes);
    return address;
  }
  const bool is_whole = ramspan::PagedBytes(address) == before;
  bool are_protected = false;
  ramspan::detail::UsedPages(address, before, &are_protected);
  void* moved = nullptr;
  if ((flags & MREMAP_MAYMOVE) != 0 && !are_protected) {  // those stay where they are
    Forget(address, before, Given::kBack);
    if (is_whole) {
      moved = ramspan::detail::ReallocatePages(address, bytes);
    } else {
      try {
        moved = ramspan::AllocatePages(bytes, kPageBytes);
        memcpy(moved, address, before);
        ramspan::detail::ReleasePages(address, before);
      } catch (const std::exception&) {
      }
    }
  }
  if (moved != nullptr) return moved;
  call.Fail(ENOMEM);
  return MAP_FAILED;
}

RAMSPAN_API int madvise(void* address, size_t bytes, int what) noexcept {
  if (!IsHome(address) || t_inside_ramspan != 0) return Returned<int>(syscall(SYS_madvise, address, bytes, what));
  const bool is_wrapped = bytes > 0 && WholePages(bytes) == 0;
  bytes = WholePages(bytes);
  if (what == MADV_REMOVE || is_wrapped || reinterpret_cast<uintptr_t>(address) % kPageBytes != 0) {
    errno = EINVAL;
    return -1;
  }
  if (bytes > 0 && !IsChildWithCopy() && !AreUsed(address, bytes)) return static_cast<int>(reinterpret_cast<intptr_t>(OutOfMemory())) - 1;
  PublicCall call(PublicCall::Stack::kAny);
  switch (what) {
    case MADV_DONTNEED:
    case MADV_FREE:
      Forget(address, bytes, Given::kEmptied);
      ramspan::discard(address, bytes);
      break;
    case MADV_NORMAL: ramspan::advise(address, bytes, ramspan::advice::normal); break;
    case MADV_RANDOM: ramspan::advise(address, bytes, ramspan::advice::random); break;
    case MADV_SEQUENTIAL: ramspan::advise(address, bytes, ramspan::advice::sequential); break;
    case MADV_WILLNEED: ramspan::advise(address, bytes, ramspan::advice::will_need); break;
    case MADV_COLD:
    case MADV_PAGEOUT: ramspan::advise(address, bytes, ramspan::advice::done); break;
    // Hints that mean nothing here.
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case kMadviseCollapse:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK:
    case MADV_POPULATE_READ:
    case MADV_POPULATE_WRITE: break;
    default: return call.Fail(EINVAL), -1;
  }
  return 0;
}

// Pages whose protection differs from the others' cannot be moved: they stay.
RAMSPAN_API int mprotect(void* address, size_t bytes, int protection) noexcept {
  if (!IsHome(address) || bytes == 0 || t_inside_ramspan != 0 || IsChildWithCopy()) return Returned<int>(syscall(SYS_mprotect, address, bytes, protection));
  PublicCall call(PublicCall::Stack::kAny);
  if (reinterpret_cast<uintptr_t>(address) % kPageBytes != 0) return call.Fail(EINVAL), -1;
  bytes = WholePages(bytes);
  if (bytes == 0 || !AreUsed(address, bytes)) return call.Fail(ENOMEM), -1;
  const int error = ramspan::detail::ProtectPages(address, bytes, protection);
  return error == 0 ? 0 : (call.Fail(error), -1);
}

// Keys of memory protection are for mappings that stay where they are.
RAMSPAN_API int pkey_mprotect(void* address, size_t bytes, int protection, int key) noexcept {
  if (!IsHome(address) || t_inside_ramspan != 0 || IsChildWithCopy()) return Returned<int>(syscall(SYS_pkey_mprotect, address, bytes, protection, key));
  return key == -1 ? mprotect(address, bytes, protection) : (errno = EINVAL, -1);
}

// ---- mlock(2): what is locked is not swapped, up to half of the memory limit ----

RAMSPAN_API int mlock2(const void* address, size_t bytes, unsigned flags) noexcept {
  if (!IsHome(address) || bytes == 0 || IsChildWithCopy()) return Returned<int>(syscall(SYS_mlock2, address, bytes, flags));
  PublicCall call(PublicCall::Stack::kAny);
  if ((flags & ~MLOCK_ONFAULT) != 0) return call.Fail(EINVAL), -1;
  if (AreUsed(address, bytes) && ramspan::detail::LockPages(const_cast<void*>(address), bytes, (flags & MLOCK_ONFAULT) == 0)) return 0;
  call.Fail(ENOMEM);
  return -1;
}
RAMSPAN_API int mlock(const void* address, size_t bytes) noexcept { return mlock2(address, bytes, 0); }

// All but what is swapped by pages: that is never locked by the kernel, which could neither move it nor give it back meanwhile. What is mapped from now on (MCL_FUTURE) the kernel locks.
RAMSPAN_API int mlockall(int flags) noexcept {
  ramspan::preload::AwaitStart();  // the addresses of frames may be reserved already
  if (homes.bytes == 0 || t_inside_ramspan != 0 || (flags & MCL_CURRENT) == 0 || (flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) != 0 || IsChildWithCopy()) return Returned<int>(syscall(SYS_mlockall, flags));
  PublicCall call(PublicCall::Stack::kAny);
  int error = ramspan::detail::LockOthers();
  if (error == 0 && (flags & MCL_FUTURE) != 0 && syscall(SYS_mlockall, (flags & ~MCL_CURRENT) | MCL_ONFAULT) != 0) error = errno;
  if (error == 0) return 0;
  syscall(SYS_munlockall);  // what was locked before this call, too, because nobody knows it any more
  return call.Fail(error), -1;
}

RAMSPAN_API int munlock(const void* address, size_t bytes) noexcept {
  if (!IsHome(address) || bytes == 0 || IsChildWithCopy()) return Returned<int>(syscall(SYS_munlock, address, bytes));
  PublicCall call(PublicCall::Stack::kAny);
  if (!AreUsed(address, bytes)) return call.Fail(ENOMEM), -1;
  ramspan::detail::UnlockPages(const_cast<void*>(address), bytes);
  return 0;
}
RAMSPAN_API int munlockall() noexcept {
  if (homes.bytes > 0 && t_inside_ramspan == 0 && !IsChildWithCopy()) {
    const PublicCall call(PublicCall::Stack::kAny);
    ramspan::preload::UnlockAllButStacks();
  }
  return Returned<int>(syscall(SYS_munlockall));
}

}  // extern "C"
