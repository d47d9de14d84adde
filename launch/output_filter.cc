#include "launch/output_filter.h"

#include <utility>

namespace ramspan {
namespace {

const std::string& Rule() {
  static const std::string rule(83, '=');
  return rule;
}

bool StartsWith(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

}  // namespace

OutputFilter::OutputFilter(Kind kind) : kind_(kind) {
  if (kind == Kind::kBanner) {
    beginnings_ = {"\n" + Rule() + "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"};
  } else {
    beginnings_ = {"[mpiexec@", "[proxy:"};
  }
}

void OutputFilter::Feed(std::string_view bytes, std::string& out) {
  size_t at = 0;
  while (at < bytes.size()) {
    if (taking_) {
      TakeLines(bytes, at);
      if (taking_) return;
      // The line that ended a banner without belonging to it is the job's; look at it as at any other.
      const std::string line = std::exchange(held_, "");
      at_line_start_ = true;
      if (!line.empty()) Feed(line, out);
      continue;
    }
    if (held_.empty() && (kind_ == Kind::kBanner || !at_line_start_)) {
      const size_t end = bytes.find('\n', at);
      const bool found = end != std::string_view::npos;
      // A banner begins with the end of a line; a complaint after one.
      const size_t stop = !found ? bytes.size() : kind_ == Kind::kBanner ? end : end + 1;
      out.append(bytes.substr(at, stop - at));
      at_line_start_ = found;
      at = stop;
      if (!found || kind_ != Kind::kBanner) continue;
    }
    held_ += bytes[at++];
    bool possible = false;
    for (const std::string& beginning : beginnings_) {
      if (held_ == beginning) {
        taken_ += std::exchange(held_, "");
        taking_ = true;
        rule_seen_ = false;
      } else if (!held_.empty() && StartsWith(beginning, held_)) {
        possible = true;
      }
    }
    if (taking_ || possible) continue;
    const std::string undecided = std::exchange(held_, "");
    at_line_start_ = undecided[0] == '\n';
    out += undecided[0];
    Feed(std::string_view(undecided).substr(1), out);  // the banner's text contains its own beginning
  }
}

void OutputFilter::TakeLines(std::string_view bytes, size_t& at) {
  while (at < bytes.size()) {
    const char c = bytes[at++];
    held_ += c;
    if (c != '\n') continue;
    if (kind_ == Kind::kBanner && !LineContinuesBanner(held_)) {
      taking_ = false;
      return;
    }
    taken_ += std::exchange(held_, "");
    if (kind_ == Kind::kComplaints) {
      taking_ = false;
      at_line_start_ = true;
      return;
    }
  }
}

bool OutputFilter::LineContinuesBanner(const std::string& line) {
  if (!rule_seen_) {
    rule_seen_ = line == Rule() + "\n";
    return rule_seen_ || StartsWith(line, "=   ");
  }
  return StartsWith(line, "YOUR APPLICATION TERMINATED WITH THE EXIT STRING") ||
         StartsWith(line, "This typically refers to a problem with your application") ||
         StartsWith(line, "Please see the FAQ page for debugging suggestions");
}

void OutputFilter::Flush(std::string& out) {
  if (taking_ || held_.empty()) return;
  at_line_start_ = held_.back() == '\n';
  out += std::exchange(held_, "");
}

void OutputFilter::Finish(std::string& out) {
  const bool ours = taking_ && (kind_ == Kind::kComplaints || LineContinuesBanner(held_));
  (ours ? taken_ : out) += std::exchange(held_, "");
  taking_ = false;
}

}  // namespace ramspan
