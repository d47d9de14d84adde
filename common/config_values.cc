#include "common/config_values.h"

#include <algorithm>
#include <bit>

#include "common/huge_page.h"
#include "common/units.h"

namespace ramspan {
namespace {

constexpr uint64_t kMemoryMin = uint64_t{1} << 20;
constexpr uint64_t kMemoryMax = uint64_t{1} << 46;
constexpr uint64_t kSwapMemoryMin = 4096;               // one slot of the smallest size
constexpr uint64_t kSwapMemoryMax = uint64_t{1} << 52;  // 2^40 granules: all that a slot allocator can count

constexpr uint64_t kPageBlockMin = 4096, kPageBlockMax = kHugePageBytes;  // larger ones would be moved with what is not used

// What people call the keys, as Plain() writes it.
constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
    {"limit", "memory"},       {"mem", "memory"},          {"ram", "memory"},          {"size", "memory"},
    {"memorylimit", "memory"}, {"memlimit", "memory"},     {"budget", "memory"},       {"disk", "swapmemory"},
    {"swapsize", "swapmemory"}, {"swaplimit", "swapmemory"}, {"dir", "swapfiles"},      {"swapdir", "swapfiles"},
    {"tmpdir", "swapfiles"},   {"direct", "enabledma"},    {"odirect", "enabledma"},   {"prefetch", "preemptive"},
    {"manager", "memorymanager"}, {"eviction", "memorymanager"}, {"statistics", "stats"},
};

// swapMemory and RAMSPAN_SWAP_MEMORY are the same word.
std::string Plain(std::string_view name, std::string_view prefix) {
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  std::string plain(name);
  for (char& c : plain) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::erase(plain, '_');
  return plain;
}

// Levenshtein's distance; texts are cut, since only near names matter.
size_t EditDistance(std::string_view a, std::string_view b) {
  a = a.substr(0, 64);
  b = b.substr(0, 64);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

Status SetBytes(const std::string& text, uint64_t min, uint64_t max, const char* remedy, uint64_t* out) {
  Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return bytes.status();
  if (bytes.value() < min || bytes.value() > max) {
    const std::string units = bytes.value() < min ? UnitsForgotten(text) : "";
    return InvalidArgument("\"" + Printable(text) + "\" is not between " + FormatBytes(min) + " and " +
                           FormatBytes(max) + units + remedy);
  }
  *out = bytes.value();
  return Status();
}

}  // namespace

Status SetMemory(const std::string& text, uint64_t* out) {
  return SetBytes(text, kMemoryMin, kMemoryMax, "; leave it out for half of the available memory", out);
}

Status SetSwapMemory(const std::string& text, uint64_t* out) {
  return SetBytes(text, kSwapMemoryMin, kSwapMemoryMax, "; to have no swap files, set swap = remote", out);
}

Status SetPageBlock(const std::string& text, uint64_t* out) {
  constexpr const char* kRemedy = "; of memory that is swapped by pages that is what moves as one: adaptive, or a power of two: 64 KiB for mixed use, 4 KiB for scattered use, 2 MiB (huge pages) for sweeps";
  if (text == "adaptive") return *out = kPageBlockAdapts, Status();
  if (text == "restless") return *out = kPageBlockRestless, Status();
  if (text.empty() || text[0] < '0' || text[0] > '9') return InvalidArgument("\"" + Printable(text) + "\" is neither adaptive nor a size in bytes" + kRemedy);
  uint64_t bytes = 0;
  if (Status status = SetBytes(text, kPageBlockMin, kPageBlockMax, kRemedy, &bytes); !status.ok()) return status;
  if (!std::has_single_bit(bytes)) return InvalidArgument("\"" + Printable(text) + "\" is no power of two" + kRemedy);
  *out = bytes;
  return Status();
}

Status SetPagesAbove(const std::string& text, uint64_t* out) {
  return SetBytes(text, kPageBlockMin, kMemoryMax, "; smaller allocations of the program are left to malloc", out);
}

Status SetSwitch(std::string text, bool* out) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return SetChoice<bool>(text,
                         {{"true", true}, {"false", false}, {"yes", true}, {"no", false}, {"on", true}, {"off", false},
                          {"1", true}, {"0", false}},
                         out);
}

// Rambrain's word for cyclic is known, too.
Status SetManager(const std::string& text, std::string* out) {
  std::string names;
  for (const char* name : kMemoryManagers) {
    if (text == name || (text == "cyclicManagedMemory" && name == std::string_view("cyclic"))) {
      *out = name;
      return Status();
    }
    names += std::string(name) + ", ";
  }
  return InvalidArgument("\"" + Printable(text) + "\" is not known; the choices are " + names + "cyclicManagedMemory");
}

Status SetTransport(const std::string& text, Transport* out) {
  return SetChoice<Transport>(
      text, {{"auto", Transport::kAuto}, {"mpi", Transport::kMpi}, {"ofi", Transport::kOfi}, {"none", Transport::kNone}}, out);
}

Status SetServers(const std::string& text, bool may_be_number, std::string* out) {
  const bool is_number = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!(is_number && may_be_number) && text.find_first_of(":/@") == std::string::npos && !text.empty()) {
    return InvalidArgument("\"" + Printable(text) + "\" is neither a list of memory servers, like node7:7117,node8:7117, nor (from the "
                           "launcher) a number of memory servers");
  }
  *out = is_number ? "" : text;
  return Status();
}

Status SetPolicy(const std::string& text, SwapPolicy* out) {
  return SetChoice<SwapPolicy>(text == "fixed" ? "fail" : text,  // Rambrain's word
                               {{"fail", SwapPolicy::kFail},
                                {"interactive", SwapPolicy::kInteractive},
                                {"autoextendable", SwapPolicy::kAutoextendable}},
                               out);
}

// The mask becomes a printf format, so nothing but the two %d may pass.
Status SetMask(const std::string& text, std::string* out) {
  size_t numbers = 0;
  bool others = false;
  for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at + 2)) {
    if (at + 1 < text.size() && text[at + 1] == 'd') {
      ++numbers;
    } else {
      others = true;
    }
  }
  if (numbers != 2 || others) {
    return InvalidArgument("\"" + Printable(text) + "\" must hold two %d (process id, file number) and no other %" +
                           "; for example /scratch/ramspan-%d-%d.swap");
  }
  *out = text;
  return Status();
}

std::string MeantName(std::string_view name, const std::vector<std::string>& names, std::string_view prefix) {
  std::string wanted = Plain(name, prefix);
  for (const auto& [word, key] : kSynonyms) {
    if (wanted == word) wanted = key;
  }
  const auto distance = [&](const std::string& known) { return EditDistance(wanted, Plain(known, prefix)); };
  const std::string& nearest = *std::min_element(
      names.begin(), names.end(), [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
  // With more than half of the letters wrong it is another word, and a guess misleads.
  const size_t length = std::max(wanted.size(), Plain(nearest, prefix).size());
  return 2 * distance(nearest) <= length ? nearest : "";
}

}  // namespace ramspan
