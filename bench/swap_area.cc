#include "bench/swap_area.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "common/units.h"

namespace ramspan::bench {
namespace {

constexpr char kZramControl[] = "/sys/class/zram-control/";
constexpr int kPriorityMost = 32767;

// The label of an area says whose it is: this, and a process id. At most 16 characters.
constexpr char kLabel[] = "rsbench-";

// The first page of a swap area, as mkswap writes it (include/linux/swap.h of the kernel, union swap_header).
struct SwapHeader {
  char boot[1024];
  uint32_t version, last_page, bad_pages;
  char uuid[16], label[16];
};

std::string ErrorText() { return std::strerror(errno); }

bool WriteWord(const std::string& path, const std::string& word) {
  std::ofstream file(path);
  file << word << std::flush;
  return file.good();
}

bool WriteSwapHeader(const std::string& path, uint64_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<char> first(page);
  SwapHeader header{};
  header.version = 1;
  header.last_page = static_cast<uint32_t>(bytes / page - 1);
  const std::string label = kLabel + std::to_string(getpid());
  std::memcpy(header.label, label.data(), std::min(label.size(), sizeof header.label));
  std::memcpy(first.data(), &header, sizeof header);
  std::memcpy(first.data() + page - 10, "SWAPSPACE2", 10);
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = pwrite(fd, first.data(), page, 0) == static_cast<ssize_t>(page) && fsync(fd) == 0;
  return close(fd) == 0 && written;
}

// The process that an area belongs to; 0: it is not of this program.
pid_t OwnerOf(const std::string& path) {
  SwapHeader header{};
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const bool whole = pread(fd, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
  close(fd);
  const std::string label(header.label, strnlen(header.label, sizeof header.label));
  return whole && label.rfind(kLabel, 0) == 0 ? std::atoi(label.c_str() + sizeof kLabel - 1) : 0;
}

bool IsGone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

bool IsOn(const std::string& path) {
  std::ifstream swaps("/proc/swaps");
  for (std::string line; std::getline(swaps, line);) {
    if (line.substr(0, line.find(' ')) == path) return true;
  }
  return false;
}

// Whether it is off now. Nothing is a reason to leave it on: memory that has no room for what is in it would be one, and is said.
bool SwitchOff(const std::string& path) {
  while (swapoff(path.c_str()) != 0) {
    if (errno != EINTR) return !IsOn(path);
  }
  return true;
}

bool RemoveZram(int number) {
  WriteWord("/sys/block/zram" + std::to_string(number) + "/reset", "1");
  return WriteWord(kZramControl + std::string("hot_remove"), std::to_string(number));
}

bool SwitchAreaOn(const std::string& path, uint64_t bytes, std::string* why_not) {
  if (WriteSwapHeader(path, bytes) && swapon(path.c_str(), SWAP_FLAG_PREFER | kPriorityMost) == 0) return true;
  *why_not = "the kernel refuses swap on " + path + " (" + ErrorText() + ")" +
             (errno == EINVAL ? ": it takes files of ext4 and xfs; name a directory there with --dir" : ": run it as root, outside of containers");
  return false;
}

// A file without holes.
std::string MakeSwapFile(uint64_t bytes, const std::string& folder, std::string* why_not) {
  const std::string path = folder + "/swap";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const int error = fd < 0 ? errno : posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (fd >= 0) close(fd);
  if (error == 0) return path;
  *why_not = "no swap file of " + FormatBytes(bytes) + " can be made in " + folder + " (" + std::strerror(error) + "); name another directory with --dir";
  if (fd >= 0) unlink(path.c_str());
  return "";
}

}  // namespace

std::optional<SwapArea> SwapArea::SwitchOn(Kind kind, uint64_t bytes, const std::string& folder, std::string* why_not) {
  if (geteuid() != 0) {
    *why_not = "not root, who alone may switch swap on: run it with sudo";
    return std::nullopt;
  }
  if (kind == Kind::kFile) {
    const std::string path = MakeSwapFile(bytes, folder, why_not);
    if (path.empty()) return std::nullopt;
    SwapArea area(path, -1);
    if (!SwitchAreaOn(path, bytes, why_not)) return std::nullopt;
    return area;
  }
  int number = -1;
  std::ifstream(kZramControl + std::string("hot_add")) >> number;
  if (number < 0) {
    *why_not = "no zram device can be made: `modprobe zram` (Debian: part of linux-image), outside of containers";
    return std::nullopt;
  }
  const std::string name = "zram" + std::to_string(number);
  SwapArea area("/dev/" + name, number);
  if (!WriteWord("/sys/block/" + name + "/disksize", std::to_string(bytes))) {
    *why_not = "the zram device " + area.path_ + " cannot be given a size (" + ErrorText() + ")";
    return std::nullopt;
  }
  if (!SwitchAreaOn(area.path_, bytes, why_not)) return std::nullopt;
  std::ifstream algorithms("/sys/block/" + name + "/comp_algorithm");  // the one in use in brackets
  for (std::string word; algorithms >> word;) {
    if (word.front() == '[') area.algorithm_ = word.substr(1, word.size() - 2);
  }
  return area;
}

SwapArea::SwapArea(SwapArea&& other) noexcept : path_(std::move(other.path_)), zram_(other.zram_), algorithm_(std::move(other.algorithm_)) {
  other.path_.clear();
}

SwapArea::~SwapArea() { Remove(); }

void SwapArea::Remove() {
  if (path_.empty()) return;
  const bool off = SwitchOff(path_) && (zram_ >= 0 ? RemoveZram(zram_) : unlink(path_.c_str()) == 0);
  if (!off) std::fprintf(stderr, "ramspan-bench: the swap area %s could not be removed (%s); `swapoff %s` does it when there is memory\n", path_.c_str(), ErrorText().c_str(), path_.c_str());
  path_.clear();
}

SwapArea::Held SwapArea::Now() const {
  Held held;
  if (zram_ >= 0) std::ifstream("/sys/block/zram" + std::to_string(zram_) + "/mm_stat") >> held.original >> held.compressed >> held.memory;
  return held;
}

std::string SwapArea::RemoveStale() {
  if (geteuid() != 0) return "";
  std::string told;
  // Files that are on, wherever they are.
  std::ifstream swaps("/proc/swaps");
  std::string line;
  std::getline(swaps, line);  // the columns' names
  while (std::getline(swaps, line)) {
    std::istringstream words(line);
    std::string path, type;
    words >> path >> type;
    const pid_t owner = type == "file" ? OwnerOf(path) : 0;
    if (owner == 0 || !IsGone(owner)) continue;
    const bool removed = SwitchOff(path) && unlink(path.c_str()) == 0;
    if (removed) rmdir(std::filesystem::path(path).parent_path().c_str());
    told += "the swap file " + path + " of a run that was killed " + (removed ? "is switched off and removed\n" : "could not be removed: " + ErrorText() + "\n");
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/block", error)) {
    const std::string name = entry.path().filename();
    if (name.rfind("zram", 0) != 0) continue;
    const pid_t owner = OwnerOf("/dev/" + name);
    if (owner == 0 || !IsGone(owner)) continue;
    const bool removed = SwitchOff("/dev/" + name) && RemoveZram(std::atoi(name.c_str() + 4));
    told += "the zram device " + name + " of a run that was killed " + (removed ? "is removed\n" : "could not be removed: " + ErrorText() + "\n");
  }
  return told;
}

}  // namespace ramspan::bench
