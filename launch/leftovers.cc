#include "launch/leftovers.h"

#include <dirent.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <thread>
#include <utility>

#include "launch/run_folder.h"

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

using FileId = std::pair<dev_t, ino_t>;

// Whether this process may have files open that we are not allowed to see. Others' processes cannot open ours.
bool IsOurProcess(const std::string& process) {
  std::ifstream status(process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Uid:", 0) == 0) return std::atol(line.c_str() + 4) == static_cast<long>(getuid());
  }
  return false;
}

// Takes what the process has open or mapped out of `unused`. False: nobody can tell what it uses. By number, not by path:
// in a container the same file may have another one.
bool RemoveUsed(const std::string& process, std::map<FileId, std::string>& unused) {
  DIR* readable = opendir((process + "/fd").c_str());
  if (readable == nullptr) return errno != EACCES || !IsOurProcess(process);
  closedir(readable);
  for (const std::string& fd : NamesIn(process + "/fd")) {
    struct stat info {};
    if (stat((process + "/fd/" + fd).c_str(), &info) == 0) unused.erase({info.st_dev, info.st_ino});
  }
  std::ifstream maps(process + "/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned high = 0, low = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%*s %*s %*s %x:%x %lu", &high, &low, &inode) == 3) unused.erase({makedev(high, low), inode});
  }
  return true;
}

bool RemoveUsedByAnybody(std::map<FileId, std::string>& unused) {
  for (const std::string& name : NamesIn("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (unused.empty()) return true;
    if (!RemoveUsed("/proc/" + name, unused)) return false;
  }
  return true;
}

// The kernel's numbers of the first namespaces (include/linux/proc_ns.h).
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC, kFirstIpcNamespace = 0xEFFFFFFF;

// Only then does /proc show all processes that may have opened a file of /dev/shm: containers of one pod share that, and
// the user's number, and see nothing of each other's processes.
bool SeesAllProcesses() {
  struct stat numbers {};
  return stat("/proc/self/ns/pid", &numbers) == 0 && numbers.st_ino == kFirstPidNamespace;
}

// Whether it is so or may well be: this is a container that does not share the host's System V segments, so hardly its
// /dev/shm. Good enough for files that appeared during a job of our own, which are most likely its own.
bool MaySeeAllUsers() {
  struct stat segments {};
  return SeesAllProcesses() || (stat("/proc/self/ns/ipc", &segments) == 0 && segments.st_ino != kFirstIpcNamespace);
}

int SweepFiles(const std::string& folder, int64_t since_ns) {
  std::map<FileId, std::string> unused;
  for (const std::string& name : NamesIn(folder)) {
    const std::string path = folder + "/" + name;
    struct stat info {};
    if (IsOurs(path, name, since_ns) && lstat(path.c_str(), &info) == 0) unused[{info.st_dev, info.st_ino}] = path;
  }
  if (unused.empty() || !MaySeeAllUsers()) return 0;
  // Twice, because a file may go from one process that was looked at late to one that was looked at early.
  if (!RemoveUsedByAnybody(unused) || !RemoveUsedByAnybody(unused)) return 0;
  int removed = 0;
  for (const auto& [id, path] : unused) removed += unlink(path.c_str()) == 0;
  return removed;
}

// By one of these, and nobody of that number lives: not even a process that was given the number of a dead one and may be
// between making a segment and using it.
bool MadeBy(const std::vector<ProcessId>& makers, pid_t pid) {
  if (IsAlive(Identify(pid))) return false;
  return std::any_of(makers.begin(), makers.end(), [&](const ProcessId& one) { return one.pid == pid; });
}

int SweepSystemV(int64_t since_ns, const std::vector<ProcessId>& makers) {
  shm_info totals{};
  const int last = makers.empty() ? -1 : shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds*>(&totals));
  int removed = 0;
  for (int index = 0; index <= last; ++index) {
    shmid_ds segment{};
    const int id = shmctl(index, SHM_STAT, &segment);
    if (id < 0 || segment.shm_nattch != 0 || segment.shm_perm.cuid != geteuid()) continue;
    // Times are in seconds. A private segment can be found by its number only, which its maker took with it.
    if (segment.shm_perm.__key != IPC_PRIVATE || segment.shm_ctime < since_ns / 1'000'000'000) continue;
    if (MadeBy(makers, segment.shm_cpid)) removed += shmctl(id, IPC_RMID, nullptr) == 0;
  }
  return removed;
}

bool AnyAlive(const std::vector<ProcessId>& processes) { return std::any_of(processes.begin(), processes.end(), IsAlive); }

// A folder whose launcher was killed before its mark was there, which takes it microseconds, is empty but for the mark's
// beginning. Any other one is not removed by this.
void RemoveUnmarked(const std::string& folder) {
  constexpr int64_t kMarkMayTake = 60'000'000'000;
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0) return;
  if (RealtimeNs() - int64_t{info.st_mtim.tv_sec} * 1'000'000'000 < kMarkMayTake) return;
  unlink((folder + "/owner.new").c_str());
  rmdir(folder.c_str());
}

}  // namespace

int SweepSharedMemory(const std::string& folder, int64_t since_ns, const std::vector<ProcessId>& makers) {
  return SweepFiles(folder, since_ns) + SweepSystemV(since_ns, makers);
}

void CleanUpRun(const std::string& folder, int64_t since_ns, const std::vector<ProcessId>& more) {
  constexpr std::chrono::milliseconds kLook{2};
  constexpr int kLooksMax = 2500;  // 5 s
  std::vector<ProcessId> makers = RecordedProcesses(folder);
  makers.insert(makers.end(), more.begin(), more.end());
  for (int i = 0; i < kLooksMax && AnyAlive(makers); ++i) std::this_thread::sleep_for(kLook);
  SweepSharedMemory("/dev/shm", since_ns, makers);
  if (!AnyAlive(makers)) RemoveRunFolder(folder);
}

void RemoveFolderOfTheDead(const std::string& folder) {
  if (!AnyAlive(RecordedProcesses(folder))) RemoveRunFolder(folder);
}

int SweepOrphans(const std::string& parent, const std::string& shared_memory) {
  int swept = 0;
  for (const std::string& folder : RunFoldersIn(parent)) {
    const UniqueFd lock = TakeOrphan(folder);
    if (!lock) {
      RemoveUnmarked(folder);
      continue;
    }
    const std::vector<ProcessId> makers = RecordedProcesses(folder);
    if (AnyAlive(makers)) continue;
    SweepSystemV(0, makers);
    RemoveRunFolder(folder);
    ++swept;
  }
  if (SeesAllProcesses()) SweepFiles(shared_memory, 0);
  return swept;
}

int64_t RealtimeNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace ramspan
