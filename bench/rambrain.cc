#include "bench/rambrain.h"

#include <stdexcept>

namespace ramspan::bench {
namespace {

struct Experiment {
  const char* name;
  const char* what;
  bool (*run)(const BenchOptions&);
};

constexpr Experiment kExperiments[] = {
    {"nbody", "library against raw arrays, nothing swapped", RunNbody},
    {"transpose", "three ways, limits and sizes", RunTranspose},
    {"preemptive", "read-ahead over load and chunk size", RunPreemptive},
    {"const", "const against mutable pulls", RunConst},
    {"decay", "hit ratio after a random phase", RunDecay},
    {"random", "cost of read-ahead in random access", RunRandomCost},
    {"kernel", "the kernel's swap in an equal cgroup (as root)", RunKernelSwap},
};

}  // namespace

std::string ExperimentsHelp() {
  std::string help = "all, or one of";
  for (const Experiment& e : kExperiments) help += std::string("\n  ") + e.name + ": " + e.what;
  return help;
}

std::vector<std::string> ChosenExperiments(const BenchOptions& options) {
  std::vector<std::string> chosen, all;
  for (const Experiment& e : kExperiments) {
    all.emplace_back(e.name);
    if (options.experiment == e.name || options.experiment == "all") chosen.emplace_back(e.name);
  }
  if (!chosen.empty()) return chosen;
  std::string names = "all";
  for (const std::string& name : all) names += ", " + name;
  throw std::runtime_error("--experiment is one of " + names);
}

int RunExperiment(const BenchOptions& options) {
  for (const Experiment& e : kExperiments) {
    if (options.only == e.name) return e.run(options) ? 0 : 1;
  }
  throw std::runtime_error("there is no experiment " + options.only);
}

}  // namespace ramspan::bench
