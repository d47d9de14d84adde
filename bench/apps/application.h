// Applications of `ramspan bench apps`: what one is asked for, and what it tells. Each has a file, which knows nothing of limits, tiers
// and processes; bench/apps/apps.cc runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bench/parallel.h"
#include "common/checksum.h"

namespace ramspan::bench {

struct AppOptions {
  uint64_t data = 0;  // bytes, about; 0: the application's own choice
  bool full = false;  // the paper's size instead
  int threads = 1;
  int rank = 0, ranks = 1;  // of MPI processes that share the data
};

// What a run will take.
struct AppShape {
  std::string size;     // for people: "2304 x 2304 doubles, tiles of 128 x 128"
  uint64_t data = 0;    // bytes of all blocks of all ranks
  uint64_t pinned = 0;  // bytes that one thread views at a time, at most
};

// A number for all bits of the result, and two about its values, by which a result of another order of operations is compared.
// Each is a sum over blocks, so ranks may add theirs up.
struct Digest {
  uint64_t bits = 0;
  double weighted = 0;   // sum of w(i) x(i), w between -1 and 1, different for neighbours
  double magnitude = 0;  // sum of |x(i)|

  void AddBlock(uint64_t block, const void* bytes, size_t size) { bits += Mixed(Checksum(bytes, size) ^ Mixed(block + 1)); }
  // x(first), x(first + 1), ...
  template <typename T>
  void AddValues(uint64_t first, std::span<const T> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<double>(values[i]);
      weighted += static_cast<double>(static_cast<int64_t>(Mixed(first + i))) * 0x1p-63 * value;
      magnitude += value < 0 ? -value : value;
    }
  }
  void Add(const Digest& other) {
    bits += other.bits;
    weighted += other.weighted;
    magnitude += other.magnitude;
  }
  // splitmix64: also what applications make their data of, because any part of it may be made alone.
  static uint64_t Mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
};

// 0 to 1, by a number.
inline double Uniform(uint64_t i) { return static_cast<double>(Digest::Mixed(i) >> 11) * 0x1p-53; }

// One version of an application with its data. The main thread's; may throw what the library throws.
class Application {
 public:
  virtual ~Application() = default;
  virtual void Prepare() {}  // before each Run: what that needs anew
  virtual void Run() = 0;    // what is timed
  // Of the result. REQUIRES: Run.
  virtual Digest Result() = 0;
};

struct AppKind {
  const char* name;
  const char* what;    // for --help
  const char* source;  // paper and figure
  bool has_ranks;      // whether the data may be shared by MPI ranks
  AppShape (*shape)(const AppOptions&);
  std::unique_ptr<Application> (*in_core)(const AppOptions&);
  std::unique_ptr<Application> (*out_of_core)(const AppOptions&);
  // As one writes it who thinks of memory only: no blocks, plain loops or the usual library. Says whether the in-core version, which has
  // the blocks, is an honest measure. Null: there is no other way to write it.
  std::unique_ptr<Application> (*straightforward)(const AppOptions&);
};

// The storage versions of a class template.
template <template <typename> class App, typename Storage>
std::unique_ptr<Application> MakeApp(const AppOptions& options) {
  return std::make_unique<App<Storage>>(options);
}

struct Nothing {};
// visit(i) for each i below `count`, threads having a range each; exceptions come out of it.
template <typename Visit>
void ForAll(int threads, size_t count, const Visit& visit) {
  InParallel<Nothing>(threads, count, [&](size_t i, Nothing*) { visit(i); });
}

// sum of part(i, &digest).
template <typename Visit>
Digest DigestOf(int threads, size_t count, const Visit& visit) {
  Digest all;
  for (const Digest& part : InParallel<Digest>(threads, count, visit)) all.Add(part);
  return all;
}

extern const AppKind kMatrixMultiply, kFft, kStencil, kHeat, kLatticeBoltzmann, kBarnesHut, kSort, kPageRank;

}  // namespace ramspan::bench
