// bfs_original.cc out of core: lines marked (*) differ. Breadth-first search, level by level, over a graph in compressed sparse rows (OpenMP): each level walks the vertices that the one before has found.
// usage: bfs [vertices] [edges a vertex] [searches]
#include <ramspan/managed_vector.h>  // (*)

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>  // (*)

using ramspan::managedVector;  // (*)

struct Graph {
  managedVector<uint64_t> first;  // (*) of a vertex's edges; one more at the end
  managedVector<uint32_t> to;     // (*) edges, by the vertex that they leave
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
void Search(const Graph& graph, size_t root, managedVector<uint32_t>* levels) {  // (*)
  const size_t vertices = graph.first.size() - 1;
  const auto level_of = levels->span(0, vertices);  // (*)
  for (size_t v = 0; v < vertices; ++v) level_of[v] = kFar;
  level_of[root] = 0;
  bool found = true;
  for (uint32_t level = 1; found; ++level) {
    found = false;
#pragma omp parallel reduction(|| : found)
    {
      const auto first = graph.first.view();  // (*)
      const auto to = graph.to.view();  // (*)
#pragma omp for schedule(static) nowait
      for (size_t v = 0; v < vertices; ++v) {
        if (Get(level_of[v]) != level - 1) continue;
        const uint64_t end = first[v + 1];
        for (uint64_t e = first[v]; e < end;) {  // (*)
          for (const uint32_t u : to.run(e, end - e)) {  // (*)
            ++e;  // (*)
            if (Get(level_of[u]) != kFar) continue;  // (*)
            Set(&level_of[u], level);  // (*)
            found = true;  // (*)
          }  // (*)
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
  managedVector<uint32_t> levels(vertices, ramspan::VectorOptions{SIZE_MAX});  // (*) one block
  double seconds = 0;
  for (size_t s = 0; s < searches; ++s) {
    const auto begin = std::chrono::steady_clock::now();
    Search(graph, Hash(s) % vertices, &levels);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    size_t reached = 0, sum = 0;
    const auto level_of = std::as_const(levels).span(0, vertices);  // (*)
    for (size_t v = 0; v < vertices; ++v) {
      if (level_of[v] != kFar) ++reached, sum += level_of[v];  // (*)
    }
    std::printf("%zu vertices, %zu steps\n", reached, sum);
  }
  std::fprintf(stderr, "%.3f s\n", seconds);
}
