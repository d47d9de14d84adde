// `ramspan report`: a table for people from the statistics (one JSON object a process) that runs leave. Stateless.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace ramspan {

// One column of the table: the sum over some processes.
struct ReportColumn {
  std::string name;
  std::vector<std::string> files;
};

// The columns that the arguments of `ramspan report` ask for.
Result<std::vector<ReportColumn>> ParseReportArguments(const std::vector<std::string>& arguments);

// Reads the files. kInvalidArgument names a file that is missing or not such an object.
Result<std::string> ReportTable(const std::vector<ReportColumn>& columns);

}  // namespace ramspan
