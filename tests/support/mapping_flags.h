// How the kernel says that it treats a mapping of this process. Thread-safety: any thread.
#pragma once

#include <sys/mman.h>

#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

namespace ramspan {

// The flags (/proc/PID/smaps, VmFlags: "hg" is MADV_HUGEPAGE) of the mapping in which `address` is; "" where there is none. With `name` that of
// the first mapping of a file so called instead, whose begin *begin gets.
inline std::string FlagsOfMapping(const void* address, const std::string& name = "", std::byte** begin = nullptr) {
  std::ifstream smaps("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(smaps, line);) {
    uint64_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      is_here = name.empty() ? from <= at && at < to : line.find(name) != std::string::npos;
      if (is_here && begin != nullptr) *begin = reinterpret_cast<std::byte*>(from);
    } else if (is_here && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return "";
}

inline bool AsksForHugePages(const std::string& flags) { return flags.find(" hg ") != std::string::npos; }

inline bool SystemKnowsHugePages() {
  void* const page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool knows = madvise(page, 4096, MADV_HUGEPAGE) == 0;
  munmap(page, 4096);
  return knows;
}

}  // namespace ramspan
