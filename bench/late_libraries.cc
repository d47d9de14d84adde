#include "bench/late_libraries.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "bench/process.h"

namespace ramspan::bench {

void MakeRoomForLateLibraries(char** argv) {
  constexpr const char* kTunables = "GLIBC_TUNABLES";
  constexpr const char* kRoom = "glibc.rtld.optional_static_tls";
  const char* const before = std::getenv(kTunables);
  std::string tunables = before != nullptr ? before : "";
  if (tunables.find(kRoom) != std::string::npos) return;
  tunables += (tunables.empty() ? "" : ":") + std::string(kRoom) + "=16384";  // bytes; jemalloc 5.3 takes under 3 KiB
  setenv(kTunables, tunables.c_str(), 1);
  execv(SelfPath().c_str(), argv);  // where it fails, jemalloc is missing from the table, which says so
}

}  // namespace ramspan::bench
