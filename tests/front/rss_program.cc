// rss_program THREADS LIMIT_MIB: sweeps over four times the limit and fails when the process's peak RSS grew by more
// than the limit + 4 MiB over what it was at the start of main (an empty program with the same libraries).
#include <ramspan/managed_ptr.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

static double StatusMib(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) == 0) return std::atof(line.c_str() + name.size()) / 1024;
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const double empty = StatusMib("VmRSS:");
  const int threads = std::atoi(argv[1]);
  const double limit = std::atof(argv[2]);
  const size_t chunks = static_cast<size_t>(limit) * 4 * 4, n = (256 << 10) / sizeof(double);
  std::vector<ramspan::managedPtr<double>> data;
  for (size_t i = 0; i < chunks; ++i) data.emplace_back(n);
  const auto sweep = [&](int t, double add) {
    for (size_t i = static_cast<size_t>(t); i < chunks; i += static_cast<size_t>(threads)) {
      ramspan::adhereTo<double> glue(data[i]);
      double* p = glue;
      for (size_t k = 0; k < n; ++k) p[k] = add == 0 ? static_cast<double>(i + k) : p[k] + add;
    }
  };
  for (double add : {0., 1., 1.}) {
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t) team.emplace_back(sweep, t, add);
    for (auto& thread : team) thread.join();
  }
  for (size_t i = 0; i < chunks; ++i) {
    ADHERETOLOCCONST(double, data[i], p);
    for (size_t k = 0; k < n; ++k) {
      if (p[k] != static_cast<double>(i + k) + 2) return std::printf("chunk %zu has wrong data\n", i), 1;
    }
  }
  const double grown = StatusMib("VmHWM:") - empty;
  std::printf("%d threads, limit %.0f MiB: peak RSS grew by %.1f MiB\n", threads, limit, grown);
  return grown <= limit + 4 ? 0 : 1;
}
