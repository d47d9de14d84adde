// `ramspan report`: a table for people from the statistics (one JSON object a process) that runs leave, and what to change. Stateless.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace ramspan {

// One column of the table: the sum over some processes.
struct ReportColumn {
  std::string name;
  std::vector<std::string> files;
  bool named = false;   // by --name
  bool advised = true;  // files without names are one job, so advice is given for their total only
};

// The columns that the arguments of `ramspan report` ask for.
Result<std::vector<ReportColumn>> ParseReportArguments(const std::vector<std::string>& arguments);

// Reads the files: the table, then for each advised column what to change. kInvalidArgument names a file that is missing or not such an object.
Result<std::string> ReportText(const std::vector<ReportColumn>& columns);

}  // namespace ramspan
