// Programs that a benchmark starts: itself once more, gnuplot, mpiexec. Thread-safety: none needed, main thread only.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ramspan::bench {

std::string SelfPath();
// The full path of an executable in PATH.
std::optional<std::string> FindInPath(const std::string& name);

// A program of this project: beside the benchmark in a build folder, in bin/ for an installed one (which is in libexec/ramspan/), or in
// PATH. Empty: nowhere.
std::string FindProgram(const std::string& name);

// Runs `words` (words[0] is a path) in `directory` (empty: here) to its end. Its exit status; 1 when a signal ended it or
// it could not be started, which stderr tells.
int RunToEnd(std::vector<std::string> words, const std::string& directory = "");

// The same, and what it writes to stdout. Not by fork: pages that the child shares for a moment cost each later write a fault.
int RunForOutput(std::vector<std::string> words, std::string* output);

// For argv: pointers into `words`, and a null pointer.
std::vector<char*> Pointers(std::vector<std::string>* words);

}  // namespace ramspan::bench
