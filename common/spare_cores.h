// Which cores a thread of the library should run on, decided on any hwloc topology (a real one or a synthetic one in a
// test). Reads the topology only: safe from any thread as long as nobody changes that. Used by topology.cc only.
#pragma once

#include <hwloc.h>
#include <memory>

namespace ramspan {

struct CpuSetDeleter {
  void operator()(hwloc_bitmap_t bits) const { hwloc_bitmap_free(bits); }
};
using CpuSet = std::unique_ptr<hwloc_bitmap_s, CpuSetDeleter>;

// The cores of `machine` that a process running `application_threads` threads on `mask` leaves free; empty (not null)
// when there are none. Cores outside the mask come first, those of the mask's NUMA nodes before others; a core that
// shares its execution units with the mask (hyper-threads) is not free. Within the mask: the last cores, since OpenMP
// fills places from the first.
CpuSet SpareCores(hwloc_topology_t machine, hwloc_const_cpuset_t mask, int application_threads);

}  // namespace ramspan
