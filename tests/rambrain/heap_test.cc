// The heap of a program's thread ends within Rambrain's calls: memoryException or nothing comes of it, no manager stays half made, and
// destructors end.
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/managedDummySwap.h"
#include "rambrain/managedPtr.h"
#include "tests/rambrain/field.h"
#include "tests/support/end_heap_within.h"
#include "tests/support/heap_watch.h"

using namespace rambrain;

namespace {

using ramspan::EndHeapWithin;

struct Destroyed {
  ~Destroyed() { ++count; }
  static inline int count = 0;
  double value = 1;
};

TEST(WithoutHeap, ObjectsWithDestructorsAreMadeOrRefused) {
  const auto started = Field(1);
  const unsigned int known = managedMemory::defaultManager->getNumberOfChildren(managedMemory::root);
  const auto all_forgotten = [&] { EXPECT_EQ(managedMemory::defaultManager->getNumberOfChildren(managedMemory::root), known); };
  std::optional<managedPtr<Destroyed>> made;
  int alive = 0;
  const int refused = EndHeapWithin<memoryException>("a managedPtr", [&] { made.emplace(100); },
                                    [&] {
                                      made.reset();
                                      alive += 100;
                                    },
                                    all_forgotten);
  EXPECT_GT(refused, 0) << "then this test shows nothing";
  EXPECT_EQ(Destroyed::count, alive);
  all_forgotten();
}

// The rows' handles were refused with std::bad_alloc, or std::length_error, and an assignment that was refused had assigned some of the rows.
TEST(WithoutHeap, RowsAreMadeCopiedAndAssignedOrRefused) {
  const auto started = Field(1);
  const unsigned int known = managedMemory::defaultManager->getNumberOfChildren(managedMemory::root);
  const int destroyed = Destroyed::count;
  int alive = 0;
  using Rows = managedPtr<Destroyed, 3>;
  const auto all_forgotten = [&] {
    EXPECT_EQ(managedMemory::defaultManager->getNumberOfChildren(managedMemory::root), known);
  };
  {
    std::optional<Rows> made;
    const int refused = EndHeapWithin<memoryException>("rows", [&] { made.emplace(3, 4, 600); },
                                                       [&] {
                                                         made.reset();
                                                         alive += 3 * 4 * 600;
                                                         all_forgotten();
                                                       },
                                                       all_forgotten);
    EXPECT_GT(refused, 3) << "then this test shows nothing";
  }
  all_forgotten();
  EXPECT_EQ((Destroyed::count - destroyed) % 600, 0) << "a row was destroyed in part";
  EXPECT_GE(Destroyed::count - destroyed, alive);

  const managedPtr<int, 3> from(3, 4, 10, 1);
  managedPtr<int, 3> to(0);
  const auto expect = [&to](unsigned int rows, unsigned int columns, int value) {
    ASSERT_EQ(to.size(), rows);
    for (unsigned int i = 0; i < rows; ++i) {
      ASSERT_EQ(to[i].size(), columns) << i;
      for (unsigned int j = 0; j < columns; ++j) EXPECT_EQ(std::as_const(to)[i][j][9], value) << i << ", " << j;
    }
  };
  for (unsigned int rows = 2; rows <= 3; ++rows) {  // with 3 there is room for the rows, but not for theirs
    const managedPtr<int, 3> before(rows, rows, 10, 2);
    to = before;
    const auto assigned = [&] {
      expect(3, 4, 1);
      to = before;
    };
    EXPECT_GT(EndHeapWithin<memoryException>("an assignment", [&] { to = from; }, assigned, [&] { expect(rows, rows, 2); }), 2);
  }
  EXPECT_GT(EndHeapWithin<memoryException>("a copy", [&] { managedPtr<int, 3> copy(from); }, [] {}, [] {}), 2);
  EXPECT_THROW((managedPtr<int, 2>(~global_bytesize{0}, 1)), memoryException);
}

struct OwnStrategy final : managedMemory {
  explicit OwnStrategy(managedSwap* swap) : managedMemory(swap, 4 * mib) { strategy.emplace(*this); }
  std::optional<inCharge> strategy;
};

TEST(WithoutHeap, ManagersComeWholeOrNotAtAll) {
  auto field = Field(80);  // 20 MiB
  std::optional<managedDummySwap> swap(std::in_place, 64 * mib);
  managedMemory* const configured = managedMemory::defaultManager;
  const auto as_before = [&] {
    ASSERT_EQ(managedMemory::defaultManager, configured);
    EXPECT_EQ(configured->getMemoryLimit(), 16 * mib);
  };
  void* const place = operator new(sizeof(OwnStrategy));
  const int refused = EndHeapWithin<memoryException>("a manager", [&] { new (place) OwnStrategy(&*swap); },
                                    [&] {
                                      static_cast<OwnStrategy*>(place)->~OwnStrategy();
                                      as_before();
                                    },
                                    as_before);
  operator delete(place);
  EXPECT_GT(refused, 3) << "then this test shows nothing";
  Expect(field);
  testing::internal::CaptureStderr();
  swap.reset();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "it belongs to a manager that was not made";
}

// It asked Ramspan for a policy to go back to, in a destructor: the end of the program.
TEST(WithoutHeap, AStrategyEnds) {
  auto field = Field(80);
  managedDummySwap swap(64 * mib);
  OwnStrategy manager(&swap);
  {
    const ramspan::EndingHeap none(0);
    manager.strategy.reset();
  }
  Expect(field);
}

// Another one comes back into force then, which needs heap: it is there again a moment later.
TEST(WithoutHeap, ManagersEndWhereTheHeapIsScarce) {
  auto field = Field(80);
  managedDummySwap outer_swap(64 * mib), swap(64 * mib);
  OwnStrategy outer(&outer_swap);
  uint64_t random = 4711;
  for (int round = 0; round < 10; ++round) {
    auto manager = std::make_unique<OwnStrategy>(&swap);
    Expect(field);
    {
      const ramspan::ScarceHeap scarce(&random, 4);
      manager.reset();
    }
    ASSERT_EQ(managedMemory::defaultManager, &outer);
    EXPECT_EQ(swap.getUsedSwap(), 0u);
    Expect(field);
  }
}

}  // namespace
