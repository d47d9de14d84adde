// Ramspan's classes in a program that is compiled as C++17.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ramspan/adhere_all.h"
#include "ramspan/blocked_array.h"
#include "ramspan/extend.h"
#include "ramspan/lockstep.h"
#include "ramspan/managed_array.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/mapped_file.h"
#include "ramspan/runtime.h"

static_assert(__cplusplus == 201703L, "this is about C++17");

namespace {

using ramspan::managedArray;
using ramspan::managedPtr;

TEST(Cxx17, ADataFourTimesTheLimit) {
  managedArray<double> a(2 << 20, 1., ramspan::ChunkBytes{256 << 10});  // 16 MiB
  for (auto block : a.blocks()) {
    for (double& x : block) x += static_cast<double>(block.first_index());
  }
  double sum = 0;
  for (double x : std::as_const(a)) sum += x;
  double expected = 0;
  for (auto block : std::as_const(a).blocks()) expected += static_cast<double>(block.size()) * (1. + static_cast<double>(block.first_index()));
  EXPECT_EQ(sum, expected);
}

// Whoever took the array's indices for those of a block wrote into the memory behind it, and nothing could tell.
TEST(Cxx17, WithAssertionsAnElementOutsideItsBlockIsRefused) {
  const auto error_of = [](const auto& call) -> std::string {
    try {
      static_cast<void>(call());
      return "none";
    } catch (const ramspan::Error& error) {
      return error.what();
    }
  };
  ramspan::blockedArray<double, 2> matrix({100, 95}, {10, 10});
  managedArray<float> cells(1000, 1.f, ramspan::ChunkBytes{400});
  const auto block = matrix.block({5, 9});  // 10 x 5
  block(9, 4) = 1;
  for (const auto& [i, j] : {std::pair<size_t, size_t>(50, 0), {10, 0}, {0, 5}}) {
    const std::string words = "the block has no element {" + std::to_string(i) + ", " + std::to_string(j) + "}: it has 10 x 5, counted from 0 in each block";
    EXPECT_NE(error_of([&, i = i, j = j] { return block(i, j); }).find(words), std::string::npos) << words;
  }
  ramspan::blockedArray<double, 3> grid({4, 4, 4}, {2, 2, 2});
  const auto cube = std::as_const(grid).block({1, 1, 1});
  EXPECT_EQ(error_of([&] { return cube(1, 1, 1), 0; }), "none");
  EXPECT_NE(error_of([&] { return cube(1, 1, 2); }).find("{1, 1, 2}: it has 2 x 2 x 2"), std::string::npos);
  managedArray<double> row(1000, 1., ramspan::ChunkBytes{800});
  for (auto [first, end, to, from] : ramspan::lockstep({0, 1000}, row, std::as_const(cells))) {
    EXPECT_EQ(error_of([&, to = to, last = end - 1] { return to[last]; }), "none");
    EXPECT_NE(error_of([&, from = from, after = end] { return from[after]; }).find("element " + std::to_string(end) + " is not in this part"), std::string::npos) << first;
  }
  EXPECT_EQ(error_of([&] { return row.block(9)[99]; }), "none");
  EXPECT_NE(error_of([&] { return row.block(1)[100]; }).find("no element {100}: it has 100"), std::string::npos);
}

TEST(Cxx17, SeveralAtOnce) {
  managedPtr<int> a(1000, 1), b(1000, 2);
  {
    auto [x, y] = ramspan::adhereAll(a, std::as_const(b));
    int* px = x;
    const int* py = y;
    px[999] += py[999];
  }
  std::vector<managedPtr<int>> both{a, b};
  auto pins = ramspan::adhereAll(both);
  const int* first = pins[0];
  EXPECT_EQ(first[999], 3);
  EXPECT_TRUE(both[0] == a);
  EXPECT_TRUE(both[0] != b);
}

// nullptr on the left did not compile: only C++20 turns the sides of a comparison around.
TEST(Cxx17, NullptrOnEitherSide) {
  const managedPtr<int> none(nullptr), one(1);
  EXPECT_TRUE(none == nullptr && nullptr == none && !(none != nullptr) && !(nullptr != none));
  EXPECT_TRUE(one != nullptr && nullptr != one && !(one == nullptr) && !(nullptr == one));
}

TEST(Cxx17, Blocks) {
  ramspan::blockedArray<float, 2> m({100, 70}, {32, 32});
  m.block({3, 2})(3, 5) = 7;
  EXPECT_EQ(m.read({3, 2})(3, 5), 7);
  ramspan::blockedArray<float, 3> cube({10, 10, 10}, {5, 5, 5});
  cube.block({1, 1, 1})(4, 4, 4) = 8;
  EXPECT_EQ(cube.read({1, 1, 1})(4, 4, 4), 8);
}

TEST(Cxx17, AFile) {
  char path[] = "/tmp/headers-test-XXXXXX";
  const int fd = mkstemp(path);
  std::FILE* file = fdopen(fd, "w");
  for (int i = 0; i < 1000; ++i) std::fwrite(&i, sizeof i, 1, file);
  std::fclose(file);
  const ramspan::mappedFile<int> in(path);
  int sum = 0;
  for (int x : in.array()) sum += x;
  EXPECT_EQ(sum, 499500);
  std::remove(path);
}

class Heap final : public ramspan::SwapStore {
 public:
  uint64_t Capacity() const override { return 64 << 20; }
  bool Write(uint64_t slot, const void* data, size_t bytes) override {
    slots_[slot].assign(static_cast<const char*>(data), bytes);
    return true;
  }
  bool Read(uint64_t slot, void* data, size_t bytes) override {
    std::memcpy(data, slots_[slot].data(), bytes);
    return true;
  }
  void Erase(uint64_t slot, size_t) noexcept override { slots_.erase(slot); }

 private:
  std::unordered_map<uint64_t, std::string> slots_;
};

// The library, compiled as C++20, calls it with std::span.
class FirstIn final : public ramspan::EvictionPolicy {
 public:
  void Created(const Objects&, uint32_t id) override { order_.push_back(id); }
  void Freed(const Objects&, uint32_t id) override {
    for (size_t i = 0; i < order_.size(); ++i) {
      if (order_[i] == id) order_.erase(order_.begin() + static_cast<long>(i--));
    }
  }
  void Missed(const Objects&, uint32_t) override {}
  size_t Victims(const Objects& objects, uint64_t bytes, Ids out) override {
    size_t n = 0;
    for (size_t i = 0; i < order_.size() && n < out.size() && bytes > 0; ++i) {
      if (!objects.InMemory(order_[i])) continue;
      bytes -= std::min(bytes, objects.Bytes(order_[i]));
      out[n++] = order_[i];
    }
    named += n;
    return n;
  }
  size_t named = 0;

 private:
  std::vector<uint32_t> order_;
};

TEST(Cxx17, AStoreAndAPolicyOfTheProgram) {
  Heap heap;
  FirstIn policy;
  const ramspan::SwapId id = ramspan::AddSwap(&heap);
  ramspan::UseSwap(id);
  ramspan::SetPreemptive(false, false);
  ramspan::SetEvictionPolicy(&policy);
  {
    std::vector<managedPtr<char>> all;
    for (char i = 0; i < 64; ++i) all.emplace_back(256 << 10, i);
    for (char i = 0; i < 64; ++i) {
      ADHERETOLOCCONST(char, all[static_cast<size_t>(i)], data);
      ASSERT_EQ(data[1000], i);
    }
  }
  ramspan::SetEvictionPolicy(nullptr);
  EXPECT_GT(policy.named, 0u);
  ramspan::RemoveSwap(id);
}

}  // namespace
