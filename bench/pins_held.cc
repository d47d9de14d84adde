// pin, second part: what a pin costs where a thread holds many of them.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "bench/pins_held.h"
#include "bench/report.h"
#include "ramspan/managed_ptr.h"

namespace ramspan::bench {
namespace {

constexpr size_t kHeldElements = 512;  // a chunk of its own

// A thread's objects, and adhereTos of some of them.
class Holder {
 public:
  explicit Holder(size_t held) : held_(held) {
    for (size_t i = 0; i <= held; ++i) managed_.emplace_back(kHeldElements, 0.0);
    pins_.reserve(held);
  }
  // ns a pin, the mean of pins that are all taken and then all ended.
  double AllComeAndGo(uint64_t operations) {
    const uint64_t rounds = operations / held_ + 1;
    const double begin = ThreadCpuSeconds();
    for (uint64_t i = 0; i < rounds; ++i) {
      TakeAll();
      pins_.clear();
    }
    return (ThreadCpuSeconds() - begin) * 1e9 / static_cast<double>(rounds * held_);
  }
  // The same of one more, beside those that are held.
  double OneComesAndGoes(uint64_t operations) {
    TakeAll();
    const managedPtr<double>& one = managed_.back();
    for (int warm = 0; warm < 2000; ++warm) Pull(adhereTo<double>(one));  // wherever its slots come from at first
    const double begin = ThreadCpuSeconds();
    for (uint64_t i = 0; i < operations; ++i) Pull(adhereTo<double>(one));
    const double ns = (ThreadCpuSeconds() - begin) * 1e9 / static_cast<double>(operations);
    pins_.clear();
    return ns;
  }

 private:
  void TakeAll() {
    for (size_t i = 0; i < held_; ++i) Pull(pins_.emplace_back(managed_[i]));
  }
  static void Pull(const adhereTo<double>& glue) {
    const double* p = glue;
    asm volatile("" : : "r"(p) : "memory");
  }

  const size_t held_;
  std::vector<managedPtr<double>> managed_;
  std::vector<adhereTo<double>> pins_;
};

using Measure = double (Holder::*)(uint64_t);

// The mean of threads that begin together.
double Run(std::vector<Holder>* holders, Measure measure, uint64_t operations) {
  std::vector<double> ns(holders->size());
  std::atomic<size_t> ready{0};
  const auto body = [&](size_t t) {
    ready.fetch_add(1);
    while (ready.load() < holders->size()) __builtin_ia32_pause();
    ns[t] = ((*holders)[t].*measure)(operations);
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < holders->size(); ++t) others.emplace_back(body, t);
  body(0);
  for (std::thread& t : others) t.join();
  double sum = 0;
  for (const double one : ns) sum += one;
  return sum / static_cast<double>(ns.size());
}

}  // namespace

void RunPinsHeld(const BenchOptions& options) {
  const uint64_t operations = options.operations / 4 + 1;  // of each of many settings
  for (const unsigned threads : {1u, 2u}) {
    for (const size_t held : {size_t{1}, size_t{4}, size_t{16}, size_t{40}, size_t{55}, size_t{100}, size_t{300}, size_t{1000}, size_t{2000}}) {
      std::vector<Holder> holders;
      for (unsigned t = 0; t < threads; ++t) holders.emplace_back(held);
      std::vector<double> all, one;
      for (int i = 0; i <= options.repetitions; ++i) {
        const double of_all = Run(&holders, &Holder::AllComeAndGo, operations);
        const double of_one = Run(&holders, &Holder::OneComesAndGoes, operations);
        if (i == 0) continue;
        all.push_back(of_all);
        one.push_back(of_one);
      }
      Report(options, {{"threads", threads}, {"held", held}, {"all_ns", Median(all)}, {"one_more_ns", Median(one)}},
             "pin: " + std::to_string(threads) + (threads == 1 ? " thread" : " threads") + " that hold" + (threads == 1 ? "s " : " ") +
                 std::to_string(held) + " pins",
             {{"all of them come and go", Fixed(Median(all), 2) + " ns", "a pin"},
              {"one more comes and goes", Fixed(Median(one), 2) + " ns", "beside them"}});
    }
  }
}

}  // namespace ramspan::bench
