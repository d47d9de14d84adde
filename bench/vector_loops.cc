#include "bench/vector_loops.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ramspan::bench {
namespace {

template <typename T>
T PlainByIndex(const std::vector<T>& x, VectorPart part) {
  T sum{};
  for (size_t i = part.first; i < part.end; ++i) sum += x[i];
  return sum;
}
template <typename T>
T PlainByIterator(const std::vector<T>& x, VectorPart part) {
  return std::accumulate(x.begin() + static_cast<ptrdiff_t>(part.first), x.begin() + static_cast<ptrdiff_t>(part.end), T{});
}

template <typename T>
T ByBlocks(managedVector<T>& x, VectorPart part) {
  const managedVector<T>& read = x;
  T sum{};
  if (part.size() == x.size()) {
    for (const auto block : read.blocks()) {
      for (const T& element : block) sum += element;
    }
    return sum;
  }
  for (size_t b = part.first / x.block_elements(); b * x.block_elements() < part.end; ++b) {
    const auto block = read.block(b);
    for (const T& element : block) sum += element;
  }
  return sum;
}

template <typename T>
T ByView(managedVector<T>& x, VectorPart part) {
  const auto v = x.view();
  T sum{};
  for (size_t i = part.first; i < part.end; ++i) sum += v[i];
  return sum;
}
template <typename T>
T ByConstView(managedVector<T>& x, VectorPart part) {
  const auto v = x.cview();
  T sum{};
  for (size_t i = part.first; i < part.end; ++i) sum += v[i];
  return sum;
}
// From the second pass on a view holds what it comes to.
template <typename T>
T PlainAgain(const std::vector<T>& x, VectorPart part) {
  T sum{};
  for (int pass = 0; pass < kPassesOfView; ++pass) {
    for (size_t i = part.first; i < part.end; ++i) sum += x[i];
    asm volatile("" : : : "memory");  // each pass reads anew
  }
  return sum;
}
template <typename T>
T ByViewAgain(managedVector<T>& x, VectorPart part) {
  const auto v = x.cview();
  T sum{};
  for (int pass = 0; pass < kPassesOfView; ++pass) {
    for (size_t i = part.first; i < part.end; ++i) sum += v[i];
    asm volatile("" : : : "memory");
  }
  return sum;
}
template <typename T>
T ByViewIterator(managedVector<T>& x, VectorPart part) {
  const auto v = x.cview();
  return std::accumulate(v.begin() + static_cast<ptrdiff_t>(part.first), v.begin() + static_cast<ptrdiff_t>(part.end), T{});
}

template <typename T>
T ByIndex(managedVector<T>& x, VectorPart part) {
  T sum{};
  for (size_t i = part.first; i < part.end; ++i) sum += x[i];
  return sum;
}
template <typename T>
T ByIterator(managedVector<T>& x, VectorPart part) {
  return std::accumulate(x.begin() + static_cast<ptrdiff_t>(part.first), x.begin() + static_cast<ptrdiff_t>(part.end), T{});
}

// Spans as long as half a block; `shift` elements are read before the first of them.
template <typename T>
T BySpans(managedVector<T>& x, VectorPart part, size_t shift) {
  const size_t length = std::max<size_t>(1, x.block_elements() / 2);
  T sum{};
  for (size_t at = part.first, next = 0; at < part.end; at = next) {
    next = std::min(part.end, at + (at == part.first && shift > 0 ? shift : length));
    const auto span = std::as_const(x).span(at, next - at);
    for (const T& element : span) sum += element;
  }
  return sum;
}
template <typename T>
T BySpansInBlocks(managedVector<T>& x, VectorPart part) {
  return BySpans(x, part, 0);
}
// Every second one lies in two blocks, and is a copy.
template <typename T>
T BySpansAcross(managedVector<T>& x, VectorPart part) {
  return BySpans(x, part, x.block_elements() / 4);
}

// As a code on a mesh reads the corners of its cells: so many accesses in one body that compilers make calls of those that are not inlined by all means.
constexpr int kCorners = 32;
template <typename T, typename V>
T Corners(const V& v, VectorPart part) {
  constexpr size_t kRow = 71, kPlane = kRow * kRow, kReach = 2 * kPlane + kRow + 4;
  T sum{};
  for (size_t a = part.first; a + kReach < part.end; ++a) {
    const size_t b = a + kRow, c = b + kRow, d = a + kPlane, e = d + kRow, f = e + kRow, g = d + kPlane, h = g + kRow;
    const T low = v[a] * v[b + 1] - v[a + 1] * v[b] + v[a + 2] * v[b + 3] - v[a + 3] * v[b + 2] + v[c] * v[d + 1] - v[c + 1] * v[d] + v[c + 2] * v[d + 3] - v[c + 3] * v[d + 2];
    const T high = v[e] * v[f + 1] - v[e + 1] * v[f] + v[e + 2] * v[f + 3] - v[e + 3] * v[f + 2] + v[g] * v[h + 1] - v[g + 1] * v[h] + v[g + 2] * v[h + 3] - v[g + 3] * v[h + 2];
    sum += low - high;
  }
  return sum;
}
template <typename T>
T PlainCorners(const std::vector<T>& x, VectorPart part) {
  return Corners<T>(x, part);
}
template <typename T>
T CornersByView(managedVector<T>& x, VectorPart part) {
  return Corners<T>(x.cview(), part);
}

// A V is what has operator[]: a vector itself, or a view of one.
template <typename V>
uint64_t LookUp(V& x, const uint32_t* indices, size_t count) {
  uint64_t sum = 0;
  for (size_t k = 0; k < count; ++k) sum += x[indices[k]];
  return sum;
}
template <typename V>
uint64_t LookUpHot(V& large, V& hot, const HotIndices& indices) {
  uint64_t sum = 0;
  for (size_t k = 0; k < indices.count; ++k) {
    sum += large[indices.large[k]];
    for (size_t use = 0; use < kHotUses; ++use) sum += hot[indices.hot[k * kHotUses + use]];
  }
  return sum;
}

}  // namespace

template <typename T>
const std::vector<SumLoop<T>>& SumLoops() {
  static_assert(kPassesOfView == 4, "as its name says below");
  static const std::vector<SumLoop<T>> loops = {
      {"blocks()", LoopTarget::as_std, 1, PlainByIterator<T>, ByBlocks<T>},
      {"view()", LoopTarget::by_element, 1, PlainByIndex<T>, ByView<T>},
      {"cview()", LoopTarget::by_element, 1, PlainByIndex<T>, ByConstView<T>},
      {"cview(), 4 passes", LoopTarget::by_element, kPassesOfView, PlainAgain<T>, ByViewAgain<T>},
      {"cview() iterators", LoopTarget::by_element, 1, PlainByIterator<T>, ByViewIterator<T>},
      {"cview(), corners", LoopTarget::none, kCorners, PlainCorners<T>, CornersByView<T>},
      {"x[i]", LoopTarget::by_access, 1, PlainByIndex<T>, ByIndex<T>},
      {"iterators", LoopTarget::by_access, 1, PlainByIterator<T>, ByIterator<T>},
      {"span() in blocks", LoopTarget::none, 1, PlainByIterator<T>, BySpansInBlocks<T>},
      {"span() across", LoopTarget::none, 1, PlainByIterator<T>, BySpansAcross<T>},
  };
  return loops;
}
template const std::vector<SumLoop<uint64_t>>& SumLoops();
template const std::vector<SumLoop<double>>& SumLoops();

uint64_t LookUpPlain(const std::vector<uint64_t>& x, const uint32_t* indices, size_t count) { return LookUp(x, indices, count); }

const std::vector<LookupLoop>& LookupLoops() {
  static const std::vector<LookupLoop> loops = {
      {"view()[i]",
       [](managedVector<uint64_t>& x, const uint32_t* indices, size_t count) {
         const auto v = x.view();
         return LookUp(v, indices, count);
       }},
      {"cview()[i]",
       [](managedVector<uint64_t>& x, const uint32_t* indices, size_t count) {
         const auto v = x.cview();
         return LookUp(v, indices, count);
       }},
      {"x[i]", [](managedVector<uint64_t>& x, const uint32_t* indices, size_t count) { return LookUp(x, indices, count); }},
  };
  return loops;
}

uint64_t LookUpHotPlain(const std::vector<uint64_t>& large, const std::vector<uint64_t>& hot, const HotIndices& indices) {
  return LookUpHot(large, hot, indices);
}

const std::vector<HotLoop>& HotLoops() {
  static const std::vector<HotLoop> loops = {
      {"cview()[i]",
       [](managedVector<uint64_t>& large, managedVector<uint64_t>& hot, const HotIndices& indices) {
         const auto l = large.cview(), h = hot.cview();
         return LookUpHot(l, h, indices);
       }},
      {"x[i]", [](managedVector<uint64_t>& large, managedVector<uint64_t>& hot, const HotIndices& indices) { return LookUpHot(large, hot, indices); }},
  };
  return loops;
}

uint64_t IncrementPlain(std::vector<uint64_t>& x) {
  uint64_t sum = 0;
  for (uint64_t& element : x) sum += element++;
  return sum;
}
uint64_t IncrementByBlocks(managedVector<uint64_t>& x) {
  uint64_t sum = 0;
  for (auto block : x.blocks()) {
    for (uint64_t& element : block) sum += element++;
  }
  return sum;
}

void PushBackPlain(std::vector<uint64_t>& x, size_t n) {
  for (size_t i = 0; i < n; ++i) x.push_back(i);
}
void PushBackManaged(managedVector<uint64_t>& x, size_t n) {
  for (size_t i = 0; i < n; ++i) x.push_back(i);
}

void SortPlain(std::vector<uint64_t>& x) { std::sort(x.begin(), x.end()); }

const std::vector<SortLoop>& SortLoops() {
  static const std::vector<SortLoop> loops = {
      {"iterators", [](managedVector<uint64_t>& x) { std::sort(x.begin(), x.end()); }},
      {"view() iterators",
       [](managedVector<uint64_t>& x) {
         const auto v = x.view();
         std::sort(v.begin(), v.end());
       }},
      {"span()",
       [](managedVector<uint64_t>& x) {
         const auto span = x.span(0, x.size());
         std::sort(span.begin(), span.end());
       }},
  };
  return loops;
}

}  // namespace ramspan::bench
