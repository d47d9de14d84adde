// Rambrain's classes in a program that is compiled as C++17.
#include <gtest/gtest.h>

#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/managedDummySwap.h"
#include "rambrain/managedPtr.h"

static_assert(__cplusplus == 201703L, "this is about C++17");

namespace {

using rambrain::managedPtr;

TEST(Cxx17, NullptrOnEitherSideOfRambrains) {
  rambrain::managedDummySwap swap(4 << 20);
  rambrain::cyclicManagedMemory manager(&swap, 1 << 20);
  const managedPtr<int> none(nullptr), one(1);
  EXPECT_TRUE(none == nullptr && nullptr == none && !(none != nullptr) && !(nullptr != none));
  EXPECT_TRUE(one != nullptr && nullptr != one && !(one == nullptr) && !(nullptr == one));
}

}  // namespace
