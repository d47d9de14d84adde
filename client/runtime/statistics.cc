#include "client/runtime/statistics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "client/engine/engine.h"
#include "client/front/bundles.h"
#include "client/front/pin_registry.h"
#include "client/runtime/pages_door.h"
#include "client/runtime/stats_json.h"
#include "client/swap/file_swap.h"
#include "client/swap/tiered_swap.h"
#include "common/announced_servers.h"
#include "common/descriptor.h"
#include "common/log.h"
#include "common/own_thread.h"
#include "common/topology.h"
#include "common/units.h"
#include "common/write_signals_blocked.h"

namespace ramspan {

Statistics RuntimeStatistics::Snapshot() const {
  const EngineCounters c = from_.engine->counters();
  const TierStats tiers = from_.swap->stats();
  Statistics s;
  s.memory_limit = c.budget_bytes;
  s.memory_used = c.resident_bytes;
  s.overhead = c.metadata_bytes;
  s.overhead_beside_limit = c.metadata_beside_limit_bytes;
  s.data = c.data_bytes;
  s.chunks = c.chunks;
  s.small_objects = from_.bundles ? from_.bundles->objects() : 0;
  s.swapped = c.swapped_bytes;
  s.swap_used = tiers.slot_bytes_used;
  s.swap_capacity = tiers.slot_bytes_capacity;
  if (from_.files != nullptr && s.swap_capacity != UINT64_MAX) {  // their limit counts, where the tier says how large they are
    const uint64_t limit = from_.files->limit(), so_far = from_.files->stats().slot_bytes_capacity;
    s.swap_capacity = TierStats::SumOfCapacities(s.swap_capacity - std::min(s.swap_capacity, so_far), limit);
  }
  s.bytes_out = tiers.bytes_written;
  s.bytes_in = tiers.bytes_read;
  s.writes = tiers.writes;
  s.reads = tiers.reads;
  s.evictions = c.evictions;
  s.clean_evictions = c.clean_evictions;
  s.clean_bytes = c.clean_bytes;
  s.misses = c.misses;
  s.pulls = PinRegistry::Get().pulls();
  s.preemptive = c.preemptive_bytes;
  return s;
}

std::string RuntimeStatistics::Json(bool ended) const {
  StatsInput in;
  in.ended = ended;
  in.config = from_.config;
  in.counters = from_.engine->counters();
  in.small_objects = from_.bundles ? from_.bundles->objects() : 0;
  in.element_uses = PinRegistry::Get().element_uses();
  in.rank = rank_.load(std::memory_order_relaxed);
  in.pages = GetPageStatistics();
  in.pages_above = detail::PagesAboveOfUnmodified();
  in.pages_cramped = detail::PagesCramped();
  in.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - from_.started).count();
  for (size_t i = 0; i < from_.swap->tier_count(); ++i) {  // the program may have added several of a kind
    const SwapTier& tier = from_.swap->tier(i);
    const std::string name = tier.capabilities().name;
    std::vector<ServerStats> servers = tier.servers();
    std::move(servers.begin(), servers.end(), std::back_inserter(in.servers));
    const auto same = std::find_if(in.tiers.begin(), in.tiers.end(), [&](const auto& t) { return t.first == name; });
    if (same == in.tiers.end()) {
      in.tiers.push_back({name, tier.stats()});
    } else {
      same->second += tier.stats();
    }
  }
  return FormatStats(in);
}

namespace {

// 0, or errno.
int WriteWhole(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    done += static_cast<size_t>(n);
  }
  return 0;
}

}  // namespace

// The same error at the start and at the end is one mistake.
void RuntimeStatistics::WarnUnwritable(const std::string& path, int error) {
  if (told_.exchange(error, std::memory_order_relaxed) == error) return;
  const char* const remedy = error == ENOENT  ? "; make its folder first, or name another file"
                             : error == ENXIO ? ""
                                              : "; name a file that can be written";
  LogWarning("cannot write statistics to %s (key stats, RAMSPAN_STATS): %s%s", path.c_str(),
             error == ENXIO ? "it is a fifo that nobody reads; start its reader first" : std::strerror(error), remedy);
}

void RuntimeStatistics::CheckFile() {
  if (from_.config->stats.empty()) return;
  const std::string path = ExpandStatsPath(from_.config->stats, rank_.load(std::memory_order_relaxed));
  if (char* const folder = getcwd(nullptr, 0)) {
    folder_ = std::string(folder) + "/";
    free(folder);
  }
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat facts;
  const bool exists = stat(path.c_str(), &facts) == 0;
  if (exists && S_ISDIR(facts.st_mode)) return WarnUnwritable(path, EISDIR);
  if (access(exists ? path.c_str() : directory.c_str(), exists ? W_OK : W_OK | X_OK) != 0) WarnUnwritable(path, errno);
}

std::string RuntimeStatistics::FilePath() const {
  if (from_.config->stats.empty()) return {};
  std::string path = ExpandStatsPath(from_.config->stats, rank_.load(std::memory_order_relaxed));
  return path[0] == '/' ? path : folder_ + path;
}

// As another file that then takes its name, with its rights. kNotAtAll: that cannot be, because it is no file of this user's only, or its folder takes no other one; nothing was changed, and errno says nothing.
RuntimeStatistics::Written RuntimeStatistics::Exchange(const std::string& path, const std::string& text) {
  struct stat facts;
  const bool exists = lstat(path.c_str(), &facts) == 0;
  if (exists ? !S_ISREG(facts.st_mode) || facts.st_nlink != 1 || facts.st_uid != geteuid() || access(path.c_str(), W_OK) != 0 : errno != ENOENT) return Written::kNotAtAll;
  const std::string part = path.substr(0, path.rfind('/') + 1) + ".ramspan-stats." + std::to_string(getpid()) + ".part";
  const int fd = BeyondPrograms(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (fd < 0) return Written::kNotAtAll;
  int error = exists && fchmod(fd, facts.st_mode & 07777) != 0 ? errno : WriteWhole(fd, text);
  if (error == 0 && fstat(fd, &facts) != 0) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) {
    own_file_ = {facts.st_dev, facts.st_ino};
    return Written::kAll;
  }
  unlink(part.c_str());
  errno = error;
  return Written::kNotAll;
}

void RuntimeStatistics::WriteFile() {
  const std::string path = FilePath();
  if (path.empty()) return;
  const std::string text = Json(/*ended=*/true) + "\n";  // before the file is emptied: there may be no heap for it
  const WriteSignalsBlocked blocked;
  const Written written = Exchange(path, text);
  if (written == Written::kAll) return;
  int error = errno;
  if (written == Written::kNotAtAll) {
    const int fd = BeyondStandardStreams(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
    if (fd < 0) return WarnUnwritable(path, errno);
    error = WriteWhole(fd, text);
    if (close(fd) != 0 && error == 0) error = errno;
  }
  if (error != 0) LogWarning("statistics in %s are not complete: %s", path.c_str(), std::strerror(error));
}

void RuntimeStatistics::WriteFileNowAndThen() {
  constexpr std::chrono::steady_clock::duration kSeldom = std::chrono::minutes(1);
  const auto now = std::chrono::steady_clock::now() - from_.started;
  if (now < next_write_) return;
  while (next_write_ <= now) next_write_ += std::min(next_write_, kSeldom);
  const std::string path = FilePath();
  if (path.empty()) return;
  struct stat facts;
  if (lstat(path.c_str(), &facts) == 0 && own_file_ != std::pair(facts.st_dev, facts.st_ino)) {
    const timespec& written = facts.st_mtim;
    if (written.tv_sec != begun_.tv_sec ? written.tv_sec > begun_.tv_sec : written.tv_nsec > begun_.tv_nsec) return;  // another process of the job's, which may have ended
  }
  const std::string text = Json() + "\n";
  const WriteSignalsBlocked blocked;
  static_cast<void>(Exchange(path, text));
}

void RuntimeStatistics::TellOfWaits() {
  const auto now = std::chrono::steady_clock::now();
  if (!waits_.IsDue(now)) return;
  const EngineCounters c = from_.engine->counters();
  const uint64_t bytes_in = from_.swap->stats().bytes_read;
  const auto threads = [] { return std::min(ThreadsOfProgram(), UsableCores()); };
  const auto found = waits_.Look({c.wait_ns_total / 1000, GetPageStatistics().faults, bytes_in, c.data_bytes}, threads, now);
  if (!found || AnnouncedRankOfSeveral() > 0) return;  // one tells of the ranks that all do the same
  const std::string faults = found->page_faults > 0 ? ", beside " + std::to_string(found->page_faults) + " page faults" : "";
  LogWarning("in the last %.0f s the program waited for swap for %.0f s (all threads together)%s, and %s came back, %.0f times the data (%s): the memory limit of %s is far below what it uses at a "
             "time, or its loops go across its data. A higher limit helps at once (--memory, RAMSPAN_MEMORY); `ramspan report` says what else does, of the statistics of a run (--stats FILE, RAMSPAN_STATS). Told once",
             found->seconds, found->waited, faults.c_str(), FormatBytes(found->bytes_in).c_str(), found->times_data, FormatBytes(c.data_bytes).c_str(), FormatBytes(c.budget_bytes).c_str());
}

}  // namespace ramspan
