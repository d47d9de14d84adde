// The command line of `ramspan run`, by Boost.Program_options, and the texts that teach it. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "launch/plan.h"

namespace ramspan {

// `arguments` are those after "run". Everything after "--" is the application. kInvalidArgument with what to write.
Result<RunOptions> ParseRunOptions(const std::vector<std::string>& arguments);

std::string MainHelp();
std::string RunHelp();
std::string ReportHelp();

}  // namespace ramspan
