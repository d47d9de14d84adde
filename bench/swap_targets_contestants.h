// swap-targets: who is compared, and what each needs. Data and pure functions.
// Thread-safety: a constant.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/swap_area.h"

namespace ramspan::bench {

struct TargetContestant {
  enum class Store { kPlain, kMapped, kRamspan, kPages, kStxxl };
  enum class Servers { kNone, kNear, kFar, kRank };  // one; near: by load and store; far: by libfabric; a rank: by MPI

  const char* name;
  const char* what;
  Store store;
  Servers servers = Servers::kNone;
  double server_share = 1.5;  // of the data, what the server lends at most
  bool direct = false;        // files: O_DIRECT
  bool held = false;          // to the limit by its cgroup, because it has none of its own, or because page cache counts
  const SwapArea::Kind* swap = nullptr;  // of the kernel's

  bool ours() const { return store == Store::kRamspan || store == Store::kPages; }
  bool in_memory() const { return store == Store::kPlain && swap == nullptr; }
};

std::span<const TargetContestant> TargetContestants();
// Throws std::runtime_error, with all names.
const TargetContestant& FindTargetContestant(const std::string& name);

// What was asked for by --contestants and --access, all by default. Throw std::runtime_error.
std::vector<const TargetContestant*> ChosenTargetContestants(const BenchOptions& options);
std::vector<std::string> ChosenTargetAccesses(const BenchOptions& options);

}  // namespace ramspan::bench
