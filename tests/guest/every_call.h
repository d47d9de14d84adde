// Every public call of the library, made in front of a test that looks at what the call did to the thread around it:
//
//   EveryCall([](const char* name, auto&& call) { Before(); call(); EXPECT_...After() << name; });
//
// The functions of <ramspan/extend.h> are in extension_calls.h, those of include/rambrain in tests/rambrain/guest_test.cc.
// tests/house/every_call.sh finds functions of include/ramspan that are in none of them.
//
// The data is four times the memory limit of the caller, so most pulls miss, evict and wait for the mover.
#pragma once

#include <ramspan/adhere_all.h>
#include <ramspan/blocked_array.h>
#include <ramspan/managed_array.h>
#include <ramspan/managed_ptr.h>
#include <ramspan/mapped_file.h>
#include <ramspan/runtime.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace guest {

using ramspan::adhereTo;
using ramspan::managedPtr;

constexpr uint64_t kLimit = uint64_t{4} << 20;

struct Counted {
  static inline int live = 0;
  Counted() { ++live; }
  ~Counted() { --live; }
  uint64_t payload[1024];
};

}  // namespace guest
template <>
struct ramspan::is_relocatable<guest::Counted> : std::true_type {};
namespace guest {

// Objects of one size: written, read back, hinted at, pinned in pairs.
template <class Check>
void CallsOnObjects(Check&& check, size_t elements) {
  const size_t count = 4 * kLimit / (elements * sizeof(double));
  std::vector<std::optional<managedPtr<double>>> data(count);
  for (size_t i = 0; i < count; ++i) {
    check("managedPtr(n)", [&] { data[i].emplace(elements); });
    std::unique_ptr<adhereTo<double>> glue;
    double* p = nullptr;
    check("adhereTo", [&] { glue = std::make_unique<adhereTo<double>>(*data[i]); });
    check("T* of a new object", [&] { p = *glue; });
    for (size_t k = 0; k < elements; k += 64) p[k] = static_cast<double>(i + k);
    check("~adhereTo", [&] { glue.reset(); });
  }
  uint64_t wrong = 0;
  for (int sweep = 0; sweep < 2; ++sweep) {
    for (size_t i = 0; i < count; ++i) {
      std::unique_ptr<adhereTo<double>> glue;
      double* p = nullptr;
      const double* q = nullptr;
      check("adhereTo of swapped data", [&] { glue = std::make_unique<adhereTo<double>>(*data[i], i % 2 == 0); });
      check("const T* of swapped data", [&] { q = std::as_const(*glue); });
      for (size_t k = 0; k < elements; k += 64) wrong += q[k] != static_cast<double>(i + k + static_cast<size_t>(sweep));
      check("T* of resident data", [&] { p = *glue; });
      for (size_t k = 0; k < elements; k += 64) p[k] += 1;
      check("~adhereTo", [&] { glue.reset(); });
      check("prepareUse", [&] { data[(i + 7) % count]->prepareUse(); });
      check("advise", [&] { data[(i + 9) % count]->advise(static_cast<ramspan::advice>((i + 9) % ramspan::kAdviceKinds)); });
    }
  }
  for (size_t i = 0; i + 1 < count; i += 2) {
    using Pins = std::tuple<adhereTo<double>, adhereTo<double>>;
    std::unique_ptr<Pins> pins;
    check("adhereAll", [&] { pins = std::make_unique<Pins>(adhereAll(*data[i], std::as_const(*data[count - 1 - i / 2]))); });
    check("~adhereTo of adhereAll", [&] { pins.reset(); });
  }
  for (auto& one : data) check("~managedPtr", [&] { one.reset(); });
  EXPECT_EQ(wrong, 0u);
}

template <class Check>
void CallsOnSmallObjects(Check&& check) {
  std::vector<managedPtr<double>> small;
  small.reserve(100000);
  for (int i = 0; i < 100000; ++i) {
    check("managedPtr of a small object", [&] { small.emplace_back(size_t{4}, 1.5 * i); });
  }
  uint64_t wrong = 0;
  for (size_t i = 0; i < small.size(); i += 37) {
    std::unique_ptr<adhereTo<double>> glue;
    const double* p = nullptr;
    check("adhereTo of a small object", [&] { glue = std::make_unique<adhereTo<double>>(small[i]); });
    check("const T* of a small object", [&] { p = std::as_const(*glue); });
    wrong += p[3] != 1.5 * static_cast<double>(i);
    check("~adhereTo of a small object", [&] { glue.reset(); });
  }
  while (!small.empty()) check("~managedPtr of a small object", [&] { small.pop_back(); });
  EXPECT_EQ(wrong, 0u);
}

template <class Check>
void CallsOnViews(Check&& check) {
  std::optional<ramspan::managedArray<double>> array;
  check("managedArray", [&] { array.emplace(2 * kLimit / 8, 1.0, ramspan::ChunkBytes{100000}); });
  double sum = 0;
  for (size_t i = 0; i < array->chunk_count(); ++i) {
    check("managedArray::block", [&] { sum += array->block(i)[0]; });
    check("managedArray::block const", [&] { sum += std::as_const(*array).block(i)[0]; });
  }
  check("~managedArray", [&] { array.reset(); });
  ramspan::blockedArray<double, 2> matrix({512, 2048}, {64, 256});
  for (size_t i = 0; i < matrix.block_counts()[0]; ++i) {
    for (size_t j = 0; j < matrix.block_counts()[1]; ++j) {
      check("blockedArray::prepareUse", [&] { matrix.prepareUse({7 - i, j}); });
      check("blockedArray::block", [&] { matrix.block({i, j})(0, 0) = 1; });
      check("blockedArray::read", [&] { sum += matrix.read({i, j})(0, 0); });
    }
  }
  EXPECT_GT(sum, 0);
}

// Elements with destructors come home to be destroyed.
template <class Check>
void CallsOnClasses(Check&& check) {
  std::vector<managedPtr<Counted>> classes;
  classes.reserve(64);
  for (int i = 0; i < 64; ++i) check("managedPtr of a class", [&] { classes.emplace_back(size_t{16}); });
  while (!classes.empty()) check("~managedPtr of a class", [&] { classes.pop_back(); });
  EXPECT_EQ(Counted::live, 0);
}

template <class Check>
void CallsOnMappedFiles(Check&& check) {
  std::string name = testing::TempDir() + "ramspan-guest-XXXXXX";
  close(mkstemp(name.data()));
  std::filesystem::resize_file(name, 2 * kLimit);
  {
    std::optional<ramspan::mappedFile<double>> file;
    check("mappedFile", [&] { file.emplace(name, 0, ramspan::mappedFile<double>::kAll, ramspan::ChunkBytes{1 << 18}); });
    double sum = 0;
    for (size_t i = 0; i < file->array().chunk_count(); ++i) {
      check("a mapped block", [&] { sum += std::as_const(*file).array().block(i)[5]; });
      if (i % 3 == 0) check("a changed mapped block", [&] { file->array().block(i)[5] = 3; });
    }
    check("changed_chunks", [&] { sum += static_cast<double>(file->changed_chunks()); });
    check("writeBack", [&] { file->writeBack(); });
    check("~mappedFile", [&] { file.reset(); });
    EXPECT_GT(sum, 0);
  }
  std::filesystem::remove(name);
}

template <class Check>
void CallsOnTheRuntime(Check&& check) {
  managedPtr<double> data(2 * kLimit / 3 / sizeof(double), 1.0);
  uint64_t sum = 0;
  check("SetMemoryLimit, raised", [] { ramspan::SetMemoryLimit(2 * kLimit); });
  check("SetMemoryLimit, lowered", [] { ramspan::SetMemoryLimit(kLimit); });
  check("MemoryLimit", [&] { sum += ramspan::MemoryLimit(); });
  check("Started", [&] { sum += ramspan::Started(); });
  check("GetStatistics", [&] { sum += ramspan::GetStatistics().data; });
  check("StatsJson", [&] { sum += ramspan::StatsJson().size(); });
  check("DescribePolicy", [&] { sum += ramspan::DescribePolicy().size(); });
  check("CheckPolicy", [&] { sum += ramspan::CheckPolicy(); });
  check("EffectiveOptions", [&] { sum += *ramspan::EffectiveOptions().memory; });
  check("Reconfigure", [] { ramspan::Reconfigure({}); });
  check("SwapLimit", [&] { sum += ramspan::SwapLimit(); });
  check("SetSwapLimit", [] { ramspan::SetSwapLimit(ramspan::SwapLimit()); });
  check("SetSwapPolicy", [] { ramspan::SetSwapPolicy(ramspan::SwapPolicy::kFail); });
  check("SetPreemptive", [] { ramspan::SetPreemptive(false, false); });
  check("SetPreemptive", [] { ramspan::SetPreemptive(true, true); });
  check("SetWaitForPins", [] { ramspan::SetWaitForPins(true); });
  check("SetSignalReport", [] { ramspan::SetSignalReport(SIGUSR1, [] {}); });
  check("IngredientsScope", [] { const ramspan::detail::IngredientsScope scope; });
  check("OutOfMemory", [&] {
    try {
      managedPtr<double> large(2 * kLimit / sizeof(double));
      const adhereTo<double> glue(large);
      const double* p = glue;
      sum += static_cast<uint64_t>(p[0]);
    } catch (const ramspan::OutOfMemory&) {
      ++sum;
    }
  });
  EXPECT_GT(sum, 0u);
}

// What works in every tier, with objects of some sizes in doubles. REQUIRES: a memory limit of kLimit.
template <class Check>
void EveryCall(Check&& check, std::initializer_list<size_t> sizes = {2000, 8192, 60001}) {
  for (const size_t elements : sizes) CallsOnObjects(check, elements);
  CallsOnSmallObjects(check);
  CallsOnViews(check);
  CallsOnClasses(check);
  CallsOnMappedFiles(check);
  CallsOnTheRuntime(check);
}

}  // namespace guest
