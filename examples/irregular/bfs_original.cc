// Breadth-first search, level by level, over a graph in compressed sparse rows (OpenMP): each level walks the vertices that the one before has found.
// usage: bfs_original [vertices] [edges a vertex] [searches]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Graph {
  std::vector<uint64_t> first;  // of a vertex's edges; one more at the end
  std::vector<uint32_t> to;     // edges, by the vertex that they leave
};

uint64_t Hash(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7FB5D329728EA185u;
  x = (x ^ (x >> 27)) * 0x81DADEF4BC2DD44Du;
  return x ^ (x >> 33);
}

Graph MakeGraph(size_t vertices, size_t degree) {
  Graph graph;
  graph.first.resize(vertices + 1);
  graph.to.resize(vertices * degree);
  for (size_t v = 0; v <= vertices; ++v) graph.first[v] = v * degree;
  for (size_t e = 0; e < vertices * degree; ++e) {
    // Half of the neighbours are near, as in most graphs that come from meshes or the web.
    const uint64_t random = Hash(e);
    graph.to[e] = static_cast<uint32_t>(random & 1024 ? (e / degree + random % 1000) % vertices : random % vertices);
  }
  return graph;
}

constexpr uint32_t kFar = UINT32_MAX;

// While other threads find the same vertex.
uint32_t Get(const uint32_t& level) {
  uint32_t now;
#pragma omp atomic read
  now = level;
  return now;
}

void Set(uint32_t* level, uint32_t now) {
#pragma omp atomic write
  *level = now;
}

// The level of each vertex: its distance from `root`, or kFar.
void Search(const Graph& graph, size_t root, std::vector<uint32_t>* levels) {
  const size_t vertices = graph.first.size() - 1;
  auto& level_of = *levels;
  for (size_t v = 0; v < vertices; ++v) level_of[v] = kFar;
  level_of[root] = 0;
  bool found = true;
  for (uint32_t level = 1; found; ++level) {
    found = false;
#pragma omp parallel reduction(|| : found)
    {
      const auto& first = graph.first;
      const auto& to = graph.to;
#pragma omp for schedule(static) nowait
      for (size_t v = 0; v < vertices; ++v) {
        if (Get(level_of[v]) != level - 1) continue;
        const uint64_t end = first[v + 1];
        for (uint64_t e = first[v]; e < end; ++e) {
          if (Get(level_of[to[e]]) != kFar) continue;
          Set(&level_of[to[e]], level);
          found = true;
        }
      }
    }
  }
}

int main(int argc, char** argv) {
  const size_t vertices = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2000000;
  const size_t degree = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 24;
  const size_t searches = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 3;
  const Graph graph = MakeGraph(vertices, degree);
  std::vector<uint32_t> levels(vertices);
  double seconds = 0;
  for (size_t s = 0; s < searches; ++s) {
    const auto begin = std::chrono::steady_clock::now();
    Search(graph, Hash(s) % vertices, &levels);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    size_t reached = 0, sum = 0;
    for (size_t v = 0; v < vertices; ++v) {
      if (levels[v] != kFar) ++reached, sum += levels[v];
    }
    std::printf("%zu vertices, %zu steps\n", reached, sum);
  }
  std::fprintf(stderr, "%.3f s\n", seconds);
}
