#include "bench/swap_targets_program.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/load.h"
#include "bench/memory_cgroup.h"
#include "bench/parallel.h"
#include "bench/report.h"
#include "bench/swap_targets_contestants.h"
#include "bench/swap_targets_stores.h"

namespace ramspan::bench {
namespace {

// An access goes on for so long, and then to the end of its pass; but a pass is cut after so long, for there are contestants that would
// take minutes.
struct AccessTimes {
  double access_s, pass_s;
};
constexpr AccessTimes kFullTimes = {2, 8}, kQuickTimes = {0.1, 1};
constexpr int kPassesMax = 5;

class TargetProgram {
 public:
  TargetProgram(ChunkStore* store, const TargetLayout& layout) : store_(*store), layout_(layout), adds_(layout.chunks), sums_(layout.chunks) {}

  double Fill() {
    const double begin = Now();
    InParallel<Part>(layout_.threads, static_cast<size_t>(layout_.threads), [this](size_t t, Part*) {
      for (uint32_t c = layout_.PartBegin(static_cast<int>(t)); c < layout_.PartBegin(static_cast<int>(t) + 1); ++c) {
        store_.Write(c, [&](double* elements) {
          FillField(c, elements, layout_.elements());
          sums_[c] = SumOf(elements, layout_.elements());
        });
      }
    });
    return Now() - begin;
  }

  Json Use(const std::string& access, AccessTimes times) {
    if (access == "sequential") Pass(access, 0, times.pass_s);  // behind the fill nothing has come back yet
    std::vector<double> passes;
    double share = 1;
    const uint64_t moved = store_.BytesMoved();
    const double cpu = ProcessCpuSeconds() + ServerCpuSeconds();
    double own = 0;
    for (double begin = Now(); passes.empty() || (share == 1 && Now() - begin < times.access_s && passes.size() < kPassesMax);) {
      const double start = Now();
      const Passed passed = Pass(access, passes.size() + 1, times.pass_s);
      own += passed.cpu;
      share = static_cast<double>(passed.steps) / layout_.chunks;
      passes.push_back((Now() - start) / share);
    }
    Settle();  // what a mover still does belongs to them
    const double count = static_cast<double>(passes.size()) - 1 + share;
    return {{"access", access}, {"pass_s", passes}, {"passes", count}, {"bytes_moved", store_.BytesMoved() - moved}, {"own_cpu_s", own / count},
            {"all_cpu_s", (ProcessCpuSeconds() + ServerCpuSeconds() - cpu) / count}};
  }

  // Every element, and that each read until now has read what had been written last.
  bool IsRight() {
    std::vector<double> expected(layout_.elements());
    for (uint32_t c = 0; c < layout_.chunks; ++c) {
      FillField(c, expected.data(), expected.size());
      for (uint64_t i = 0; i < adds_[c]; ++i) AddOneTo(expected.data(), expected.size());
      store_.Read(c, [&](const double* elements) { right_ &= std::memcmp(elements, expected.data(), layout_.chunk_bytes) == 0; });
    }
    return right_;
  }

 private:
  struct Part {
    double cpu = 0;
    uint64_t steps = 0;
    bool right = true;
  };
  struct Passed {
    double cpu = 0;  // seconds, of the program's threads
    uint64_t steps = 0;
  };

  // Ends after `seconds`, but not before it has done something.
  Passed Pass(const std::string& access, uint64_t number, double seconds) {
    Passed passed;
    const double end = Now() + seconds;
    const auto visit = [&](size_t t, Part* part) {
      const std::vector<TargetStep> steps = StepsOfPass(access, layout_, static_cast<int>(t), number);
      const double begin = ThreadCpuSeconds();
      for (const TargetStep& step : steps) {
        if (part->steps > 0 && Now() > end) break;
        part->right &= Visit(step);
        ++part->steps;
      }
      part->cpu = ThreadCpuSeconds() - begin;
    };
    for (const Part& part : InParallel<Part>(layout_.threads, static_cast<size_t>(layout_.threads), visit)) {
      passed.cpu += part.cpu;
      passed.steps += part.steps;
      right_ &= part.right;
    }
    return passed;
  }

  bool Visit(const TargetStep& step) {
    const size_t count = layout_.elements();
    const uint32_t c = step.chunk;
    if (step.write) {
      store_.Write(c, [&](double* elements) { AddOneTo(elements, count); });
      ++adds_[c];
      return true;
    }
    double sum = 0;
    store_.Read(c, [&](const double* elements) { sum = SumOf(elements, count); });
    // An older content would be less by one for each element. Rounding is far below that.
    return std::fabs(sum - (sums_[c] + static_cast<double>(adds_[c] * count))) < 0.5;
  }

  ChunkStore& store_;
  const TargetLayout layout_;
  std::vector<uint64_t> adds_;  // by chunk; each is its thread's
  std::vector<double> sums_;    // at the start
  bool right_ = true;
};

std::unique_ptr<ChunkStore> MakeStore(const TargetContestant& contestant, const TargetLayout& layout, const BenchOptions& o) {
  switch (contestant.store) {
    case TargetContestant::Store::kPlain: return MakePlainStore(layout);
    case TargetContestant::Store::kMapped: return MakeMappedStore(layout, o.directory);
    case TargetContestant::Store::kRamspan: return MakeRamspanStore(layout, o);
    case TargetContestant::Store::kPages: return MakePagesStore(layout, o);
    case TargetContestant::Store::kStxxl: return MakeStxxlStore(layout, o.limit, o.directory);
  }
  std::abort();
}

}  // namespace

int RunTargetProgram(const BenchOptions& given) {
  BenchOptions o = given;
  const TargetContestant& contestant = FindTargetContestant(o.only);
  const TargetLayout layout{.chunks = static_cast<uint32_t>(o.data / o.chunk), .chunk_bytes = o.chunk, .threads = o.threads};
  if (!o.in_cgroup.empty()) MemoryCgroup::Enter(o.in_cgroup);
  if (contestant.held) {
    MemoryCgroup::HoldTo(o.in_cgroup, o.limit);
    o.limit = o.limit / 4 * 3;  // for a library that is held: the rest is for the page cache of its files
  }
  const std::unique_ptr<ChunkStore> store = MakeStore(contestant, layout, o);
  TargetProgram program(store.get(), layout);
  Json result = {{"contestant", o.only}, {"fill_s", program.Fill()}, {"accesses", Json::array()}};
  for (const std::string& access : ChosenTargetAccesses(o)) {
    result["accesses"].push_back(program.Use(access, o.quick ? kQuickTimes : kFullTimes));
  }
  const bool right = program.IsRight();
  result["bytes_lent"] = store->BytesLent();
  result["verified"] = right;
  std::printf("%s\n", result.dump().c_str());
  std::fflush(stdout);
  return right ? 0 : 1;
}

}  // namespace ramspan::bench
