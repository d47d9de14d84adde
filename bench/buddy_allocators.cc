#include "bench/buddy_allocators.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>

#include <bit>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "bench/level_buddy.h"
#include "client/arena/arena.h"
#include "common/mutex.h"
#include "common/slot_ref.h"

namespace ramspan::bench {
namespace {

// The reference implementations give offsets; these are of a range of addresses.
template <typename Lock>
class LevelContestant : public Contestant {
 public:
  LevelContestant(std::string name, uint64_t capacity, uint64_t unit)
      : name_(std::move(name)), unit_(unit), bytes_(capacity / unit * unit), buddy_(static_cast<uint32_t>(capacity / unit)), whole_(buddy_.free_blocks()) {
    void* const range = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char*>(range);
  }
  ~LevelContestant() override { munmap(base_, bytes_); }
  LevelContestant(const LevelContestant&) = delete;
  LevelContestant& operator=(const LevelContestant&) = delete;

  std::string name() const override { return name_; }
  void* Allocate(size_t bytes) override {
    const std::optional<uint32_t> first = buddy_.Allocate(Units(bytes));
    return first ? base_ + *first * unit_ : nullptr;
  }
  void Free(void* at, size_t bytes) override { buddy_.Free(static_cast<uint32_t>(static_cast<uint64_t>(static_cast<char*>(at) - base_) / unit_), Units(bytes)); }
  bool has_capacity() const override { return true; }
  size_t TakenFor(void*, size_t bytes) const override { return std::bit_ceil(Units(bytes)) * unit_; }
  std::vector<int> TakeWaitingMax() override {
    std::vector<int> most;
    for (size_t k = 0; k < buddy_.levels(); ++k) most.push_back(buddy_.waiting_max(k));
    buddy_.ResetWaiting();
    return most;
  }
  bool IsWhole() const override { return buddy_.free_units() == bytes_ / unit_ && buddy_.free_blocks() == whole_; }

 private:
  uint32_t Units(size_t bytes) const { return static_cast<uint32_t>((bytes + unit_ - 1) / unit_); }

  const std::string name_;
  const uint64_t unit_, bytes_;
  char* base_ = nullptr;
  LevelBuddy<Lock> buddy_;
  const uint32_t whole_;
};

// The library's own, called as the engine does: with its kind of mutex held.
class ArenaContestant : public Contestant {
 public:
  explicit ArenaContestant(uint64_t capacity) : budget_(capacity, /*metadata_beside_limit=*/true), arena_(&budget_) {}

  std::string name() const override { return "Ramspan's arena"; }
  void* Allocate(size_t bytes) override {
    MutexLock lock(mutex_);
    return arena_.TryTake(bytes).release();
  }
  void Free(void* at, size_t bytes) override {
    MutexLock lock(mutex_);
    static_cast<void>(arena_.Own(at, bytes));
  }
  bool has_capacity() const override { return true; }
  size_t TakenFor(void*, size_t bytes) const override { return RoundUpToGranule(bytes); }
  bool IsWhole() const RS_NO_THREAD_SAFETY_ANALYSIS override { return arena_.in_use() == 0 && arena_.available() == budget_.limit(); }

 private:
  Budget budget_;
  Mutex mutex_{LockRank::kEngine};
  Arena arena_ RS_GUARDED_BY(mutex_);
};

// The allocator of the program. glibc's gives memory that came back to the kernel, unless it is told to keep it.
class NewContestant : public Contestant {
 public:
  explicit NewContestant(bool keeps) : keeps_(keeps) {}
  std::string name() const override { return keeps_ ? "new, keeping memory" : "new"; }
  void* Allocate(size_t bytes) override { return ::operator new(bytes); }
  void Free(void* at, size_t) override { ::operator delete(at); }
  size_t TakenFor(void* at, size_t) const override { return malloc_usable_size(at); }
  void BeginTurn() override {
    if (keeps_) mallopt(M_TRIM_THRESHOLD, INT32_MAX);
  }
  void EndTurn() override {
    if (!keeps_) return;
    mallopt(M_TRIM_THRESHOLD, 128 << 10);  // its default
    malloc_trim(0);
  }

 private:
  const bool keeps_;
};

// An allocator out of a library, whose names stay unknown to the rest of the program.
class LibraryContestant : public Contestant {
 public:
  struct Names {
    const char *allocate, *free, *usable;
  };
  // nullptr: it is not there.
  static std::unique_ptr<Contestant> Load(const std::string& name, const char* library, const Names& names, std::vector<std::string>* missing) {
    void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    std::unique_ptr<LibraryContestant> made(new LibraryContestant(name));
    if (handle != nullptr) {
      made->allocate_ = reinterpret_cast<void* (*)(size_t)>(dlsym(handle, names.allocate));
      made->free_ = reinterpret_cast<void (*)(void*)>(dlsym(handle, names.free));
      made->usable_ = reinterpret_cast<size_t (*)(void*)>(dlsym(handle, names.usable));
      if (made->allocate_ != nullptr && made->free_ != nullptr && made->usable_ != nullptr) return made;
    }
    const char* const why = dlerror();
    missing->push_back(name + " is not compared: " + (why != nullptr ? why : library));
    return nullptr;
  }
  std::string name() const override { return name_; }
  void* Allocate(size_t bytes) override { return allocate_(bytes); }
  void Free(void* at, size_t) override { free_(at); }
  size_t TakenFor(void* at, size_t) const override { return usable_(at); }

 private:
  explicit LibraryContestant(std::string name) : name_(std::move(name)) {}
  const std::string name_;
  void* (*allocate_)(size_t) = nullptr;
  void (*free_)(void*) = nullptr;
  size_t (*usable_)(void*) = nullptr;
};

}  // namespace

std::vector<std::unique_ptr<Contestant>> AllContestants(uint64_t capacity, uint64_t unit, std::vector<std::string>* missing) {
  std::vector<std::unique_ptr<Contestant>> all;
  all.push_back(std::make_unique<LevelContestant<MutexLevelLock>>("mutex a level", capacity, unit));
  all.push_back(std::make_unique<LevelContestant<SpinLevelLock>>("spinlock a level", capacity, unit));
  all.push_back(std::make_unique<ArenaContestant>(capacity));
  all.push_back(std::make_unique<NewContestant>(false));
  all.push_back(std::make_unique<NewContestant>(true));
  const auto load = [&](const char* name, const char* library, const LibraryContestant::Names& names) {
    if (auto one = LibraryContestant::Load(name, library, names, missing)) all.push_back(std::move(one));
  };
  load("mimalloc", "libmimalloc.so.2", {"mi_malloc", "mi_free", "mi_usable_size"});
  load("jemalloc", "libjemalloc.so.2", {"malloc", "free", "malloc_usable_size"});
  return all;
}

}  // namespace ramspan::bench
