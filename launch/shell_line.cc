// What --dry-run prints: a plan as lines for a POSIX shell.
#include <string>
#include <string_view>

#include "launch/plan.h"

namespace ramspan {
namespace {

std::string Quoted(const std::string& word) {
  constexpr std::string_view kSafe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kSafe) == std::string::npos) return word;
  std::string quoted = "'";
  for (char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string Line(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& word : argv) line += (line.empty() ? "" : " ") + Quoted(word);
  return line;
}

// Servers outside of the job, in the background, and what tells the application where they are.
std::string ServerLines(const Plan& plan) {
  if (plan.outside_servers == 0) return "";
  std::string lines, places;
  if (plan.servers_by_mpiexec) {
    lines = Line(plan.server_argv) + " &  # each says HOST:PORT\n";
    for (int i = 0; i < plan.outside_servers; ++i) places += (i == 0 ? "HOST:PORT" : ",HOST:PORT");
  } else {
    lines = "RUN=$(mktemp -d)\n";
    for (int i = 0; i < plan.outside_servers; ++i) {
      const std::string place = "$RUN/server-" + std::to_string(i + 1);
      lines += Line(plan.server_argv) + " --socket " + place + " --key-file $RUN/server-key &\n";
      places += (i == 0 ? "" : ",") + place;
    }
  }
  return lines + "RAMSPAN_SERVERS=" + places + " RAMSPAN_TRANSPORT=ofi RAMSPAN_SERVER_KEY_FILE=$RUN/server-key ";
}

}  // namespace

std::string ShellLine(const Plan& plan) {
  std::string line = ServerLines(plan);
  for (const auto& [name, value] : plan.env) line += name + "=" + Quoted(value) + " ";
  return line + Line(plan.argv);
}

}  // namespace ramspan
