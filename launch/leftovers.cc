#include "launch/leftovers.h"

#include <dirent.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <ctime>
#include <fstream>
#include <set>
#include <vector>

namespace ramspan {
namespace {

bool IsOurs(const std::string& path, const std::string& name, int64_t since_ns) {
  if (name.rfind("mpich_shar_tmp", 0) != 0 && name.rfind("ucx_shm_posix_", 0) != 0) return false;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) return false;
  return int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec >= since_ns;
}

// Not std::filesystem, whose iteration throws when a process vanishes meanwhile.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* stream = opendir(folder.c_str());
  if (stream == nullptr) return names;
  while (const dirent* entry = readdir(stream)) names.emplace_back(entry->d_name);
  closedir(stream);
  return names;
}

// Takes the paths that the process has open or mapped out of `unused`.
void RemoveUsed(const std::string& process, std::set<std::string>& unused) {
  for (const std::string& fd : NamesIn(process + "/fd")) {
    char target[PATH_MAX];
    const ssize_t length = readlink((process + "/fd/" + fd).c_str(), target, sizeof target);
    if (length > 0) unused.erase(std::string(target, static_cast<size_t>(length)));
  }
  std::ifstream maps(process + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash != std::string::npos) unused.erase(line.substr(slash));
  }
}

int SweepFiles(const std::string& folder, int64_t since_ns) {
  std::set<std::string> unused;
  for (const std::string& name : NamesIn(folder)) {
    if (IsOurs(folder + "/" + name, name, since_ns)) unused.insert(folder + "/" + name);
  }
  if (unused.empty()) return 0;
  for (const std::string& name : NamesIn("/proc")) {
    if (name.find_first_not_of("0123456789") == std::string::npos) RemoveUsed("/proc/" + name, unused);
  }
  int removed = 0;
  for (const std::string& path : unused) removed += unlink(path.c_str()) == 0;
  return removed;
}

int SweepSystemV(int64_t since_ns) {
  shm_info totals{};
  const int last = shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds*>(&totals));
  int removed = 0;
  for (int index = 0; index <= last; ++index) {
    shmid_ds segment{};
    const int id = shmctl(index, SHM_STAT, &segment);
    if (id < 0 || segment.shm_nattch != 0 || segment.shm_perm.cuid != geteuid()) continue;
    // Times are in seconds. A private segment can be found by its number only, which its maker took with it.
    if (segment.shm_perm.__key != IPC_PRIVATE || segment.shm_ctime < since_ns / 1'000'000'000) continue;
    if (kill(segment.shm_cpid, 0) == 0) continue;
    removed += shmctl(id, IPC_RMID, nullptr) == 0;
  }
  return removed;
}

}  // namespace

int SweepSharedMemory(const std::string& folder, int64_t since_ns) {
  return SweepFiles(folder, since_ns) + SweepSystemV(since_ns);
}

int64_t RealtimeNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace ramspan
