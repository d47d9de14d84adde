// rambrain: the experiments of Rambrain's papers (arXiv 1510.06358, figures 4 to 9; SoftwareX 2017, section 5), each in a
// process of its own, with its target, as a table or JSON lines, and as a figure.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"

namespace ramspan::bench {

// For --help: the names, and what each measures.
std::string ExperimentsHelp();
// Those that --experiment asks for. Throws std::runtime_error for a name that there is not.
std::vector<std::string> ChosenExperiments(const BenchOptions& options);
// options.only. The exit status: 1 when data came back wrong. A missed target is no failure: it is what was measured.
int RunExperiment(const BenchOptions& options);

// One each; they return whether all data was right.
bool RunNbody(const BenchOptions& options);
bool RunTranspose(const BenchOptions& options);
bool RunPreemptive(const BenchOptions& options);
bool RunConst(const BenchOptions& options);
bool RunDecay(const BenchOptions& options);
bool RunRandomCost(const BenchOptions& options);
bool RunKernelSwap(const BenchOptions& options);

}  // namespace ramspan::bench
