// nbody: the trajectories of n gravitating bodies, kept for all time steps, so that memory grows as in the paper's
// overhead test (SoftwareX 2017, section 5.1): forward Euler, all pairs. Three ways, with bit-equal results:
//   serial       one thread; a whole time step is one managedPtr
//   openmp       the same, its bodies shared by threads: the pointers are pulled once, before the loop
//   ingredients  bodies in blocks; each thread pulls the blocks that it needs, all at once within LISTOFINGREDIENTS
#include <ramspan/managed_ptr.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

using ramspan::adhereTo;
using ramspan::managedPtr;

namespace {

struct Body {
  double position[3], velocity[3];
};

constexpr double kTimeStep = 1e-3;

void Start(size_t first, size_t count, Body* bodies) {
  uint64_t x = 88172645463325252u + first;
  for (size_t i = 0; i < count; ++i) {
    for (double* value : {bodies[i].position, bodies[i].velocity}) {
      for (int d = 0; d < 3; ++d) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;  // xorshift64
        value[d] = static_cast<double>(x >> 11) * 0x1p-53 - 0.5;
      }
    }
  }
}

// Adds what `sources` pull at `target` with.
void AddPull(const Body& target, const Body* sources, size_t count, double* acceleration) {
  for (size_t j = 0; j < count; ++j) {
    double distance[3], square = 1e-4;  // softened, so a body does not pull at itself
    for (int d = 0; d < 3; ++d) {
      distance[d] = sources[j].position[d] - target.position[d];
      square += distance[d] * distance[d];
    }
    const double factor = 1e-3 / (square * std::sqrt(square));
    for (int d = 0; d < 3; ++d) acceleration[d] += factor * distance[d];
  }
}

Body Moved(const Body& body, const double* acceleration) {
  Body moved;
  for (int d = 0; d < 3; ++d) {
    moved.position[d] = body.position[d] + kTimeStep * body.velocity[d];
    moved.velocity[d] = body.velocity[d] + kTimeStep * acceleration[d];
  }
  return moved;
}

void Step(const Body* now, Body* next, size_t n, bool parallel) {
#pragma omp parallel for if (parallel)
  for (size_t i = 0; i < n; ++i) {
    double acceleration[3] = {};
    AddPull(now[i], now, n, acceleration);
    next[i] = Moved(now[i], acceleration);
  }
}

std::vector<managedPtr<Body>> WholeSteps(size_t n, size_t steps, bool parallel) {
  std::vector<managedPtr<Body>> trajectory;
  trajectory.emplace_back(n);
  {
    adhereTo<Body> glue(trajectory[0]);
    Start(0, n, glue);
  }
  for (size_t t = 0; t < steps; ++t) {
    trajectory.emplace_back(n);
    const adhereTo<Body> glue_now(trajectory[t]);
    adhereTo<Body> glue_next(trajectory[t + 1]);
    const Body* now = glue_now;  // const: what is history already is not written to swap again
    Body* next = glue_next;
    Step(now, next, n, parallel);
  }
  return trajectory;
}

// One row of blocks a time step. A thread holds two blocks of the old step and one of the new.
using Blocks = std::vector<managedPtr<Body>>;

void StepBlock(const Blocks& now, Blocks* next, size_t b) {
  const adhereTo<Body> glue_old(now[b]);
  adhereTo<Body> glue_new((*next)[b]);
  const Body* old = nullptr;
  Body* moved = nullptr;
  std::vector<double> acceleration(3 * now[b].size());
  for (const managedPtr<Body>& sources : now) {
    const adhereTo<Body> glue_sources(sources);
    const Body* from;
    {
      LISTOFINGREDIENTS  // no other thread pulls between these, so none holds half of what it needs
      old = glue_old;
      moved = glue_new;
      from = glue_sources;
    }
    for (size_t i = 0; i < now[b].size(); ++i) AddPull(old[i], from, sources.size(), &acceleration[3 * i]);
  }
  for (size_t i = 0; i < now[b].size(); ++i) moved[i] = Moved(old[i], &acceleration[3 * i]);
}

std::vector<managedPtr<Body>> InBlocks(size_t n, size_t steps, size_t block) {
  std::vector<managedPtr<Body>> trajectory;  // all blocks of step 0, then of step 1, ...
  const auto make = [&] {
    Blocks blocks;
    for (size_t first = 0; first < n; first += block) blocks.emplace_back(std::min(block, n - first));
    return blocks;
  };
  Blocks now = make();
  {
    std::vector<Body> all(n);
    Start(0, n, all.data());
    for (size_t b = 0; b < now.size(); ++b) {
      adhereTo<Body> glue(now[b]);
      std::memcpy(static_cast<Body*>(glue), &all[b * block], now[b].size() * sizeof(Body));
    }
  }
  trajectory = now;
  for (size_t t = 0; t < steps; ++t) {
    Blocks next = make();
    std::atomic<bool> failed{false};
    std::exception_ptr error;  // the first one; none may leave the loop
#pragma omp parallel for schedule(dynamic)
    for (size_t b = 0; b < now.size(); ++b) {
      if (failed) continue;
      try {
        StepBlock(now, &next, b);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
    trajectory.insert(trajectory.end(), next.begin(), next.end());
    now = next;  // copies share their bodies
  }
  return trajectory;
}

// Of all steps, read in order. The same for all ways if, and only if, all bodies are equal bit by bit (almost surely).
uint64_t Fingerprint(const std::vector<managedPtr<Body>>& trajectory) {
  uint64_t hash = 1469598103934665603u;
  for (const managedPtr<Body>& part : trajectory) {
    const adhereTo<Body> glue(part);
    const auto* words = reinterpret_cast<const uint64_t*>(static_cast<const Body*>(glue));
    for (size_t i = 0; i < part.size() * sizeof(Body) / 8; ++i) hash = (hash ^ words[i]) * 1099511628211u;
  }
  return hash;
}

uint64_t InCore(size_t n, size_t steps) {
  std::vector<Body> now(n), next(n);
  Start(0, n, now.data());
  uint64_t hash = 1469598103934665603u;
  for (size_t t = 0; t <= steps; ++t) {
    const auto* words = reinterpret_cast<const uint64_t*>(now.data());
    for (size_t i = 0; i < n * sizeof(Body) / 8; ++i) hash = (hash ^ words[i]) * 1099511628211u;
    Step(now.data(), next.data(), n, false);
    now.swap(next);
  }
  return hash;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string way = argc > 1 ? argv[1] : "serial";
  const size_t n = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 500;
  const size_t steps = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 400;
  if ((way != "serial" && way != "openmp" && way != "ingredients") || n == 0) {
    std::fprintf(stderr, "usage: nbody [serial|openmp|ingredients] [BODIES [STEPS]]\n");
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto trajectory = way == "ingredients" ? InBlocks(n, steps, 64) : WholeSteps(n, steps, way == "openmp");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const bool equal = Fingerprint(trajectory) == InCore(n, steps);
  std::printf("%s: %zu bodies, %zu steps, %.1f MiB of trajectories in %.2f s: %s\n", way.c_str(), n, steps,
              static_cast<double>((steps + 1) * n * sizeof(Body)) / 1048576, seconds,
              equal ? "equal to the in-core result" : "DIFFERENT from the in-core result");
  return equal ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "nbody: %s\n", e.what());
  return 1;
}
