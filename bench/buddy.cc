// buddy: the experiment of the report on a parallel binary buddy allocator: allocators of several sizes are filled with chunks by several
// threads until they are full, and emptied again; nobody touches the chunks, as there. The report's two (a mutex, or a spinlock, a level), ours, `new`, mimalloc and jemalloc, in
// turns in one process.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/buddy_allocators.h"
#include "bench/managed_chunk.h"
#include "bench/plot.h"
#include "bench/process.h"
#include "bench/report.h"
#include "common/units.h"

namespace ramspan::bench {
namespace {

constexpr uint32_t kMixedUnitsMax = 16;  // mixed chunks: 1 to so many units, each number as often as the others
constexpr size_t kPage = 4096;

struct Setting {
  uint64_t capacity;
  uint64_t unit;
  bool mixed;
  unsigned threads;
  bool touch;
};

// What one turn of one allocator was.
struct Turn {
  double fill_s = 0, empty_s = 0;  // from the first thread's begin to the last one's end
  uint64_t allocations = 0;
  uint64_t asked_bytes = 0, taken_bytes = 0;
  bool right = true;
};

// One thread's chunks, and its clock.
class Filler {
 public:
  Filler(const Setting& setting, unsigned thread) : setting_(setting), share_(setting.capacity / setting.threads), random_(thread + 1) {
    // One thread may get all of it. Written, so that the benchmark's own page faults are not measured.
    chunks_.resize(setting.capacity / setting.unit + 1, {nullptr, 1});
    sizes_.resize(1024);
    for (uint32_t& size : sizes_) size = static_cast<uint32_t>((setting.mixed ? 1 + random_() % kMixedUnitsMax : 1) * setting.unit);
  }

  void Fill(Contestant* allocator) {
    begin_ = Now();
    const uint64_t most = allocator->has_capacity() ? UINT64_MAX : share_;
    count_ = 0;
    for (asked_ = 0; asked_ < most;) {
      const uint32_t bytes = sizes_[count_ % sizes_.size()];
      auto* const at = static_cast<char*>(allocator->Allocate(bytes));
      if (at == nullptr) break;
      if (setting_.touch) {
        for (size_t i = 0; i < bytes; i += kPage) const_cast<volatile char*>(at)[i] = 1;
      }
      chunks_[count_++] = {at, bytes};
      asked_ += bytes;
    }
    end_ = Now();
  }
  // In the order of their making.
  void Empty(Contestant* allocator) {
    begin_ = Now();
    for (size_t i = 0; i < count_; ++i) allocator->Free(chunks_[i].first, chunks_[i].second);
    end_ = Now();
  }
  uint64_t TakenBytes(const Contestant& allocator) const {
    uint64_t sum = 0;
    for (size_t i = 0; i < count_; ++i) sum += allocator.TakenFor(chunks_[i].first, chunks_[i].second);
    return sum;
  }
  void AppendTo(std::vector<std::pair<char*, uint32_t>>* all) const {
    all->insert(all->end(), chunks_.begin(), chunks_.begin() + static_cast<ptrdiff_t>(count_));
  }

  double begin() const { return begin_; }
  double end() const { return end_; }
  uint64_t count() const { return count_; }
  uint64_t asked() const { return asked_; }

 private:
  const Setting& setting_;
  const uint64_t share_;
  std::minstd_rand random_;
  std::vector<uint32_t> sizes_;  // bytes
  std::vector<std::pair<char*, uint32_t>> chunks_;
  size_t count_ = 0;
  uint64_t asked_ = 0;
  double begin_ = 0, end_ = 0;
};

double Seconds(const std::vector<std::unique_ptr<Filler>>& fillers) {
  double begin = fillers[0]->begin(), end = fillers[0]->end();
  for (const auto& filler : fillers) {
    begin = std::min(begin, filler->begin());
    end = std::max(end, filler->end());
  }
  return end - begin;
}

bool NoneOverlap(const std::vector<std::unique_ptr<Filler>>& fillers) {
  std::vector<std::pair<char*, uint32_t>> all;
  for (const auto& filler : fillers) filler->AppendTo(&all);
  std::sort(all.begin(), all.end());
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i - 1].first + all[i - 1].second > all[i].first) return false;
  }
  return true;
}

Turn FillAndEmpty(Contestant* allocator, const Setting& setting, const std::vector<std::unique_ptr<Filler>>& fillers) {
  Turn turn;
  bool counts = false;
  std::barrier filled(static_cast<ptrdiff_t>(setting.threads), [&]() noexcept {
    if (!counts) return;
    turn.fill_s = Seconds(fillers);
    for (const auto& filler : fillers) {
      turn.allocations += filler->count();
      turn.asked_bytes += filler->asked();
      turn.taken_bytes += filler->TakenBytes(*allocator);
    }
    turn.right = NoneOverlap(fillers);
  });
  std::barrier ready(static_cast<ptrdiff_t>(setting.threads));
  const auto fill_and_empty = [&](Filler* mine) {
    ready.arrive_and_wait();
    mine->Fill(allocator);
    filled.arrive_and_wait();
    mine->Empty(allocator);
  };
  // Twice, and the second time counts: each begins it with what it has kept of its own first time.
  const auto body = [&](Filler* mine) {
    fill_and_empty(mine);
    ready.arrive_and_wait();
    if (mine == fillers[0].get()) counts = true;
    fill_and_empty(mine);
  };
  allocator->BeginTurn();
  std::vector<std::thread> others;
  for (unsigned t = 1; t < setting.threads; ++t) others.emplace_back(body, fillers[t].get());
  body(fillers[0].get());
  for (std::thread& t : others) t.join();
  allocator->EndTurn();
  turn.empty_s = Seconds(fillers);
  turn.right = turn.right && allocator->IsWhole();
  return turn;
}

// The medians of one allocator.
struct Score {
  std::string name;
  bool has_capacity = false;
  double fill_ms = 0, gb_s = 0, allocate_ns = 0, free_ns = 0;
  double internal = 0, external = 0;  // shares of what was taken, and of the capacity
  std::vector<int> waiting;           // by level: the most of all turns
  bool right = true;
};

Score ScoreOf(const Contestant& allocator, const Setting& setting, const std::vector<Turn>& turns) {
  Score score{.name = allocator.name(), .has_capacity = allocator.has_capacity()};
  std::vector<double> fill, gb_s, allocate, free, internal, external;
  for (const Turn& turn : turns) {
    const auto n = static_cast<double>(turn.allocations);
    const auto taken = static_cast<double>(turn.taken_bytes);
    fill.push_back(turn.fill_s * 1e3);
    gb_s.push_back(GbPerSecond(static_cast<double>(turn.asked_bytes), turn.fill_s));
    allocate.push_back(turn.fill_s * 1e9 / n);
    free.push_back(turn.empty_s * 1e9 / n);
    internal.push_back((taken - static_cast<double>(turn.asked_bytes)) / taken);
    external.push_back(1 - taken / static_cast<double>(setting.capacity));
    score.right = score.right && turn.right;
  }
  score.fill_ms = Median(fill);
  score.gb_s = Median(gb_s);
  score.allocate_ns = Median(allocate);
  score.free_ns = Median(free);
  score.internal = Median(internal);
  score.external = Median(external);
  return score;
}

std::vector<Score> Compare(const Setting& setting, int repetitions, std::vector<std::string>* missing) {
  const auto allocators = AllContestants(setting.capacity, setting.unit, missing);
  std::vector<std::unique_ptr<Filler>> fillers;
  for (unsigned t = 0; t < setting.threads; ++t) fillers.push_back(std::make_unique<Filler>(setting, t));
  std::vector<std::vector<Turn>> turns(allocators.size());
  std::vector<std::vector<int>> waiting(allocators.size());
  for (int i = 0; i < repetitions; ++i) {
    for (size_t a = 0; a < allocators.size(); ++a) {
      turns[a].push_back(FillAndEmpty(allocators[a].get(), setting, fillers));
      const std::vector<int> most = allocators[a]->TakeWaitingMax();
      waiting[a].resize(most.size());
      for (size_t k = 0; k < most.size(); ++k) waiting[a][k] = std::max(waiting[a][k], most[k]);
    }
  }
  std::vector<Score> scores;
  for (size_t a = 0; a < allocators.size(); ++a) {
    scores.push_back(ScoreOf(*allocators[a], setting, turns[a]));
    scores.back().waiting = waiting[a];
  }
  return scores;
}

std::string TitleOf(const Setting& s) {
  return FormatBytes(s.capacity) + " in " + (s.mixed ? "mixed chunks of 1 to " + std::to_string(kMixedUnitsMax) + " x " : "equal chunks of ") +
         FormatBytes(s.unit) + ", " + std::to_string(s.threads) + (s.threads == 1 ? " thread" : " threads") + (s.touch ? ", each page touched" : ", untouched");
}

std::string Percent(double share) { return Fixed(100 * share, 1) + "%"; }

void Print(const BenchOptions& options, const Setting& setting, const std::vector<Score>& scores) {
  if (!options.json) {
    std::printf("buddy: %s\n  %-20s %9s %8s %9s %8s %9s %9s   %s\n", TitleOf(setting).c_str(), "", "fill ms", "GB/s", "ns/alloc", "ns/free", "internal",
                "external", "most requests waiting, level 0 first");
  }
  for (const Score& s : scores) {
    if (options.json) {
      Json result = {{"allocator", s.name}, {"capacity", setting.capacity}, {"unit", setting.unit}, {"mixed", setting.mixed},
                     {"threads", setting.threads}, {"touched", setting.touch}, {"fill_ms", s.fill_ms}, {"gb_s", s.gb_s},
                     {"allocate_ns", s.allocate_ns}, {"free_ns", s.free_ns}, {"internal", s.internal}, {"right", s.right}};
      if (s.has_capacity) result["external"] = s.external;
      if (!s.waiting.empty()) result["waiting_max"] = s.waiting;
      PrintJson(options, std::move(result));
      continue;
    }
    std::string waiting;
    for (const int most : s.waiting) waiting += (waiting.empty() ? "" : " ") + std::to_string(most);
    std::printf("  %-20s %9.2f %8.1f %9.1f %8.1f %9s %9s   %s%s\n", s.name.c_str(), s.fill_ms, s.gb_s, s.allocate_ns, s.free_ns, Percent(s.internal).c_str(),
                s.has_capacity ? Percent(s.external).c_str() : "-", s.waiting.empty() ? "-" : waiting.c_str(), s.right ? "" : "   WRONG");
  }
  if (!options.json) std::printf("\n");
  std::fflush(stdout);
}

struct Result {
  Setting setting;
  std::vector<Score> scores;
};

const char* const kLegend = "set key outside bottom center horizontal maxrows 3\n";

// The report's figure 1: what a fill takes, over the sizes.
Figure SpeedFigure(const std::vector<Result>& results) {
  Figure figure{"buddy_speed", "Filling an allocator with equal chunks", {}};
  for (const Result& r : results) {
    if (r.setting.mixed) continue;
    if (figure.panels.empty() || r.setting.capacity <= results[0].setting.capacity) {
      figure.panels.push_back({std::to_string(r.setting.threads) + (r.setting.threads == 1 ? " thread" : " threads"), "MiB", "ms", {}, {}, {}, true, true, kLegend});
      for (const Score& s : r.scores) figure.panels.back().curves.push_back({s.name, {}});
    }
    Panel& panel = figure.panels.back();
    panel.x.push_back(static_cast<double>(r.setting.capacity) / (1 << 20));
    for (size_t i = 0; i < r.scores.size(); ++i) panel.curves[i].y.push_back(r.scores[i].fill_ms);
  }
  return figure;
}

// Figure 2: speed, where `new` is 1. Of the largest allocator.
Figure NormalizedFigure(const std::vector<Result>& results) {
  Figure figure{"buddy_normalized", "Allocations a second, as a multiple of new's", {}};
  for (const bool mixed : {false, true}) {
    Panel panel{mixed ? "mixed chunks" : "equal chunks", "threads", "times new", {}, {}, {}, false, false, "set key outside bottom center horizontal maxrows 3\nset logscale y\nset yrange [*:*]\nset style histogram clustered\n"};
    for (const Result& r : results) {
      if (r.setting.mixed != mixed || r.setting.capacity != results.back().setting.capacity) continue;
      const auto is_new = [](const Score& s) { return s.name == "new"; };
      const double base = std::find_if(r.scores.begin(), r.scores.end(), is_new)->allocate_ns;
      panel.categories.push_back(std::to_string(r.setting.threads));
      panel.curves.resize(r.scores.size());
      for (size_t i = 0; i < r.scores.size(); ++i) {
        panel.curves[i].name = r.scores[i].name;
        panel.curves[i].y.push_back(base / r.scores[i].allocate_ns);
      }
    }
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

// Figure 3: the high-water marks of requests that wait, by level. Of the largest allocator.
Figure WaitingFigure(const std::vector<Result>& results) {
  Figure figure{"buddy_waiting", "The most requests that waited on a level at one time, equal chunks", {}};
  for (const size_t scheme : {size_t{0}, size_t{1}}) {
    Panel panel{results[0].scores[scheme].name, "level (0: one unit)", "requests", {}, {}, {}, false, false, "set yrange [0:*]\n"};
    for (const Result& r : results) {
      if (r.setting.mixed || r.setting.capacity != results.back().setting.capacity) continue;
      Curve curve{std::to_string(r.setting.threads) + (r.setting.threads == 1 ? " thread" : " threads"), {}};
      panel.x.clear();
      for (const int most : r.scores[scheme].waiting) {
        panel.x.push_back(static_cast<double>(panel.x.size()));
        curve.y.push_back(most);
      }
      panel.curves.push_back(std::move(curve));
    }
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

}  // namespace

int RunBuddy(const BenchOptions& options) {
  if (options.only == "setup") return PrintSetup(options);
  bool right = true;
  std::vector<std::string> missing;
  std::vector<Result> results;
  for (const unsigned threads : options.thread_counts) {
    for (const uint64_t capacity : options.sizes) {
      for (const bool mixed : {false, true}) {
        missing.clear();
        const Setting setting{capacity, options.chunk, mixed, threads, options.touch};
        results.push_back({setting, Compare(setting, options.repetitions, &missing)});
        Print(options, setting, results.back().scores);
        for (const Score& score : results.back().scores) right = right && score.right;
      }
    }
  }
  for (const std::string& line : missing) std::fprintf(stderr, "%s\n", line.c_str());
  Draw(options.plots, SpeedFigure(results));
  Draw(options.plots, NormalizedFigure(results));
  Draw(options.plots, WaitingFigure(results));
  MeasureSetup(options, {SelfPath(), "buddy"});
  MeasureManagedChunks(options);
  return right ? 0 : 1;
}

}  // namespace ramspan::bench
