#include "launch/leftovers.h"

#include <dirent.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>

namespace ramspan {
namespace {

namespace fs = std::filesystem;

bool IsOurs(const std::string& path, const std::string& name, int64_t since_ns) {
  if (name.rfind("mpich_shar_tmp", 0) != 0 && name.rfind("ucx_shm_posix_", 0) != 0) return false;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) return false;
  return int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec >= since_ns;
}

// Takes the paths that the process has open or mapped out of `unused`.
void RemoveUsed(const fs::path& process, std::set<std::string>& unused) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(process / "fd", ignored)) {
    unused.erase(fs::read_symlink(entry.path(), ignored).string());
  }
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash != std::string::npos) unused.erase(line.substr(slash));
  }
}

int SweepFiles(const std::string& folder, int64_t since_ns) {
  std::set<std::string> unused;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (IsOurs(path, entry.path().filename().string(), since_ns)) unused.insert(path);
  }
  if (unused.empty()) return 0;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string name = process.path().filename().string();
    if (std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      RemoveUsed(process.path(), unused);
    }
  }
  int removed = 0;
  for (const std::string& path : unused) removed += unlink(path.c_str()) == 0;
  return removed;
}

int SweepSystemV(const std::vector<long>& pids) {
  shm_info totals{};
  const int last = shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds*>(&totals));
  int removed = 0;
  for (int index = 0; index <= last; ++index) {
    shmid_ds segment{};
    const int id = shmctl(index, SHM_STAT, &segment);
    if (id < 0 || segment.shm_nattch != 0 || segment.shm_perm.cuid != geteuid()) continue;
    if (std::find(pids.begin(), pids.end(), segment.shm_cpid) == pids.end()) continue;
    if (kill(segment.shm_cpid, 0) == 0) continue;
    removed += shmctl(id, IPC_RMID, nullptr) == 0;
  }
  return removed;
}

}  // namespace

int SweepSharedMemory(const std::string& folder, int64_t since_ns, const std::vector<long>& pids) {
  return SweepFiles(folder, since_ns) + SweepSystemV(pids);
}

int64_t RealtimeNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace ramspan
