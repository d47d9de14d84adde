// OutputFilter: takes the lines that hydra's mpiexec adds to a job's output out of the stream and passes everything
// else on byte for byte. Only a line's beginning that may still become such an addition is held back, until it is
// decided or Flush() is called. What was taken out is kept, for the case that nobody knows a better explanation.
//
// Thread-safety: none; one stream, one filter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ramspan {

class OutputFilter {
 public:
  // kBanner: the "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES" block on stdout, with the newline
  // that hydra puts before it.
  // kComplaints: lines on stderr that begin with "[mpiexec@" or "[proxy:", about connections that broke off.
  enum class Kind { kBanner, kComplaints };
  explicit OutputFilter(Kind kind);

  // Appends to `out` what of `bytes` (and of what was held back) is the job's own.
  void Feed(std::string_view bytes, std::string& out);
  // Gives up on a pending decision: the stream has paused.
  void Flush(std::string& out);
  // The stream has ended.
  void Finish(std::string& out);
  bool has_pending() const { return !taking_ && !held_.empty(); }
  // Nothing but the end of a line is held back.
  bool holds_line_end() const { return !taking_ && held_ == "\n"; }
  const std::string& taken() const { return taken_; }

 private:
  void TakeLines(std::string_view bytes, size_t& at);
  bool LineContinuesBanner(const std::string& line);

  const Kind kind_;
  std::vector<std::string> beginnings_;
  bool at_line_start_ = true;
  bool taking_ = false;
  bool rule_seen_ = false;  // the banner's closing rule
  std::string held_;        // a proper beginning of one of beginnings_; or, while taking, the line so far
  std::string taken_;
};

}  // namespace ramspan
