#include "client/front/write_sites.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace ramspan {
namespace {
constexpr int kFramesMost = 32;  // of the library's own there are ten at most

const void* FileOf(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}
// A line of what the command prints, without its end; empty at the end.
std::string ReadLine(FILE* from) {
  char text[1024];
  if (std::fgets(text, sizeof text, from) == nullptr) return "";
  std::string line = text;
  return line.substr(0, line.find('\n'));
}

// The innermost function that is not of Ramspan's headers or the system's, which are inlined into it. Empty: nobody knows.
std::string LineOf(const std::string& file, const char* offset) {
  std::string quoted;
  for (const char c : file) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  const std::string command = "addr2line -Cfie '" + quoted + "' " + offset + " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> lines(popen(command.c_str(), "re"), pclose);
  if (lines == nullptr) return "";
  for (;;) {
    const std::string function = ReadLine(lines.get()), place = ReadLine(lines.get());
    if (place.empty() || place.front() == '?') return "";
    const std::filesystem::path path = place.substr(0, place.find(' '));  // "file:line (discriminator 2)"
    const std::string folder = path.parent_path().filename();
    if (place.rfind("/usr/", 0) == 0 || place.find(":?") != std::string::npos) continue;  // a function that the compiler has made has no line
    if (folder != "ramspan" && folder != "rambrain" && folder != "detail") return path.filename().string() + " in " + function;
  }
}
}  // namespace

WriteSite CallersOfRamspan() noexcept {
  void* frames[kFramesMost];
  const int n = backtrace(frames, kFramesMost);
  const void* const own = FileOf(reinterpret_cast<const void*>(&CallersOfRamspan));
  WriteSite site{};
  size_t found = 0;
  for (int i = 0; i < n && found < site.size(); ++i) {
    if (const void* const file = FileOf(frames[i]); file != nullptr && file != own) site[found++] = frames[i];
  }
  return site;
}

std::string DescribeSite(const WriteSite& site) {
  std::string first;
  for (const void* const address : site) {
    Dl_info info;
    if (address == nullptr || dladdr(address, &info) == 0) break;
    char offset[32];
    // Within the call, not behind it.
    std::snprintf(offset, sizeof offset, "0x%zx", static_cast<size_t>(static_cast<const char*>(address) - 1 - static_cast<const char*>(info.dli_fbase)));
    if (const std::string line = LineOf(info.dli_fname, offset); !line.empty()) return line;
    if (first.empty()) first = std::string(info.dli_fname) + "(+" + offset + "), whose line is known where it is compiled with -g";
  }
  return first.empty() ? "an unknown place" : first;
}

}  // namespace ramspan
