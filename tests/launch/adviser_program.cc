// adviser_program USE CHUNK_KIB DATA_MIB: a small program for each advice of `ramspan report`, and the same one as it should be. USE:
//   random    reads single elements of a managedVector all over the data
//   written   sweeps over the data and only reads it, through pointers to what might be written
//   read      the same by read()
//   pins      four threads, each of which holds all the chunks of its part for a while
#include <ramspan/managed_vector.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using ramspan::managedPtr;
using ramspan::managedVector;

namespace {

constexpr int kSweeps = 8;

double ReadAnywhere(size_t chunk_bytes, size_t bytes) {
  managedVector<double> data(bytes / sizeof(double), 1.0, ramspan::VectorOptions{chunk_bytes, ramspan::access::random});
  const auto view = data.cview();
  double sum = 0;
  uint64_t state = 1;
  for (int i = 0; i < 20'000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    sum += view[(state >> 33) % data.size()];
  }
  return sum;
}

double Sweep(size_t chunk_bytes, size_t bytes, bool as_written) {
  std::vector<managedPtr<double>> chunks;
  for (size_t at = 0; at < bytes; at += chunk_bytes) chunks.emplace_back(chunk_bytes / sizeof(double), 1.0);
  double sum = 0;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (managedPtr<double>& chunk : chunks) {
      if (as_written) {
        for (const double x : chunk.write()) sum += x;
      } else {
        for (const double x : chunk.read()) sum += x;
      }
    }
  }
  return sum;
}

double HoldMuch(size_t chunk_bytes, size_t bytes) {
  constexpr size_t kThreads = 4;
  std::vector<managedPtr<double>> chunks;
  for (size_t at = 0; at < bytes; at += chunk_bytes) chunks.emplace_back(chunk_bytes / sizeof(double), 1.0);
  std::vector<std::thread> team;
  for (size_t t = 0; t < kThreads; ++t) {
    team.emplace_back([&, t] {
      for (size_t c = t; c < chunks.size(); c += kThreads) {
        const auto held = chunks[c].read();
        usleep(20'000);
      }
    });
  }
  for (std::thread& thread : team) thread.join();
  return static_cast<double>(chunks.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: adviser_program random|written|read|pins CHUNK_KIB DATA_MIB\n");
    return 2;
  }
  const std::string use = argv[1];
  const size_t chunk_bytes = std::strtoull(argv[2], nullptr, 10) << 10, bytes = std::strtoull(argv[3], nullptr, 10) << 20;
  const double result = use == "random" ? ReadAnywhere(chunk_bytes, bytes)
                        : use == "pins" ? HoldMuch(chunk_bytes, bytes)
                                        : Sweep(chunk_bytes, bytes, use == "written");
  std::printf("%g\n", result);
  return 0;
}
