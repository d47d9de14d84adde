// pagerank_original.cc out of core: lines marked (*) differ. PageRank over a graph in compressed sparse rows: the edges are walked in order, the ranks of their ends are not.
// usage: pagerank [vertices] [edges a vertex] [iterations]
#include <ramspan/managed_vector.h>  // (*)

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using ramspan::managedVector;  // (*)

struct Graph {
  managedVector<uint64_t> first;  // (*) of a vertex's edges; one more at the end
  managedVector<uint32_t> from;   // (*) edges, by the vertex to which they lead
  managedVector<uint32_t> degree; // (*) edges that leave a vertex
};

uint64_t Hash(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7FB5D329728EA185u;
  x = (x ^ (x >> 27)) * 0x81DADEF4BC2DD44Du;
  return x ^ (x >> 33);
}

Graph MakeGraph(size_t vertices, size_t degree) {
  Graph graph;
  graph.first.resize(vertices + 1);
  graph.from.resize(vertices * degree);
  graph.degree.resize(vertices);
  for (size_t v = 0; v <= vertices; ++v) graph.first[v] = v * degree;
  for (size_t v = 0; v < vertices; ++v) {
    for (size_t e = 0; e < degree; ++e) {
      // Half of the neighbours are near, as in most graphs that come from meshes or the web.
      const uint64_t random = Hash(v * degree + e);
      const size_t near = (v + random % 1000) % vertices, from = random & 1024 ? near : random % vertices;
      graph.from[v * degree + e] = static_cast<uint32_t>(from);
      ++graph.degree[from];
    }
  }
  return graph;
}

void Iterate(const Graph& graph, const managedVector<double>& share, managedVector<double>* next) {  // (*)
  const size_t vertices = graph.degree.size();
#pragma omp parallel
  {
    const auto first = graph.first.view();  // (*)
    const auto from = graph.from.view();  // (*)
    const auto shares = share.span(0, vertices);  // (*)
    const auto rank = next->view();  // (*)
#pragma omp for schedule(static) nowait
    for (size_t v = 0; v < vertices; ++v) {
      double sum = 0;
      const uint64_t end = first[v + 1];
      for (uint64_t e = first[v]; e < end;) {  // (*)
        for (const uint32_t u : from.run(e, end - e)) sum += shares[u], ++e;  // (*)
      }  // (*)
      rank[v] = 0.15 / static_cast<double>(vertices) + 0.85 * sum;
    }
  }
}

void Share(const Graph& graph, const managedVector<double>& ranks, managedVector<double>* shares) {  // (*)
  const size_t vertices = graph.degree.size();
#pragma omp parallel
  {
    const auto degree = graph.degree.view();  // (*)
    const auto rank = ranks.view();  // (*)
    const auto share = shares->view();  // (*)
#pragma omp for schedule(static) nowait
    for (size_t v = 0; v < vertices; ++v) share[v] = degree[v] > 0 ? rank[v] / degree[v] : 0;
  }
}

int main(int argc, char** argv) {
  const size_t vertices = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2000000;
  const size_t degree = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 24;
  const int iterations = argc > 3 ? std::atoi(argv[3]) : 5;
  const Graph graph = MakeGraph(vertices, degree);
  managedVector<double> rank(vertices, 1.0 / static_cast<double>(vertices)), share(vertices, ramspan::VectorOptions{SIZE_MAX});  // (*)
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < iterations; ++i) {
    Share(graph, rank, &share);
    Iterate(graph, share, &rank);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  double norm = 0;
  for (size_t v = 0; v < vertices; ++v) norm += rank[v] * rank[v];
  std::printf("%.12g\n", std::sqrt(norm));
  std::fprintf(stderr, "%.3f s\n", seconds);
}
