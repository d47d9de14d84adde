#include "client/swap/swap_file_maker.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/slot_ref.h"
#include "common/terminal.h"
#include "common/units.h"

namespace ramspan {
namespace {

constexpr uint64_t kKeepFreeMax = uint64_t{1} << 30;

uint64_t RoundDownToGranule(uint64_t bytes) { return bytes & ~uint64_t{kSwapGranule - 1}; }

// Exceeding this limit would be a SIGXFSZ, not an error.
uint64_t FileSizeLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return RoundDownToGranule(limit.rlim_cur);
}

// What a swap file may still take when the disk is to keep 5%, at most 1 GiB, for others.
// Of the folder that was opened, if any: its path may lead elsewhere by now.
uint64_t RoomOnDisk(const Descriptor& folder, const std::string& directory) {
  struct statvfs fs {};
  if ((folder ? fstatvfs(folder.number(), &fs) : statvfs(directory.c_str(), &fs)) != 0) return 0;
  const uint64_t free = uint64_t{fs.f_bavail} * fs.f_frsize;
  const uint64_t keep = std::min(uint64_t{fs.f_blocks} * fs.f_frsize / 20, kKeepFreeMax);
  return free > keep ? RoundDownToGranule(free - keep) : 0;
}

Status CheckOptions(const FileSwapOptions& options) {
  // A folder's name may hold any character ($TMPDIR is nobody's mask), where the file's name has the two %d.
  const auto numbers = [](const std::string& text) {
    const size_t first = text.find("%d");
    return first != std::string::npos && text.find("%d", first + 2) != std::string::npos &&
           std::count(text.begin(), text.end(), '%') == 2;
  };
  if (!numbers(options.mask.substr(options.mask.rfind('/') + 1)) && !numbers(options.mask)) {
    return InvalidArgument("swapfiles = " + options.mask + " must hold two %d and no other %");
  }
  if (options.bytes_max < kSwapGranule) {
    return InvalidArgument("swapMemory = " + FormatBytes(options.bytes_max) + " holds nothing; the least is 4 KiB");
  }
  return {};
}

// open and fcntl may accept O_DIRECT where transfers then fail.
bool DirectWorks(const AioFile& file) {
  if (FileSizeLimit() < kSwapGranule) return true;
  void* block = std::aligned_alloc(kSwapGranule, kSwapGranule);
  RS_CHECK(block != nullptr, "no memory for %zu bytes", kSwapGranule);
  std::memset(block, 0, kSwapGranule);
  const AioCompletion result = TransferNow({.fd = file.fd(), .is_write = true, .buffer = block, .bytes = kSwapGranule});
  std::free(block);
  return result.error != EINVAL;
}

// A limit of file sizes below which so many files are needed that what they need becomes the limit: for each a descriptor, and tables that
// count in the memory limit. For a gigabyte of swap these are a thousand files; at half of it two thousand, more than many users may have open.
constexpr uint64_t kFewFilesBytes = uint64_t{1} << 20;

// Later it would be too late: what fails then is said to be full, or not to fit the memory limit.
void WarnIfFilesAreSmall(const std::string& directory) {
  const uint64_t most = FileSizeLimit();
  if (most >= kFewFilesBytes) return;
  LogWarning("swap files in %s may not be larger than %s each (`ulimit -f`): there will be very many, and their tables take memory from the memory limit. "
             "Raise the limit of file sizes (`ulimit -f`)", directory.c_str(), FormatBytes(most).c_str());
}

void WarnIfInMemory(const AioFile& file, const std::string& directory) {
  struct statfs fs {};
  if (fstatfs(file.fd(), &fs) == 0 && static_cast<uint64_t>(fs.f_type) == TMPFS_MAGIC) {
    LogWarning("swap files in %s are kept in memory (tmpfs): set TMPDIR or swapfiles to a directory on a disk",
               directory.c_str());
  }
}

}  // namespace

Result<bool> SwapFileMaker::Probe(const FileSwapOptions& options) {
  if (Status status = CheckOptions(options); !status.ok()) return status;
  const std::string directory = DirectoryOf(options.mask);
  uint64_t number = 0;
  Result<AioFile> probe = AioFile::Create(options.mask, options.direct, &number);
  if (!probe.ok()) {
    // A disk that is full now is no reason to stop a program that may never swap.
    if (probe.status().code() == StatusCode::kResourceExhausted) return bool{options.direct};
    return probe.status();
  }
  WarnIfInMemory(probe.value(), directory);
  WarnIfFilesAreSmall(directory);
  const bool direct = options.direct && probe.value().direct() && DirectWorks(probe.value());
  if (options.direct && !direct) LogWarning("no direct I/O in %s: swap files go through the page cache", directory.c_str());
  return bool{direct};
}

SwapFileMaker::SwapFileMaker(const FileSwapOptions& options, bool direct)
    : options_(options), direct_(direct), folder_(open(DirectoryOf(options.mask).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), limit_bytes_(RoundDownToGranule(options.bytes_max)), told_bytes_(limit_bytes_.load()), policy_(options.policy) {
  folder_.MoveBeyondPrograms();
}

std::string SwapFileMaker::folder() const { return DirectoryOf(options_.mask); }

Result<SwapFileMaker::File> SwapFileMaker::Make(uint64_t need, uint64_t have) {
  const Result<uint64_t> step = StepFor(need, have);
  if (!step.ok()) return step.status();
  Result<AioFile> file = AioFile::Create(options_.mask, direct_, &next_number_, &folder_);
  if (!file.ok()) {
    const bool full = file.status().code() == StatusCode::kResourceExhausted;
    return full ? file.status() : Unavailable(file.status().message());
  }
  uint64_t bytes = step.value();
  Status room = file.value().Allocate(bytes);
  while (room.code() == StatusCode::kResourceExhausted && bytes > need) {
    bytes = std::max(need, RoundDownToGranule(bytes / 2));
    room = file.value().Allocate(bytes);
  }
  if (!room.ok()) return room.code() == StatusCode::kResourceExhausted ? FullError(room.message()) : room;
  return File{std::move(file).value(), bytes};
}

bool SwapFileMaker::AreFilesLimited() { return FileSizeLimit() != UINT64_MAX; }

void SwapFileMaker::SetLimit(uint64_t bytes) {
  limit_bytes_ = bytes;
  told_bytes_ = bytes;
  refused_ = false;
}

void SwapFileMaker::SetPolicy(SwapPolicy policy) {
  policy_ = policy;
  refused_ = false;
}

// Half of all before it, so that there are few, up to the largest whose bitmaps fit. Several files make up a slot that needs more.
uint64_t SwapFileMaker::UsualStep(uint64_t need, uint64_t have, uint64_t first) {
  const uint64_t most = std::max({kFileBytesMax, have / kFilesPart, need / kFilesForASlot});
  return RoundUpToGranule(std::min(most, std::max({need, first, have / 2})));
}

// How large the next file shall be: enough for what is needed and, within the limit, for what may come.
Result<uint64_t> SwapFileMaker::StepFor(uint64_t need, uint64_t have) {
  uint64_t step = UsualStep(need, have, options_.file_bytes);
  if (have + need <= limit_bytes_) {
    step = std::min(step, limit_bytes_ - have);
  } else {
    const Result<uint64_t> beyond = StepBeyondLimit(need, have);
    if (!beyond.ok()) return beyond;
    limit_bytes_ = have + beyond.value();
    step = std::min(step, beyond.value());
  }
  step = std::min(step, FileSizeLimit());
  if (step == 0) return ResourceExhausted("swap files in " + folder() + " cannot be: a file of this process may not be as large as 4 KiB. Raise the limit of file sizes (`ulimit -f`)");
  return step;
}

Result<uint64_t> SwapFileMaker::StepBeyondLimit(uint64_t need, uint64_t have) {
  const std::string used_up = "the limit of " + FormatBytes(limit_bytes_) + " is used up";
  if (policy_ == SwapPolicy::kFail) return FullError(used_up);
  const uint64_t room = RoomOnDisk(folder_, folder());
  if (room < need) return FullError(used_up + ", and the disk has not enough room to spare");
  if (policy_ == SwapPolicy::kAutoextendable) {
    WarnOfGrowth();
    return std::min(room, UsualStep(need, have, options_.file_bytes));
  }
  const uint64_t wanted = std::min(room, std::max(need, RoundUpToGranule(options_.file_bytes)));
  const std::string question = "local swap is full (" + FormatBytes(limit_bytes_) + "): may it grow by " +
                               FormatBytes(wanted) + " in " + folder() + "?";
  if (!refused_) refused_ = options_.ask ? !options_.ask(wanted, question) : !AskOnTerminal(question);
  if (refused_) return FullError(used_up + ", and growing was refused or there is no terminal to ask on");
  return wanted;
}

void SwapFileMaker::GrowLimitTo(uint64_t bytes) {
  if (bytes > limit_bytes_) limit_bytes_ = bytes;
}

void SwapFileMaker::WarnOfGrowth() {
  if (!options_.warn_of_growth || std::exchange(growth_told_, true)) return;
  LogWarning("swap files in %s grow beyond swapMemory (%s), as far as the disk has room: the default policy is autoextendable; "
             "policy = fail (RAMSPAN_POLICY=fail) makes it a limit", folder().c_str(), FormatBytes(told_bytes_).c_str());
}

Status SwapFileMaker::FullError(const std::string& why) const {
  const bool grows = policy_ == SwapPolicy::kAutoextendable;  // then swapMemory is no limit, and only the disk is full
  return ResourceExhausted("swap files in " + folder() + " are full: " + why + "; " +
                           (grows ? "" : "raise swapMemory (RAMSPAN_SWAP_MEMORY), set policy to autoextendable, ") +
                           "make room on the disk, or set swapfiles to a directory on a larger one");
}

}  // namespace ramspan
