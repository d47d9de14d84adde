// The loops of `vector`, each as a program would write it: once over a std::vector and once over a managedVector, in one file, so that both are
// compiled with the same flags. A loop gives back the sum of what it has read, which is the same for both.
// Thread-safety: those that sum up only read, so several threads may run them on the same vectors; the others have their vector for themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ramspan/managed_vector.h"

namespace ramspan::bench {

// What a loop's figure is held against.
enum class LoopTarget {
  none,
  as_std,      // the std::vector's time, but for noise
  by_element,  // 1.3 times that
  by_access,   // 3 ns more than that
};

// Elements that one thread reads; it begins where a block does.
struct VectorPart {
  size_t first, end;
  size_t size() const { return end - first; }
};

// All elements of a part, in order.
constexpr int kPassesOfView = 4;
template <typename T>
struct SumLoop {
  const char* way;
  LoopTarget target;
  int passes;  // in one call: of a view that is kept, or accesses to an element in one body
  T (*plain)(const std::vector<T>&, VectorPart);
  T (*managed)(managedVector<T>&, VectorPart);
};
template <typename T>
const std::vector<SumLoop<T>>& SumLoops();
extern template const std::vector<SumLoop<uint64_t>>& SumLoops();
extern template const std::vector<SumLoop<double>>& SumLoops();

// The elements that the indices name.
struct LookupLoop {
  const char* way;
  uint64_t (*managed)(managedVector<uint64_t>&, const uint32_t* indices, size_t count);
};
uint64_t LookUpPlain(const std::vector<uint64_t>& x, const uint32_t* indices, size_t count);
const std::vector<LookupLoop>& LookupLoops();

// For each element of `large` that is looked up, kHotUses of `hot`.
constexpr size_t kHotUses = 8;
struct HotIndices {
  const uint32_t* large;
  const uint32_t* hot;  // kHotUses times as many
  size_t count;
};
struct HotLoop {
  const char* way;
  uint64_t (*managed)(managedVector<uint64_t>& large, managedVector<uint64_t>& hot, const HotIndices& indices);
};
uint64_t LookUpHotPlain(const std::vector<uint64_t>& large, const std::vector<uint64_t>& hot, const HotIndices& indices);
const std::vector<HotLoop>& HotLoops();

// One is added to each element; the sum of what they were.
uint64_t IncrementPlain(std::vector<uint64_t>& x);
uint64_t IncrementByBlocks(managedVector<uint64_t>& x);

// n elements, behind those that there are.
void PushBackPlain(std::vector<uint64_t>& x, size_t n);
void PushBackManaged(managedVector<uint64_t>& x, size_t n);

struct SortLoop {
  const char* way;
  void (*managed)(managedVector<uint64_t>&);
};
void SortPlain(std::vector<uint64_t>& x);
const std::vector<SortLoop>& SortLoops();

}  // namespace ramspan::bench
