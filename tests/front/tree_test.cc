// Classes with managedPtrs to their own type: trees and lists. tests/rambrain/objects_test.cc has the same for Rambrain's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ramspan/managed_ptr.h>
#include <ramspan/runtime.h>

#include <cstdint>

#include "tests/support/octree.h"

using ramspan::managedPtr;

namespace {

struct OfRamspan {
  template <typename T>
  using Managed = managedPtr<T>;
  template <typename T>
  using Adhere = ramspan::adhereTo<T>;
};

// What programs write first: not a word on the children.
struct Twig {
  managedPtr<Twig> child[2];
};

struct Link {
  explicit Link(int more) : next(more > 0 ? 1 : 0, more - 1) {}
  managedPtr<Link> next;
};

}  // namespace
template <>
struct ramspan::is_relocatable<octree::Node<OfRamspan>> : std::true_type {};
template <>
struct ramspan::is_relocatable<Twig> : std::true_type {};
template <>
struct ramspan::is_relocatable<Link> : std::true_type {};
namespace {

// The class did not compile: T had to be complete where a managedPtr<T> was a member.
TEST(Tree, OfNodesThatHoldTheirOwnTypeIsLargerThanTheLimit) { octree::GrowCountAndFell<OfRamspan>(); }

// Each node makes the next, as a member that is told nothing has one element: SIGSEGV where the stack ended.
TEST(Tree, NodesThatMakeEachOtherWithoutEndAreAnErrorThatNamesTheRemedy) {
  const uint64_t before = ramspan::GetStatistics().small_objects;
  for (int i = 0; i < 3; ++i) {  // the next one begins at depth 0 again
    try {
      const managedPtr<Twig> root;
      ADD_FAILURE() << "without end, and it ended";
    } catch (const ramspan::Error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("{nullptr}"));
    }
  }
  EXPECT_EQ(ramspan::GetStatistics().small_objects, before);
}

TEST(Tree, NodesThatMakeSomeHundredOthersAreMade) {
  for (int i = 0; i < 3; ++i) {
    const managedPtr<Link> list(1, 900);
    int links = 0;
    for (managedPtr<Link> link = list; link; ++links) {
      const ramspan::adhereTo<Link> glue(link);
      link = static_cast<const Link*>(glue)->next;
    }
    EXPECT_EQ(links, 901);
  }
}

// Of a class without a default constructor there was no managedPtr of no elements.
TEST(Tree, NoElementsNeedNoDefaultConstructor) {
  const managedPtr<Link> none(nullptr), zero(0);
  EXPECT_FALSE(none);
  EXPECT_EQ(zero.size(), 0u);
  managedPtr<Link> one(1, 0);
  EXPECT_FALSE(one == nullptr);
  one = nullptr;
  EXPECT_TRUE(one == nullptr);
}

}  // namespace
