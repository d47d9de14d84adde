// An octree whose nodes hold managedPtrs to their own type: 37 MB in 4,681 nodes, grown, walked and felled. `Library` names either library's
// classes: Managed<T>, Adhere<T>. REQUIRES: its nodes may be moved (is_relocatable, where the library asks).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

namespace octree {

constexpr int kLevels = 5;
constexpr uint64_t kNodes = 1 + 8 + 64 + 512 + 4096;

template <typename Library>
struct Node {
  Node() { ++living; }
  ~Node() { --living; }
  static inline uint64_t living = 0;
  typename Library::template Managed<Node> child[8] = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  uint64_t values[1000];
};

template <typename Library>
using Root = typename Library::template Managed<Node<Library>>;
template <typename Library>
using Glue = typename Library::template Adhere<Node<Library>>;

template <typename Library>
void Grow(Root<Library>& place, int levels, uint64_t* number) {
  place = Root<Library>(1);
  Glue<Library> glue(place);
  Node<Library>* node = glue;
  for (uint64_t& x : node->values) x = *number;
  ++*number;
  for (auto& child : node->child) {
    if (levels > 1) Grow<Library>(child, levels - 1, number);
  }
}

// In the order in which they were made.
template <typename Library>
void Count(const Root<Library>& place, uint64_t* nodes, uint64_t* wrong) {
  if (place.size() == 0) return;
  const Glue<Library> glue(place);
  const Node<Library>* node = glue;
  for (const uint64_t x : node->values) *wrong += x != *nodes;
  ++*nodes;
  for (const auto& child : node->child) Count<Library>(child, nodes, wrong);
}

template <typename Library>
void GrowCountAndFell() {
  {
    Root<Library> root(nullptr);
    uint64_t number = 0, nodes = 0, wrong = 0;
    Grow<Library>(root, kLevels, &number);
    EXPECT_EQ(Node<Library>::living, kNodes);
    Count<Library>(root, &nodes, &wrong);
    EXPECT_EQ(nodes, kNodes);
    EXPECT_EQ(wrong, 0u);
  }
  EXPECT_EQ(Node<Library>::living, 0u);
}

}  // namespace octree
