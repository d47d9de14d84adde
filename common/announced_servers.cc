#include "common/announced_servers.h"

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

namespace ramspan {

Result<int> AnnouncedServers() {
  const char* text = std::getenv("RAMSPAN_SERVERS");
  if (text == nullptr || *text == '\0') return 0;
  const std::string_view all(text);
  // Places of servers outside of the job (the key `servers`): this one has none.
  if (all.find_first_of(":/@") != std::string_view::npos) return 0;
  int servers = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), servers);
  if (error != std::errc() || end != all.data() + all.size() || servers < 0) {
    return InvalidArgument("RAMSPAN_SERVERS is \"" + std::string(all) +
                           "\", not a number of memory servers; `ramspan run -s N` sets it");
  }
  return servers;
}

int AnnouncedRank() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  // `ramspan run` starts a single process without a process manager, also one with servers beside it: a job of one rank.
  return std::getenv("RAMSPAN_RUN_DIR") != nullptr ? 0 : -1;
}

int AnnouncedRankOfSeveral() {
  struct Announcement {
    const char* rank;
    const char* ranks;
    bool both;  // the rank means nothing without their number
  };
  for (const auto& [rank, ranks, both] : {Announcement{"PMI_RANK", "PMI_SIZE", false}, {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", false},
                                          {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", true}}) {
    const char* const text = std::getenv(rank);
    if (text == nullptr) continue;
    const char* const number = std::getenv(ranks);
    return number == nullptr ? (both ? -1 : std::atoi(text)) : std::atoi(number) > 1 ? std::atoi(text) : -1;
  }
  return -1;
}

bool IsKeyOfThisJob(const std::string& key_file) {
  const char* folder = std::getenv("RAMSPAN_RUN_DIR");
  return folder != nullptr && (key_file.starts_with(std::string(folder) + "/") || key_file.starts_with("/dev/fd/"));
}

}  // namespace ramspan
