// The heap of a program's thread ends within each public call, before its first allocation, before its second, and so on. What comes of
// that is ramspan::Error or nothing: no std::bad_alloc, no end of the program, no byte that is lost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "ramspan/adhere_all.h"
#include "ramspan/extend.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/mapped_file.h"
#include "ramspan/runtime.h"
#include "tests/support/end_heap_within.h"
#include "tests/support/heap_watch.h"
#include "tests/support/map_store.h"

namespace {

using ramspan::adhereTo;
using ramspan::managedPtr;

[[maybe_unused]] const int environment = setenv("RAMSPAN_MEMORY", "4MiB", 1);
constexpr size_t kObject = 64 << 10;
constexpr size_t kObjects = 256;  // four times the memory limit of 4 MiB

void Nothing() {}

int EndHeapWithin(const char* name, const std::function<void()>& call, const std::function<void()>& undo = Nothing,
                  const std::function<void()>& threw = Nothing) {
  return ramspan::EndHeapWithin<ramspan::Error>(name, call, undo, threw);
}

// Data of which three quarters are in swap.
class HeapEnds : public testing::Test {
 protected:
  HeapEnds() {
    for (size_t i = 0; i < kObjects; ++i) data_[i].emplace(kObject, static_cast<char>(i));
  }
  void ExpectAllThere() {
    for (size_t i = 0; i < kObjects; ++i) {
      if (!data_[i]) continue;
      const adhereTo<char> glue(*data_[i]);
      const char* bytes = glue;
      ASSERT_EQ(bytes[kObject - 1], static_cast<char>(i)) << i;
    }
  }
  std::array<std::optional<managedPtr<char>>, kObjects> data_;
};

// All of memory is pinned, and nobody waits: a pull is refused with words that need heap.
class AllPinned {
 public:
  explicit AllPinned(std::array<std::optional<managedPtr<char>>, kObjects>& data) {
    ramspan::SetWaitForPins(false);
    try {
      for (size_t i = 0; i < kObjects; ++i) static_cast<void>(static_cast<const char*>(pins_[i].emplace(*data[i])));
      ADD_FAILURE() << "memory is too large for this test";
    } catch (const ramspan::OutOfMemory&) {
    }
  }
  ~AllPinned() { ramspan::SetWaitForPins(true); }
  AllPinned(const AllPinned&) = delete;
  AllPinned& operator=(const AllPinned&) = delete;

 private:
  std::array<std::optional<adhereTo<char>>, kObjects> pins_;
};

TEST_F(HeapEnds, WithinPulls) {
  EndHeapWithin("const T*", [&] {
    for (size_t i = 0; i < kObjects; i += 3) {
      const adhereTo<char> glue(*data_[i]);
      const char* bytes = glue;
      if (bytes[0] != static_cast<char>(i)) std::abort();
    }
  });
  EndHeapWithin("T*", [&] {
    for (size_t i = 0; i < kObjects; i += 5) {
      adhereTo<char> glue(*data_[i]);
      char* bytes = glue;
      bytes[0] = static_cast<char>(i);
    }
  });
  EndHeapWithin("prepareUse", [&] {
    for (auto& one : data_) one->prepareUse();
  });
  EndHeapWithin("advise", [&] {
    for (const ramspan::advice what : {ramspan::advice::will_need, ramspan::advice::done, ramspan::advice::once, ramspan::advice::normal}) {
      for (auto& one : data_) one->advise(what);
    }
  });
  EndHeapWithin("adhereAll", [&] { static_cast<void>(adhereAll(*data_[1], *data_[77], std::as_const(*data_[131]))); });
  ExpectAllThere();
}

TEST_F(HeapEnds, WithinPullsThatAreRefused) {
  const AllPinned pinned(data_);
  // Who is last may have stayed in memory.
  const auto is_out = [](const auto& one) { return std::string(ramspan::detail::DescribeChunk(ramspan::detail::ObjectOf()(*one).chunk())) == "swapped out"; };
  const auto out = std::find_if(data_.rbegin(), data_.rend(), is_out);
  ASSERT_NE(out, data_.rend());
  const int needed = EndHeapWithin("const T*", [&] {
    const adhereTo<char> glue(**out);
    static_cast<void>(static_cast<const char*>(glue));
    std::abort();
  });
  EXPECT_GT(needed, 2) << "then this test shows nothing";
  EndHeapWithin("adhereAll", [&] { static_cast<void>(adhereAll(*data_[kObjects - 1], *data_[kObjects - 2])); });
}

// What one thread has allocated for its pulls, another one has not.
TEST_F(HeapEnds, WithinTheFirstPullOfAThread) {
  int given = 0;
  for (bool refused = true; refused && given < ramspan::kAllocationsMax; ++given) {
    std::thread([&] {
      try {
        const ramspan::EndingHeap ending(given);
        const adhereTo<char> glue(*data_[static_cast<size_t>(given * 37) % kObjects]);
        const char* bytes = glue;
        if (bytes[0] != static_cast<char>(given * 37)) std::abort();
      } catch (const ramspan::Error&) {
      } catch (const std::bad_alloc&) {
        ADD_FAILURE() << "std::bad_alloc after " << given << " allocations";
      }
      refused = ramspan::EndingHeap::refused();
    }).join();
  }
  EXPECT_LT(given, ramspan::kAllocationsMax);
  ExpectAllThere();
}

TEST_F(HeapEnds, WhereObjectsAreMade) {
  std::optional<managedPtr<char>> made;
  std::array<std::optional<managedPtr<int>>, 4000> small;
  EndHeapWithin("managedPtr", [&] { made.emplace(kObject); }, [&] { made.reset(); });
  EndHeapWithin("small managedPtrs", [&] {
    for (auto& one : small) one.emplace(size_t{10}, 7);
  }, [&] {
    for (auto& one : small) one.reset();
  });
  EndHeapWithin("too large a managedPtr", [&] { made.emplace(~size_t{0} / 4); });
  EndHeapWithin("a managedPtr larger than the limit", [&] { made.emplace(size_t{64} << 20, 'x'); });
  EndHeapWithin("a pull of nothing", [] {
    const managedPtr<char> nothing(size_t{0});
    const adhereTo<char> glue(nothing);
    static_cast<void>(static_cast<const char*>(glue));
  });
  ExpectAllThere();
}

struct Counted {
  static inline int live = 0;
  Counted() { ++live; }
  ~Counted() { --live; }
  char payload[kObject] = {};
};

}  // namespace
template <>
struct ramspan::is_relocatable<Counted> : std::true_type {};
namespace {

// Elements with destructors come home to be destroyed. Those that cannot are given up, and the log says so.
TEST_F(HeapEnds, WhereDestructorsFetchTheirObjects) {
  std::array<std::optional<managedPtr<Counted>>, 40> classes;
  for (int given = 0; given < 40; ++given) classes[static_cast<size_t>(given)].emplace(size_t{1});
  ExpectAllThere();  // they are in swap now
  testing::internal::CaptureStderr();
  {
    const AllPinned pinned(data_);
    for (int given = 0; given < 20; ++given) {
      const ramspan::EndingHeap ending(given);
      classes[static_cast<size_t>(given)].reset();
    }
  }
  for (int given = 20; given < 40; ++given) {
    const ramspan::EndingHeap ending(given - 20);
    classes[static_cast<size_t>(given)].reset();
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("given up without their destructors"), std::string::npos) << said;
  EXPECT_GE(Counted::live, 20) << "then this test shows nothing";
  ExpectAllThere();
}

TEST_F(HeapEnds, WithinControl) {
  const uint64_t swap_limit = ramspan::SwapLimit();
  int refusals = 0;
  const auto unchanged = [&] {
    ++refusals;
    EXPECT_EQ(ramspan::MemoryLimit(), uint64_t{4} << 20) << "a limit that was refused holds";
    EXPECT_EQ(ramspan::SwapLimit(), swap_limit) << "a limit that was refused holds";
  };
  EndHeapWithin("SetMemoryLimit, lowered", [] { ramspan::SetMemoryLimit(2 << 20); }, [] { ramspan::SetMemoryLimit(4 << 20); }, unchanged);
  {
    const AllPinned pinned(data_);
    EndHeapWithin("SetMemoryLimit below what is pinned", [] { ramspan::SetMemoryLimit(2 << 20); }, Nothing, unchanged);
  }
  EXPECT_GT(refusals, 1) << "then this test shows nothing";
  refusals = 0;
  ramspan::Options as_it_was, other;
  as_it_was.memory = 4 << 20;
  as_it_was.swapMemory = swap_limit;
  other.memory = 8 << 20;
  other.swapMemory = swap_limit / 2;
  other.stats = as_it_was.stats = "a name that is too long for a string without heap";
  EndHeapWithin("Reconfigure of the limits", [&] { ramspan::Reconfigure(other); }, [&] { ramspan::Reconfigure(as_it_was); }, unchanged);
  EXPECT_GT(refusals, 0) << "then this test shows nothing";
  EndHeapWithin("SetMemoryLimit, too low", [] { ramspan::SetMemoryLimit(1); });
  EndHeapWithin("SetMemoryLimit, too high", [] { ramspan::SetMemoryLimit(~uint64_t{0} / 2); });
  EndHeapWithin("SwapLimit", [] { static_cast<void>(ramspan::SwapLimit()); });
  EndHeapWithin("SetSwapLimit", [] { ramspan::SetSwapLimit(ramspan::SwapLimit()); });
  EndHeapWithin("SetSwapLimit, too low", [] { ramspan::SetSwapLimit(1); });
  EndHeapWithin("SetSwapPolicy", [] { ramspan::SetSwapPolicy(ramspan::SwapPolicy::kFail); });
  EndHeapWithin("SetPreemptive", [] { ramspan::SetPreemptive(true, true); });
  EndHeapWithin("GetStatistics", [] { static_cast<void>(ramspan::GetStatistics()); });
  EXPECT_GT(EndHeapWithin("DescribePolicy", [] { static_cast<void>(ramspan::DescribePolicy()); }), 0) << "then the operators are not this program's";
  EndHeapWithin("CheckPolicy", [] { static_cast<void>(ramspan::CheckPolicy()); });
  EndHeapWithin("StatsJson", [] { static_cast<void>(ramspan::StatsJson()); });
  EndHeapWithin("EffectiveOptions", [] { static_cast<void>(ramspan::EffectiveOptions()); });
  EndHeapWithin("Reconfigure", [] { ramspan::Reconfigure({}); });
  EndHeapWithin("Configure", [] { ramspan::Configure({}); });
  EndHeapWithin("SetSignalReport", [] { ramspan::SetSignalReport(-1, nullptr); });
  ExpectAllThere();
}

TEST_F(HeapEnds, WithinChangesOfSwap) {
  MapStore store(64 << 20);
  ramspan::SwapId id{};
  const auto remove = [&id] { ramspan::RemoveSwap(id); };
  EndHeapWithin("AddSwap", [&] { id = ramspan::AddSwap(&store); }, remove);
  ramspan::SwapFiles files;
  files.mask = testing::TempDir() + "ramspan-front-heap-%d-%d.swap";
  files.bytes = 64 << 20;
  EndHeapWithin("AddSwapFiles", [&] { id = ramspan::AddSwapFiles(files); }, remove);
  id = ramspan::AddSwapFiles(files);
  EndHeapWithin("UseSwap", [&] { ramspan::UseSwap(id); });
  for (size_t i = 0; i < kObjects; ++i) data_[i].emplace(kObject, static_cast<char>(i));
  EndHeapWithin("GetSwapUse", [&] { static_cast<void>(ramspan::GetSwapUse(id)); });
  EndHeapWithin("GetSwapFragmentation", [&] { static_cast<void>(ramspan::GetSwapFragmentation(id)); });
  EndHeapWithin("SetSwapLimit of a swap", [&] { ramspan::SetSwapLimit(id, 65 << 20); });
  EndHeapWithin("SetSwapPolicy of a swap", [&] { ramspan::SetSwapPolicy(id, ramspan::SwapPolicy::kFail); });
  EndHeapWithin("WaitForTransfers", [] { ramspan::WaitForTransfers(); });
  EndHeapWithin("TransfersUnderWay", [] { static_cast<void>(ramspan::TransfersUnderWay()); });
  EndHeapWithin("FreeCleanCopies", [] { ramspan::FreeCleanCopies(1 << 20); });
  EndHeapWithin("UseSwap of none", [] { ramspan::UseSwap(ramspan::SwapId{4711}); });
  // One that was refused is whole: the next one removes it.
  EndHeapWithin("RemoveSwap", [&] { ramspan::RemoveSwap(id); }, [&] {
    id = ramspan::AddSwapFiles(files);
    ramspan::UseSwap(id);
  });
  ramspan::RemoveSwap(id);
  id = ramspan::AddSwap(&store);
  EndHeapWithin("AbandonSwap", [&] { ramspan::AbandonSwap(id); });
  for (size_t i = 20; i < kObjects; ++i) data_[i].reset();  // the rest fits into memory
  const auto use = [] { ramspan::UseSwap(ramspan::SwapId::kConfigured); };
  EndHeapWithin("CloseSwap", [] { ramspan::CloseSwap(); }, use);
  use();
  ExpectAllThere();
}

// A swap that was refused for want of heap counted what the one before it in its place had moved, once more. The list of all swaps there
// ever were may lack heap only where it grows, at each doubling: so each swap moves something, and they become twice as many.
TEST_F(HeapEnds, WithinASwapThatWouldTakeAnothersPlaceCountsNothingTwice) {
  MapStore store(64 << 20);
  ramspan::SwapId id{};
  ramspan::SetPreemptive(false, false);
  ramspan::WaitForTransfers();
  uint64_t moved = ramspan::GetStatistics().bytes_out;
  const auto counted_once = [&] { EXPECT_EQ(ramspan::GetStatistics().bytes_out, moved); };
  const auto use_and_remove = [&] {
    counted_once();
    ramspan::UseSwap(id);
    for (size_t i = 0; i < kObjects; ++i) data_[i].emplace(kObject, static_cast<char>(i));  // anew: what has a place in swap keeps it
    EXPECT_GT(ramspan::GetSwapUse(id).used, 0u) << "then this test shows nothing";
    ramspan::RemoveSwap(id);
    ramspan::WaitForTransfers();
    moved = ramspan::GetStatistics().bytes_out;
  };
  const auto add = [&] { EndHeapWithin("AddSwap", [&] { id = ramspan::AddSwap(&store); }, use_and_remove, counted_once); };
  add();
  constexpr int kConfiguredMax = 4;  // tiers that no id counts
  const int end = 2 * (static_cast<int>(id) + kConfiguredMax);
  while (static_cast<int>(id) < end) add();
  ramspan::SetPreemptive(true, true);
  ExpectAllThere();
}

// Of each object it hears in order, whatever it does not hear.
struct InOrder final : ramspan::EvictionPolicy {
  void Created(const Objects&, uint32_t id) override {
    const ramspan::UnwatchedHeap unwatched;
    EXPECT_TRUE(live.insert({id, true}).second) << id << " was made twice";
  }
  void Freed(const Objects&, uint32_t id) override { EXPECT_EQ(live.erase(id), 1u) << id << " is gone that was never there"; }
  void Missed(const Objects&, uint32_t id) override { EXPECT_TRUE(live.contains(id)) << id << " was missed that was never made"; }
  size_t Victims(const Objects&, uint64_t, Ids) override { return 0; }
  std::map<uint32_t, bool> live;
};

// A policy that ends has to be taken away, heap or not: its owner destroys it next.
TEST_F(HeapEnds, WhereAProgramsPolicyEnds) {
  for (int round = 0; round < 2; ++round) {
    InOrder policy;
    ramspan::SetEvictionPolicy(&policy);
    const ramspan::EndingHeap none(0);
    EXPECT_NO_THROW(ramspan::SetEvictionPolicy(nullptr));
  }
  ExpectAllThere();
}

TEST_F(HeapEnds, WhileAProgramsPolicyIsTold) {
  InOrder policy;
  EndHeapWithin("SetEvictionPolicy", [&] { ramspan::SetEvictionPolicy(&policy); }, [&] { ramspan::SetEvictionPolicy(nullptr); policy.live.clear(); });
  ramspan::SetEvictionPolicy(&policy);
  uint64_t random = 4711;
  for (size_t round = 0; round < 3000; ++round) {
    const size_t i = round * 31 % kObjects;
    try {
      const ramspan::ScarceHeap scarce(&random, 2);
      if (round % 3 == 0) {
        data_[i].reset();
        data_[i].emplace(kObject, static_cast<char>(i));
      } else if (data_[i]) {
        const adhereTo<char> glue(*data_[i]);
        static_cast<void>(static_cast<const char*>(glue));
      }
    } catch (const ramspan::Error&) {
    }
    if (!data_[i]) data_[i].emplace(kObject, static_cast<char>(i));
  }
  ramspan::SetEvictionPolicy(nullptr);
  ExpectAllThere();
}

TEST_F(HeapEnds, WithMappedFiles) {
  const std::string name = testing::TempDir() + "ramspan-front-heap-" + std::to_string(getpid());
  std::filesystem::remove(name);
  { std::ofstream file(name); }
  std::filesystem::resize_file(name, 8 << 20);
  {
    std::shared_ptr<const ramspan::MappedFile> file;
    EndHeapWithin("OpenMapped", [&] { file = ramspan::detail::OpenMapped(name); });
    const std::string nowhere = "/proc/ramspan/there/is/no/such/file";
    EndHeapWithin("OpenMapped of none", [&] { static_cast<void>(ramspan::detail::OpenMapped(nowhere)); });
    ramspan::detail::ChunkHead* chunk = nullptr;
    EndHeapWithin("MapChunk", [&] { chunk = ramspan::detail::MapChunk(file, 0, kObject); }, [&] {
      if (ramspan::EndingHeap::refused()) ramspan::detail::FreeObject(ramspan::detail::Object(chunk));
    });
    EndHeapWithin("MapChunk beyond the end", [&] { static_cast<void>(ramspan::detail::MapChunk(file, 9 << 20, kObject)); });
    static_cast<char*>(ramspan::detail::HeldPin(chunk, true).frame())[5] = 'y';
    const std::vector<ramspan::detail::ChunkHead*> chunks = {chunk};
    EndHeapWithin("WriteBackChunks", [&] { ramspan::detail::WriteBackChunks(chunks, file, 0, 0); });
    ramspan::detail::FreeObject(ramspan::detail::Object(chunk));
  }
  std::ifstream file(name);
  file.seekg(5);
  EXPECT_EQ(file.get(), 'y');
  std::filesystem::remove(name);
  ExpectAllThere();
}

}  // namespace
