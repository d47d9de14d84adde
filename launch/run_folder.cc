#include "launch/run_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "common/memory_limits.h"

namespace ramspan {
namespace {

constexpr char kPrefix[] = "ramspan-run-";
constexpr char kOwnerFile[] = "/owner";
constexpr char kProcessFile[] = "/processes";
constexpr size_t kParentMax = 70;  // a socket's path has 107 bytes

// Where process numbers and locks mean what they mean here: the running kernel and the namespace of the numbers. Folders
// may lie on a file system that several hosts or containers share.
std::string Here() {
  char numbers[PATH_MAX] = "";
  if (readlink("/proc/self/ns/pid", numbers, sizeof numbers - 1) < 0) return "";
  const std::string boot = ReadKernelFile("/proc/sys/kernel/random/boot_id");
  return boot.empty() ? "" : boot + "/" + numbers;
}

bool Append(int fd, const std::string& text) {
  return write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

std::string RunFolderParent(const std::string& wished) {
  // Sockets and servers are named from the root, so a TMPDIR that is relative is made whole.
  std::error_code error;
  const std::string parent = wished.empty() || wished[0] == '/' ? wished : std::filesystem::absolute(wished, error).lexically_normal().string();
  return error || parent.empty() || parent.size() > kParentMax || parent.find(',') != std::string::npos ? "/tmp" : parent;
}

std::string NameRunFolder(const std::string& wished) {
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr int kRandomLetters = 6;
  std::random_device random;
  std::uniform_int_distribution<size_t> any(0, sizeof kLetters - 2);
  std::string name = RunFolderParent(wished) + "/" + kPrefix;
  for (int i = 0; i < kRandomLetters; ++i) name += kLetters[any(random)];
  return name;
}

Result<std::string> MakeRunFolder(const std::string& name) {
  if (mkdir(name.c_str(), 0700) != 0) {
    return Unavailable("cannot make a folder " + name + ": " + std::strerror(errno) + "; set TMPDIR");
  }
  return name;
}

void RemoveRunFolder(const std::string& folder) {
  const std::filesystem::path path(folder);
  if (path.filename().string().rfind(kPrefix, 0) != 0) return;
  // Again where a dying process of the job wrote its line meanwhile, or another one of the launcher's removed files, too.
  constexpr int kTries = 3;
  std::error_code error;
  for (int i = 0; i < kTries; ++i) {
    std::filesystem::remove_all(path, error);
    if (!error) return;
  }
}

// Some file systems of clusters have no locks. A job there is as good as any other; only what it leaves when all of it is
// killed at once stays, because nobody can tell that its launcher is dead.
bool LockOrDoWithout(int fd) { return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

Result<UniqueFd> OwnRunFolder(const std::string& folder) {
  const std::string path = folder + kOwnerFile, hidden = path + ".new";
  UniqueFd fd(open(hidden.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!fd || !LockOrDoWithout(fd.get()) || !Append(fd.get(), Here()) ||
      rename(hidden.c_str(), path.c_str()) != 0) {
    const char* const remedy = errno == EFBIG ? "; raise the limit of file sizes (ulimit -f)" : "; set TMPDIR to another folder";
    return Unavailable("cannot write " + path + ": " + std::strerror(errno) + remedy);
  }
  return fd;
}

UniqueFd TakeOrphan(const std::string& folder) {
  UniqueFd fd(open((folder + kOwnerFile).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) return UniqueFd();
  const std::string here = Here();
  if (here.empty() || ReadKernelFile(folder + kOwnerFile) != here) return UniqueFd();
  // Without a name: another run has swept the folder between our open and our lock.
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || fstat(fd.get(), &info) != 0 || info.st_nlink == 0) return UniqueFd();
  return fd;
}

std::vector<std::string> RunFoldersIn(const std::string& parent) {
  std::vector<std::string> folders;
  DIR* stream = opendir(parent.c_str());
  if (stream == nullptr) return folders;
  while (const dirent* entry = readdir(stream)) {
    if (std::strncmp(entry->d_name, kPrefix, std::strlen(kPrefix)) != 0) continue;
    const std::string path = parent + "/" + entry->d_name;
    struct stat info {};
    if (lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid()) folders.push_back(path);
  }
  closedir(stream);
  return folders;
}

void RecordProcess(const std::string& folder, const ProcessId& process) {
  if (folder.empty()) return;
  // One write of one line: processes append at the same time.
  const UniqueFd fd(open((folder + kProcessFile).c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd) (void)!Append(fd.get(), Here() + " " + std::to_string(process.pid) + " " + std::to_string(process.start) + "\n");
}

std::vector<ProcessId> RecordedProcesses(const std::string& folder) {
  std::vector<ProcessId> processes;
  std::ifstream lines(folder + kProcessFile);
  const std::string here = Here();
  std::string where;
  for (ProcessId one; lines >> where >> one.pid >> one.start;) {
    if (where == here && one.pid > 0) processes.push_back(one);
  }
  return processes;
}

}  // namespace ramspan
