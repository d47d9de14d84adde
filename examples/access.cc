// access: how data is used decides what is moved. Three experiments of Rambrain's papers (arXiv 1510.06358, figures 4, 5 and
// 7), each with a check of every element:
//   const      the same sweeps with mutable and with const pulls: what was only read is not written again
//   decay      ordered sweeps, a random phase, ordered sweeps: how soon read-ahead finds the order again
//   readahead  a computation over ordered data: without read-ahead, with adhereTos made one ahead by hand, automatic
#include <ramspan/managed_ptr.h>
#include <ramspan/runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

using ramspan::adhereTo;
using ramspan::managedPtr;

namespace {

constexpr size_t kChunk = 64 << 10;  // bytes
constexpr size_t kElements = kChunk / sizeof(uint64_t);

using Data = std::vector<managedPtr<uint64_t>>;

double Seconds(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Data Make(size_t chunks) {
  Data data;
  for (size_t i = 0; i < chunks; ++i) data.emplace_back(kElements, uint64_t{i});
  return data;
}

// Whether every element is its chunk's number plus `added`.
bool IsRight(const Data& data, uint64_t added) {
  bool right = true;
  for (size_t i = 0; i < data.size(); ++i) {
    ADHERETOLOCCONST(uint64_t, data[i], p);
    for (size_t k = 0; k < kElements; ++k) right &= p[k] == i + added;
  }
  return right;
}

bool Const(size_t chunks) {
  Data data = Make(chunks);
  bool right = IsRight(data, 0);
  const auto sweeps = [&](const char* name, auto&& sweep) {
    sweep();
    const ramspan::Statistics before = ramspan::GetStatistics();
    const double seconds = Seconds([&] {
      for (int i = 0; i < 5; ++i) sweep();
    });
    const uint64_t out = ramspan::GetStatistics().bytes_out - before.bytes_out;
    std::printf("%-8s 5 sweeps %6.3f s, %7.1f MiB written to swap\n", name, seconds, static_cast<double>(out) / 1048576);
    return out;
  };
  uint64_t sum = 0;
  sweeps("mutable", [&] {
    for (auto& one : data) {
      ADHERETOLOC(uint64_t, one, p);
      sum += p[0];
    }
  });
  const uint64_t out = sweeps("const", [&] {
    for (auto& one : data) {
      ADHERETOLOCCONST(uint64_t, one, p);
      sum += p[0];
    }
  });
  std::printf("sum %llu\n", static_cast<unsigned long long>(sum));
  // At most what the mutable sweeps have left changed in memory: that is written once, whenever it leaves.
  return right && out <= ramspan::GetStatistics().memory_limit && IsRight(data, 0);
}

bool Decay(size_t chunks) {
  Data data = Make(chunks);
  std::mt19937 random(3);
  // Of the pulls that did not find their data in memory by themselves, how many found it fetched ahead.
  const auto visits = [&](const char* name, auto&& which) {
    const ramspan::Statistics before = ramspan::GetStatistics();
    for (size_t i = 0; i < chunks; ++i) {
      ADHERETOLOC(uint64_t, data[which(i)], p);
      for (size_t k = 0; k < kElements; ++k) p[k] += 0;
    }
    const ramspan::Statistics after = ramspan::GetStatistics();
    std::printf("%-8s %5.1f %% of the pulls had to wait for their data\n", name,
                100.0 * static_cast<double>(after.misses - before.misses) / static_cast<double>(chunks));
  };
  const auto ordered = [](size_t i) { return i; };
  const auto anywhere = [&](size_t) { return random() % chunks; };
  for (int i = 0; i < 3; ++i) visits("ordered", ordered);
  for (int i = 0; i < 2; ++i) visits("random", anywhere);
  for (int i = 0; i < 3; ++i) visits("ordered", ordered);
  return IsRight(data, 0);
}

bool ReadAhead(size_t chunks) {
  Data data = Make(chunks);
  uint64_t added = 0;
  const auto compute = [](uint64_t* p) {
    for (int round = 0; round < 8; ++round) {
      for (size_t k = 0; k < kElements; ++k) p[k] += round == 0;
    }
  };
  const auto plain = [&] {
    for (auto& one : data) {
      adhereTo<uint64_t> glue(one, false);  // false: fetched by the pull
      compute(glue);
    }
  };
  const auto explicitly = [&] {
    auto next = std::make_unique<adhereTo<uint64_t>>(data[0]);
    for (size_t i = 0; i < chunks; ++i) {
      const std::unique_ptr<adhereTo<uint64_t>> now = std::move(next);
      if (i + 1 < chunks) next = std::make_unique<adhereTo<uint64_t>>(data[i + 1]);  // starts to come while we compute
      compute(*now);
    }
  };
  const auto timed = [&](const char* name, bool automatic, auto&& sweep) {
    ramspan::SetPreemptive(automatic, automatic);
    sweep();
    const double seconds = Seconds([&] {
      for (int i = 0; i < 3; ++i) sweep();
    });
    added += 4;
    std::printf("%-10s 3 sweeps %6.3f s\n", name, seconds);
  };
  timed("off", false, plain);
  timed("explicit", false, explicitly);
  timed("automatic", true, plain);
  return IsRight(data, added);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string what = argc > 1 ? argv[1] : "";
  const size_t mib = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 64;
  const size_t chunks = (mib << 20) / kChunk;
  if ((what != "const" && what != "decay" && what != "readahead") || chunks == 0) {
    std::fprintf(stderr, "usage: access const|decay|readahead [MIB]\n");
    return 2;
  }
  const bool right = what == "const" ? Const(chunks) : what == "decay" ? Decay(chunks) : ReadAhead(chunks);
  std::printf("%zu MiB in chunks of 64 KiB, limit %.0f MiB: %s\n", mib, static_cast<double>(ramspan::MemoryLimit()) / 1048576,
              right ? "every element right" : "WRONG");
  return right ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "access: %s\n", e.what());
  return 1;
}
