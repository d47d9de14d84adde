#include "common/spare_cores.h"

#include <algorithm>
#include <vector>

namespace ramspan {
namespace {

CpuSet EmptySet() { return CpuSet(hwloc_bitmap_alloc()); }

std::vector<hwloc_const_cpuset_t> Cores(hwloc_topology_t machine) {
  // A container may hide which hardware threads form a core; each then counts as one.
  const bool has_cores = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_CORE) > 0;
  std::vector<hwloc_const_cpuset_t> cores;
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(machine, has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU, core)) != nullptr) {
    cores.push_back(core->cpuset);
  }
  return cores;
}

CpuSet CoresOutside(hwloc_topology_t machine, hwloc_const_cpuset_t mask) {
  CpuSet outside = EmptySet();
  for (const hwloc_const_cpuset_t core : Cores(machine)) {
    if (!hwloc_bitmap_intersects(core, mask)) hwloc_bitmap_or(outside.get(), outside.get(), core);
  }
  hwloc_bitmap_and(outside.get(), outside.get(), hwloc_topology_get_allowed_cpuset(machine));

  CpuSet near = EmptySet();
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    if (hwloc_bitmap_intersects(node->cpuset, mask)) hwloc_bitmap_or(near.get(), near.get(), node->cpuset);
  }
  hwloc_bitmap_and(near.get(), near.get(), outside.get());
  return hwloc_bitmap_iszero(near.get()) ? std::move(outside) : std::move(near);
}

CpuSet LastCoresInside(hwloc_topology_t machine, hwloc_const_cpuset_t mask, int application_threads) {
  std::vector<hwloc_const_cpuset_t> inside;
  for (const hwloc_const_cpuset_t core : Cores(machine)) {
    if (hwloc_bitmap_intersects(core, mask)) inside.push_back(core);
  }
  CpuSet spare = EmptySet();
  for (size_t i = static_cast<size_t>(std::max(application_threads, 1)); i < inside.size(); ++i) {
    hwloc_bitmap_or(spare.get(), spare.get(), inside[i]);
  }
  hwloc_bitmap_and(spare.get(), spare.get(), mask);
  return spare;
}

}  // namespace

CpuSet SpareCores(hwloc_topology_t machine, hwloc_const_cpuset_t mask, int application_threads) {
  CpuSet outside = CoresOutside(machine, mask);
  if (!hwloc_bitmap_iszero(outside.get())) return outside;
  return LastCoresInside(machine, mask, application_threads);
}

}  // namespace ramspan
