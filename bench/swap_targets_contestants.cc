#include "bench/swap_targets_contestants.h"

#include <algorithm>
#include <stdexcept>

#include "bench/experiment.h"
#include "bench/swap_targets_accesses.h"

namespace ramspan::bench {
namespace {

using Store = TargetContestant::Store;
using Servers = TargetContestant::Servers;

constexpr SwapArea::Kind kOnFile = SwapArea::Kind::kFile, kOnZram = SwapArea::Kind::kZram;

constexpr TargetContestant kTargetContestants[] = {
    {.name = "memory", .what = "`new`, all of it in memory", .store = Store::kPlain},
    {.name = "shared", .what = "Ramspan, a memory server on this node by load and store", .store = Store::kRamspan, .servers = Servers::kNear},
    {.name = "mpi", .what = "Ramspan, a memory server by one-sided MPI over tcp (loopback)", .store = Store::kRamspan, .servers = Servers::kRank},
    {.name = "ofi", .what = "Ramspan, a memory server by libfabric over tcp (loopback)", .store = Store::kRamspan, .servers = Servers::kFar},
    {.name = "files-direct", .what = "Ramspan, swap files, O_DIRECT", .store = Store::kRamspan, .direct = true},
    {.name = "files-buffered", .what = "Ramspan with 3/4 of the limit, swap files in the page cache, held to the limit together", .store = Store::kRamspan, .held = true},
    {.name = "tiers", .what = "Ramspan, a memory server on this node for 40 % of the data, swap files with O_DIRECT for the rest",
     .store = Store::kRamspan, .servers = Servers::kNear, .server_share = 0.4, .direct = true},
    {.name = "pages-shared", .what = "plain pointers into memory that Ramspan swaps by pages, a memory server on this node", .store = Store::kPages, .servers = Servers::kNear},
    {.name = "pages-direct", .what = "the same, swap files, O_DIRECT", .store = Store::kPages, .direct = true},
    {.name = "kernel-file", .what = "`new`, the kernel's swap on a file", .store = Store::kPlain, .held = true, .swap = &kOnFile},
    {.name = "kernel-zram", .what = "`new`, the kernel's swap on zram", .store = Store::kPlain, .held = true, .swap = &kOnZram},
    {.name = "mmap", .what = "a mapped file", .store = Store::kMapped, .held = true},
    {.name = "stxxl", .what = "stxxl::vector, O_DIRECT, its cache as large as the limit", .store = Store::kStxxl},
};

}  // namespace

std::span<const TargetContestant> TargetContestants() { return kTargetContestants; }

const TargetContestant& FindTargetContestant(const std::string& name) {
  std::string names;
  for (const TargetContestant& one : kTargetContestants) {
    if (name == one.name) return one;
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  throw std::runtime_error("--contestants: there is no \"" + name + "\"; there are " + names);
}

std::vector<const TargetContestant*> ChosenTargetContestants(const BenchOptions& options) {
  std::vector<const TargetContestant*> chosen;
  if (options.contestants.empty()) {
    for (const TargetContestant& one : kTargetContestants) chosen.push_back(&one);
  } else {
    for (const std::string& name : WordsOf(options.contestants)) chosen.push_back(&FindTargetContestant(name));
  }
  return chosen;
}

std::vector<std::string> ChosenTargetAccesses(const BenchOptions& options) {
  std::vector<std::string> all;
  std::string names;
  for (const TargetAccess& access : TargetAccesses()) {
    all.push_back(access.name);
    names += (names.empty() ? "" : ", ") + std::string(access.name);
  }
  if (options.accesses.empty()) return all;
  std::vector<std::string> chosen = WordsOf(options.accesses);
  for (const std::string& name : chosen) {
    if (std::find(all.begin(), all.end(), name) == all.end()) throw std::runtime_error("--access: there is no \"" + name + "\"; there are " + names);
  }
  return chosen;
}

}  // namespace ramspan::bench
