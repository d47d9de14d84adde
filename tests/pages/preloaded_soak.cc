// Scenario `soak` of `ramspan run --pages` (preloaded.cc): threads whose pages lie in the same blocks, each with a model of what they hold and may be used for; allocations that grow, shrink and
// are made anew; files; children that look at all of that; and another thread that drives it out of memory all the while. SOAK_SECONDS (3), SOAK_SEED (1).
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>

#include "preloaded.h"

namespace {

constexpr size_t kThreads = 3, kPages = 1024, kPage = 4096, kAllocations = 6, kMost = 3 * kMiB;
constexpr int kPlain = PROT_READ | PROT_WRITE;

std::atomic<bool> stop{false};
char* shared = nullptr;  // page i belongs to thread i % kThreads

class Soaker {
 public:
  void Begin(size_t number, unsigned seed) {
    number_ = number;
    random_.seed(seed * 100 + static_cast<unsigned>(number));
    std::fill(rights_, rights_ + kPages, kPlain);
    file_ = memfd_create("soak", 0);
    CHECK(file_ >= 0);
  }
  void Run() {
    while (!stop.load(std::memory_order_relaxed)) {
      Step();
      if (++steps_ % 2000 == 0) MakePlain();  // or half of the limit would be held sooner or later
      if (number_ == 0 && steps_ % 4000 == 0) Fork();
    }
  }
  void Verify() const {
    for (size_t page = number_; page < kPages; page += kThreads) VerifyPage(page);
    for (const Allocation& one : allocations_) VerifyAllocation(one);
  }

 private:
  struct Allocation {
    unsigned char* begin = nullptr;
    size_t bytes = 0;
    unsigned char value = 0;
  };
  size_t Below(size_t n) { return random_() % n; }
  static char* At(size_t page) { return shared + page * kPage; }
  void VerifyPage(size_t page) const {
    if ((rights_[page] & PROT_READ) == 0) return;
    for (size_t k = 0; k < kPage; k += 511) CHECK(static_cast<unsigned char>(At(page)[k]) == values_[page]);
  }
  static void VerifyAllocation(const Allocation& one) {
    for (size_t k = 0; k < one.bytes; k += 1021) CHECK(one.begin[k] == one.value);
    CHECK(one.bytes == 0 || one.begin[one.bytes - 1] == one.value);
  }
  void Step() {
    const size_t page = Below(kPages / kThreads) * kThreads + number_;
    switch (Below(10)) {
      case 0: {
        static constexpr int kRights[] = {PROT_NONE, PROT_READ, kPlain, kPlain};
        const int wanted = kRights[Below(4)];
        if (mprotect(At(page), kPage, wanted) == 0) {
          rights_[page] = wanted;
        } else {
          CHECK(errno == ENOMEM && wanted != kPlain);
        }
        break;
      }
      case 1:
      case 2:
        if (rights_[page] == kPlain) memset(At(page), values_[page] = static_cast<unsigned char>(random_()), kPage);
        break;
      case 3: VerifyPage(page); break;
      case 4:
        if (rights_[page] == kPlain && Below(8) == 0) {
          CHECK(madvise(At(page), kPage, MADV_DONTNEED) == 0);
          values_[page] = 0;
          VerifyPage(page);
        }
        break;
      case 5:
        if (rights_[page] != PROT_NONE && mlock(At(page), kPage) == 0) CHECK(munlock(At(page), kPage) == 0);
        break;
      case 6: ThroughFile(page); break;
      default: Allocate(&allocations_[Below(kAllocations)]);
    }
  }
  // The kernel's accesses.
  void ThroughFile(size_t page) {
    if (rights_[page] != kPlain) return;
    CHECK(pwrite(file_, At(page), kPage, 0) == static_cast<ssize_t>(kPage));
    memset(At(page), 0, kPage);
    CHECK(pread(file_, At(page), kPage, 0) == static_cast<ssize_t>(kPage));
    VerifyPage(page);
  }
  void Allocate(Allocation* one) {
    if (Below(10) != 0) return VerifyAllocation(*one);
    const size_t bytes = 1 + Below(kMost), before = one->bytes;
    if (Below(2) == 0) {
      free(one->begin);
      one->begin = static_cast<unsigned char*>(calloc(bytes, 1));
      CHECK(one->begin != nullptr);
      *one = {one->begin, bytes, 0};
      VerifyAllocation(*one);
    } else {
      one->begin = static_cast<unsigned char*>(realloc(one->begin, bytes));
      CHECK(one->begin != nullptr);
      one->bytes = std::min(before, bytes);
      VerifyAllocation(*one);
    }
    one->bytes = bytes;
    one->value = static_cast<unsigned char>(random_());
    memset(one->begin, one->value, bytes);
  }
  void MakePlain() {
    for (size_t page = number_; page < kPages; page += kThreads) {
      if (rights_[page] != kPlain) CHECK(mprotect(At(page), kPage, kPlain) == 0);
      rights_[page] = kPlain;
    }
  }
  // What this thread has no other one changes meanwhile.
  void Fork() {
    CHECK(InChild([this] {
            alarm(60);
            Verify();
            for (size_t page = number_; page < kPages; page += kThreads) {
              if (rights_[page] == PROT_NONE && mprotect(At(page), kPage, kPlain) != 0) return 2;
              if (rights_[page] == PROT_NONE) rights_[page] = kPlain;
            }
            Verify();
            for (Allocation& one : allocations_) free(one.begin);
            return 0;
          }) == 0);
  }

  size_t number_ = 0, steps_ = 0;
  int file_ = -1;
  std::minstd_rand random_;
  int rights_[kPages] = {};
  unsigned char values_[kPages] = {};
  Allocation allocations_[kAllocations];
};

Soaker soakers[kThreads];

void* RunSoaker(void* one) {
  static_cast<Soaker*>(one)->Run();
  return nullptr;
}
void* DriveOut(void*) {
  char* const much = New(32 * kMiB);
  for (size_t i = 0; !stop.load(std::memory_order_relaxed); i = (i + kPage) % (32 * kMiB)) much[i] = 1;
  return nullptr;
}

unsigned Given(const char* name, unsigned otherwise) {
  const char* const text = getenv(name);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

}  // namespace

void Soak() {
  const unsigned seconds = Given("SOAK_SECONDS", 3), seed = Given("SOAK_SEED", 1);
  char* const begin = Map(6 * kMiB);
  shared = begin + -reinterpret_cast<uintptr_t>(begin) % 65536;
  memset(shared, 0, kPages * kPage);
  pthread_t threads[kThreads + 1];
  for (size_t i = 0; i < kThreads; ++i) {
    soakers[i].Begin(i, seed);
    CHECK(pthread_create(&threads[i], nullptr, RunSoaker, &soakers[i]) == 0);
  }
  CHECK(pthread_create(&threads[kThreads], nullptr, DriveOut, nullptr) == 0);
  timespec left = {static_cast<time_t>(seconds), 0};
  while (nanosleep(&left, &left) != 0) {
  }
  stop.store(true);
  for (pthread_t& thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
  for (const Soaker& one : soakers) one.Verify();
}

// Words anywhere in more than the limit, for longer than Ramspan watches before it tells of that.
void TouchesForAMinute() {
  constexpr size_t kBytes = 24 * kMiB;
  char* const memory = New(kBytes);
  for (size_t i = 0; i < kBytes; i += 512) memory[i] = 1;
  const time_t end = time(nullptr) + 65;
  for (uint64_t at = 1; time(nullptr) < end;) {
    int sum = 0;
    for (int i = 0; i < 1000; ++i) {
      at = at * 6364136223846793005 + 1442695040888963407;
      sum += memory[(at >> 20) % kBytes / 512 * 512];
    }
    CHECK(sum == 1000);
  }
}
