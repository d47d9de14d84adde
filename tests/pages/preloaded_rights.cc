// Scenarios of `ramspan run --pages`: what the program makes of the rights of pages, and locks (preloaded.cc).
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "preloaded.h"

void GuardPages() {
  char* p = Map(4 * kMiB);
  CHECK(mprotect(p, 4096, PROT_NONE) == 0);
  p[4096] = 1;
  Sweep();
  CHECK(p[4096] == 1);
  CHECK(munmap(p, 4 * kMiB) == 0);
  p = Map(4 * kMiB);  // perhaps where the other was
  for (size_t i = 0; i < 4 * kMiB; i += 4096) p[i] = 2;
  CHECK(mprotect(p, 8192, PROT_READ) == 0 && madvise(p, 8192, MADV_DONTNEED) == 0);
  CHECK(p[0] == 0 && p[4096] == 0 && p[8192] == 2);
  CHECK(mprotect(p, 8192, PROT_READ | PROT_WRITE) == 0);
  void* const larger = mremap(p, 4 * kMiB, 8 * kMiB, MREMAP_MAYMOVE);
  CHECK(larger != MAP_FAILED);
  p = static_cast<char*>(larger);
  CHECK( p[8192] == 2 && p[7 * kMiB] == 0);
}

void Locks() {
  CHECK(mlock(New(kMiB), size_t{1} << 50) == -1 && errno == ENOMEM);
  char* const memory = Filled(20 * kMiB);
  static_cast<void>(!mlock2(memory, 20 * kMiB, MLOCK_ONFAULT));  // more than the limit, which a program without it may lock
  CHECK(mlockall(MCL_CURRENT) == 0 || errno == ENOMEM || errno == EPERM);
  CHECK(IsFilled(memory, 0, 20 * kMiB));
}

// What mprotect has changed and changed back is as it was, and blocks all of whose pages are plain again may leave. With a model of each page.
void Rights() {
  constexpr size_t kPages = 6 * kMiB / 4096;
  static unsigned char value[kPages];
  static int rights[kPages];
  char* p = Map(6 * kMiB);
  memset(p, 0, 6 * kMiB);
  std::fill(rights, rights + kPages, PROT_READ | PROT_WRITE);
  unsigned random = 1;
  const auto next = [&random](size_t below) { return (random = random * 1103515245 + 12345, random >> 8) % below; };
  static char* const other = New(8 * kMiB);
  for (int i = 0; i < 6000; ++i) {
    const size_t first = next(kPages - 20), count = 1 + next(20);
    static constexpr int kRights[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE};
    const int wanted = kRights[next(4)];
    switch (next(4)) {
      case 0:
        if (mprotect(p + first * 4096, count * 4096, wanted) == 0) {
          std::fill(rights + first, rights + first + count, wanted);
        } else {
          CHECK(errno == ENOMEM && wanted != (PROT_READ | PROT_WRITE));  // more than half of the limit
          CHECK(mprotect(p, 6 * kMiB, PROT_READ | PROT_WRITE) == 0);
          std::fill(rights, rights + kPages, PROT_READ | PROT_WRITE);
        }
        break;
      case 1:
        for (size_t k = first; k < first + count; ++k) {
          if (rights[k] == (PROT_READ | PROT_WRITE)) memset(p + k * 4096, value[k] = static_cast<unsigned char>(i), 4096);
        }
        break;
      case 2:
        for (size_t k = first; k < first + count; ++k) CHECK(rights[k] == PROT_NONE || (static_cast<unsigned char>(p[k * 4096]) == value[k] && static_cast<unsigned char>(p[k * 4096 + 4095]) == value[k]));
        break;
      default:
        for (size_t k = 0; k < kMiB; k += 16384) other[next(8) * kMiB + k] += 1;
        if (i % 50 == 0 && mmap(p + first * 4096, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
          std::fill(rights + first, rights + first + count, PROT_READ | PROT_WRITE);
          std::fill(value + first, value + first + count, 0);
        }
    }
  }
  CHECK(InChild([p] {  // what was there, whatever its rights were
          if (mprotect(p, 6 * kMiB, PROT_READ) != 0) return 2;
          for (size_t k = 0; k < kPages; ++k) {
            if (static_cast<unsigned char>(p[k * 4096]) != value[k]) return 1;
          }
          return 0;
        }) == 0);
  // Toggled one page a block: all of them are plain again, so none is kept.
  char* const toggled = Filled(16 * kMiB);
  char* const aligned = toggled + -reinterpret_cast<uintptr_t>(toggled) % 65536;
  CHECK(mprotect(p, 6 * kMiB, PROT_READ | PROT_WRITE) == 0);
  for (char* at = aligned; at < aligned + 15 * kMiB; at += 65536) CHECK(mprotect(at, 4096, PROT_NONE) == 0 && mprotect(at, 4096, PROT_READ | PROT_WRITE) == 0);
  // What is refused changes nothing.
  for (char* at = aligned; at < aligned + 15 * kMiB; at += 65536) static_cast<void>(mprotect(at, 4096, PROT_READ));
  CHECK(IsFilled(toggled, 0, 15 * kMiB));
}

namespace {
char* read_while_rights_change = nullptr;
void* ReadAll(void* stop) {
  while (!*static_cast<volatile bool*>(stop)) {
    for (size_t i = 0; i < 16 * kMiB; i += 4096) CHECK(read_while_rights_change[i] == 5);
  }
  return nullptr;
}
}  // namespace
// A reader may read, whether a page has just come or has just become read-only.
void RightsBesideReaders() {
  read_while_rights_change = Map(16 * kMiB);
  memset(read_while_rights_change, 5, 16 * kMiB);
  static bool stop = false;
  pthread_t threads[3];
  for (pthread_t& thread : threads) CHECK(pthread_create(&thread, nullptr, ReadAll, &stop) == 0);
  for (int i = 0; i < 1500; ++i) {
    char* const block = read_while_rights_change + static_cast<size_t>(i) * 37 % 250 * 65536;
    CHECK(mprotect(block, 65536, PROT_READ) == 0 && mprotect(block, 65536, PROT_READ | PROT_WRITE) == 0);
  }
  stop = true;
  for (pthread_t& thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
}

namespace {
sigjmp_buf out_of_touch;
void OfTouch(int) { siglongjmp(out_of_touch, 1); }
// Whether the program may not.
bool Faults(char* at, bool writes) {
  struct sigaction action = {}, before;
  action.sa_handler = OfTouch;
  action.sa_flags = SA_NODEFER;
  CHECK(sigaction(SIGSEGV, &action, &before) == 0);
  const bool faults = sigsetjmp(out_of_touch, 1) != 0;
  volatile char* const there = at;
  if (!faults && writes) *there = 1;
  if (!faults) static_cast<void>(*there);
  CHECK(sigaction(SIGSEGV, &before, nullptr) == 0);
  return faults;
}
size_t PagesInMemory(char* begin, size_t bytes) {
  unsigned char there[4096] = {};
  CHECK(bytes / 4096 <= sizeof(there) && mincore(begin, bytes, there) == 0);
  return static_cast<size_t>(std::count_if(there, there + bytes / 4096, [](unsigned char page) { return (page & 1) != 0; }));
}
constexpr size_t kBlock = 65536;
char* AlignedMap(size_t bytes) {
  char* const at = Map(bytes + kBlock);
  return at + -reinterpret_cast<uintptr_t>(at) % kBlock;
}
}  // namespace

// What a child may do with pages is what its parent may.
void RightsInChildren() {
  char* const p = AlignedMap(4 * kMiB);
  memset(p, 7, 4 * kMiB);
  static constexpr unsigned char kReturns42[] = {0xb8, 42, 0, 0, 0, 0xc3};  // mov eax, 42; ret
  memcpy(p, kReturns42, sizeof(kReturns42));
  memcpy(p + kMiB, kReturns42, sizeof(kReturns42));
  CHECK(mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0 && mprotect(p + kMiB, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
  CHECK(mprotect(p + 2 * kMiB, 4096, PROT_NONE) == 0 && mprotect(p + 2 * kMiB + kBlock, 4096, PROT_READ) == 0);
  const auto run = [p](size_t at) {
    int (*code)();
    char* const begin = p + at;
    memcpy(&code, &begin, sizeof(code));
    return code();
  };
  const auto look = [p, run] {
    if (run(0) != 42 || run(kMiB) != 42) return 1;
    if (!Faults(p + 2 * kMiB, false) || !Faults(p + 2 * kMiB + kBlock, true) || Faults(p + 2 * kMiB + kBlock, false)) return 2;
    if (Faults(p + 2 * kMiB + 4096, true) || Faults(p + 3 * kMiB, true)) return 3;
    return mprotect(p + 2 * kMiB, 4096, PROT_READ) == 0 && p[2 * kMiB] == 7 && p[2 * kMiB + kBlock] == 7 ? 0 : 4;
  };
  Sweep();
  CHECK(InChild(look) == 0);
  // One that may not look into itself as a debugger does, as after setuid: what is unreadable was zeros.
  CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
  CHECK(InChild(look) == 0);
  CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
  CHECK(Faults(p + 2 * kMiB, false) && run(0) == 42);
  // Read-only pages that were given back lost all rights by a fork, in the parent, too.
  CHECK(mprotect(p + 3 * kMiB, kBlock, PROT_READ) == 0 && madvise(p + 3 * kMiB, kBlock, MADV_DONTNEED) == 0);
  char* const untouched = AlignedMap(2 * kMiB);
  CHECK(mprotect(untouched, kBlock, PROT_NONE) == 0);
  const auto look_again = [p, untouched] {
    if (Faults(p + 3 * kMiB, false) || p[3 * kMiB + 4096] != 0 || !Faults(p + 3 * kMiB, true) || !Faults(untouched, false)) return 1;
    return mremap(p + 3 * kMiB, kBlock, 2 * kMiB, MREMAP_MAYMOVE) == MAP_FAILED && mremap(untouched, kBlock, 2 * kMiB, MREMAP_MAYMOVE) == MAP_FAILED ? 0 : 2;
  };
  CHECK(InChild([look_again] { return look_again(); }) == 0);
  CHECK(look_again() == 0);
}

void LocksAndRights() {
  // Locked before its first touch; and what is locked stays so, whatever comes of its rights, and of locks that fail.
  char* const locked = AlignedMap(kMiB);
  CHECK(mlock(locked, kBlock) == 0);
  memset(locked, 3, kMiB);
  Sweep();
  CHECK(PagesInMemory(locked, kBlock) == 16);
  CHECK(mprotect(locked, kBlock, PROT_READ) == 0 && mprotect(locked, kBlock, PROT_READ | PROT_WRITE) == 0);
  CHECK(mlock(locked, size_t{1} << 40) != 0 && munlock(locked + 4096, 4096) == 0);
  Sweep();
  CHECK(PagesInMemory(locked, kBlock) == 16);
  CHECK(munlock(locked, kBlock) == 0);
  char* const in_turns = Filled(8 * kMiB);
  for (size_t i = 0; i < 128; ++i) CHECK(mlock(in_turns + i * kBlock, 4096) == 0 && munlock(in_turns + i * kBlock, 4096) == 0);
  CHECK(mlock(in_turns, 3 * kMiB) == 0 && munlockall() == 0 && mlock(in_turns + 4 * kMiB, 3 * kMiB) == 0 && munlockall() == 0);  // together they would be too much
  // What is plain already may become so, however much it is: its descriptors were charged.
  constexpr size_t kMuch = size_t{20} << 30;
  char* const much = static_cast<char*>(mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  CHECK(much != MAP_FAILED && mprotect(much, kMuch, PROT_READ | PROT_WRITE) == 0);
  CHECK(mmap(much, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == much && munmap(much, kMuch) == 0);
  // At the bound, what is protected already may change.
  char* const many = AlignedMap(8 * kMiB);
  memset(many, 1, 8 * kMiB);
  size_t count = 0;
  while (count < 128 && mprotect(many + count * kBlock, kBlock, PROT_READ) == 0) ++count;
  CHECK(count > 0 && count < 128 && mprotect(many, kBlock, PROT_NONE) == 0 && Faults(many, false));
  CHECK(mprotect(many, 8 * kMiB, PROT_READ | PROT_WRITE) == 0 && many[0] == 1);
  // What is given back keeps its rights.
  CHECK(mprotect(many, kBlock, PROT_NONE) == 0 && madvise(many, kBlock, MADV_DONTNEED) == 0 && Faults(many, false) && Faults(many, true));
  CHECK(mprotect(many, kBlock, PROT_READ) == 0 && many[4096] == 0 && Faults(many, true));
  CHECK(mremap(many, kBlock, 2 * kMiB, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);  // it came without them, or not at all
  CHECK(madvise(many, kBlock, 102) == -1 && errno == EINVAL);                              // MADV_GUARD_INSTALL: there would be no guard
  // A part of a large block is given back while all of it is held: it was waited for, for ever.
  char* const held = AlignedMap(4 * kMiB);
  for (int round = 0; round < 3; ++round) memset(held, 1, 4 * kMiB);
  CHECK(mlock(held, kMiB) == 0 && munmap(held + 3 * kBlock, kBlock) == 0 && munlock(held, kBlock) == 0 && held[2 * kBlock] == 1 && held[4 * kBlock] == 1);
  CHECK(mprotect(held + 2 * kMiB, kMiB, PROT_READ) == 0 && munmap(held + 2 * kMiB + 3 * kBlock, kBlock) == 0 && held[2 * kMiB + 2 * kBlock] == 1);
}

// What is locked by the kernel cannot be given back: it was what it had been, after free, and not in children.
void LocksOfKernel() {
  char* const protected_ = AlignedMap(kMiB);
  memset(protected_, 5, kMiB);
  char* moved = Map(2 * kMiB);
  memset(moved, 5, 2 * kMiB);
  CHECK(mprotect(protected_, kBlock, PROT_READ) == 0);
  CHECK(mlockall(MCL_CURRENT) == 0 || errno == ENOMEM || errno == EPERM);
  CHECK(madvise(protected_, kBlock, MADV_DONTNEED) == 0 && protected_[0] == 0);
  for (int i = 0; i < 20; ++i) {
    char* const memory = static_cast<char*>(calloc(kMiB, 1));
    for (size_t k = 0; k < kMiB; k += 4096) CHECK(memory[k] == 0);
    memset(memory, 9, kMiB);
    free(memory);
  }
  CHECK(InChild([moved] { return moved[kMiB] == 5 ? 0 : 1; }) == 0);
  moved = static_cast<char*>(mremap(moved, 2 * kMiB, 6 * kMiB, MREMAP_MAYMOVE));
  CHECK(moved != MAP_FAILED && moved[kMiB] == 5 && moved[5 * kMiB] == 0);
  Sweep();
  CHECK(moved[kMiB] == 5 && munlockall() == 0);
}

// System calls on blocks with such pages.
void RightsOfCalls() {
  char* const p = AlignedMap(kMiB);
  memset(p, 4, kMiB);
  CHECK(mprotect(p, 4096, PROT_NONE) == 0);
  CHECK(madvise(p + 8192, 8192, MADV_DONTNEED) == 0);  // pages that are not there
  const int zero = open("/dev/zero", O_RDONLY);
  struct stat* const is = reinterpret_cast<struct stat*>(p + 12288);
  CHECK(read(zero, p + 8192, 4096) == 4096 && fstat(zero, is) == 0 && S_ISCHR(is->st_mode));
  CHECK(read(zero, p, 4096) == -1 && errno == EFAULT);
  int pair[2], bytes = 1 << 20;
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
  memset(p + 4096, 6, kMiB - 4096);
  char* const to = Filled(kMiB);
  // A message was cut to what could be pinned.
  CHECK(send(pair[0], p + 4096, 150'000, 0) == 150'000 && recv(pair[1], to, kMiB, 0) == 150'000 && to[149'999] == 6);
  CHECK(write(pair[0], p + 4096, 150'000) == 150'000 && read(pair[1], p + 4096, kMiB - 4096) == 150'000);
}

// What munlockall leaves locked is threads' stacks, and no longer than they are some.
void LocksOfStacks() {
  const auto is_unlocked_by_all = [](char* at) {
    CHECK(mlock(at, kBlock) == 0 && munlockall() == 0);
    Sweep();
    Sweep();
    return PagesInMemory(at, kBlock) == 0;
  };
  const auto run_on = [](char* stack) {
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, kMiB) == 0);
    const int error = pthread_create(&thread, &attributes, [](void* nothing) { return nothing; }, nullptr);
    if (error == 0) CHECK(pthread_join(thread, nullptr) == 0);
    return error;
  };
  constexpr size_t kTop = kMiB - kBlock;
  char* const stack = AlignedMap(kMiB);
  std::memset(stack, 1, kMiB);
  CHECK(run_on(stack) == 0);
  // Memory that was one, and is something else.
  CHECK(madvise(stack, kMiB, MADV_DONTNEED) == 0);
  std::memset(stack, 1, kMiB);
  CHECK(is_unlocked_by_all(stack + kTop));
  CHECK(run_on(stack) == 0 && munmap(stack, kMiB) == 0);
  for (int round = 0; round < 2; ++round) {
    char* const again = AlignedMap(kMiB);
    std::memset(again, 1, kMiB);
    CHECK(is_unlocked_by_all(again + kTop));
    CHECK(run_on(again) == 0);
    char* const larger = static_cast<char*>(mremap(again, kMiB, 2 * kMiB, MREMAP_MAYMOVE));
    CHECK(larger != MAP_FAILED && is_unlocked_by_all(larger + kTop) && munmap(larger, 2 * kMiB) == 0);
    auto* const allocated = static_cast<char*>(aligned_alloc(kBlock, kMiB));
    std::memset(allocated, 1, kMiB);
    CHECK(is_unlocked_by_all(allocated + kTop) && run_on(allocated) == 0);
    free(allocated);
  }
  // One that could not be held.
  char* const full = AlignedMap(8 * kMiB);
  std::memset(full, 1, 8 * kMiB);
  size_t count = 0;
  while (count < 128 && mlock(full + count * kBlock, kBlock) == 0) ++count;
  char* const refused = AlignedMap(kMiB);
  std::memset(refused, 1, kMiB);
  const int error = run_on(refused);
  CHECK(munlockall() == 0 && (error == EAGAIN ? is_unlocked_by_all(refused + kTop) : error == 0));
}
