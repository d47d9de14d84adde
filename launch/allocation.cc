#include "launch/allocation.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>
#include <system_error>
#include <unordered_map>

namespace ramspan {

std::optional<int> PositiveNumber(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

namespace {

// Of a cluster that exists; a list that says more is a mistake, or an attack on our memory.
constexpr size_t kNodesMax = 100'000;
constexpr size_t kHostNameMax = 255;  // the domain name system's limit: what names of so many nodes take is bounded, too
constexpr size_t kHostsDescribed = 8;
constexpr int kSlotsMax = 20'000;  // of one host; the sum over kNodesMax hosts is still an int

using GetEnv = std::function<const char*(const char*)>;

std::string Variable(const GetEnv& getenv, const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

// Cuts at commas that are in no brackets.
std::vector<std::string> Parts(const std::string& list) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : list) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

std::optional<unsigned long> Digits(const std::string& text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::stoul(text);
}

// "07-12" or "3": with as many digits as the first has.
bool AppendRange(const std::string& prefix, const std::string& range, std::vector<std::string>* names) {
  const size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const std::optional<unsigned long> begin = Digits(first), end = dash == std::string::npos ? begin : Digits(range.substr(dash + 1));
  if (prefix.size() > kHostNameMax || !begin || !end || *end < *begin || *end - *begin >= kNodesMax - std::min(names->size(), kNodesMax)) return false;
  for (unsigned long number = *begin; number <= *end; ++number) {
    std::string digits = std::to_string(number);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    names->push_back(prefix + digits);
  }
  return true;
}

// Each of the names with each of the ends behind it.
bool Lengthen(std::vector<std::string>* names, const std::vector<std::string>& ends) {
  if (names->size() * ends.size() > kNodesMax) return false;
  std::vector<std::string> longer;
  for (const std::string& name : *names) {
    for (const std::string& end : ends) {
      if (name.size() + end.size() > kHostNameMax) return false;
      longer.push_back(name + end);
    }
  }
  names->swap(longer);
  return true;
}

// Names with two ranges exist ("r[1-2]n[1-4]-ib"): each number of the first is followed by each of the second.
bool AppendNodes(const std::string& part, std::vector<std::string>* names) {
  std::vector<std::string> made = {""};
  for (size_t at = 0; at < part.size();) {
    const size_t open = part.find('[', at), close = part.find(']', at);
    if (close < open || (close == std::string::npos && open != close)) return false;
    std::vector<std::string> ends;
    if (open == std::string::npos) {
      ends.push_back(part.substr(at));
      at = part.size();
    } else {
      for (const std::string& range : Parts(part.substr(open + 1, close - open - 1))) {
        if (!AppendRange(part.substr(at, open - at), range, &ends)) return false;
      }
      at = close + 1;
    }
    if (!Lengthen(&made, ends)) return false;
  }
  names->insert(names->end(), made.begin(), made.end());
  return !part.empty() && names->size() <= kNodesMax;
}

// Hosts in the order in which they were named first.
class HostsByName {
 public:
  explicit HostsByName(std::vector<HostSlots>* hosts) : hosts_(*hosts) {}
  HostSlots& operator[](const std::string& name) {
    const auto [place, is_new] = places_.try_emplace(name, hosts_.size());
    if (is_new) hosts_.push_back({name, 0});
    return hosts_[place->second];
  }

 private:
  std::vector<HostSlots>& hosts_;
  std::unordered_map<std::string, size_t> places_;
};

Allocation SlurmAllocation(const GetEnv& getenv) {
  Allocation allocation{.system = "SLURM"};
  std::string nodes = Variable(getenv, "SLURM_NNODES");
  if (nodes.empty()) nodes = Variable(getenv, "SLURM_JOB_NUM_NODES");
  allocation.nodes = PositiveNumber(nodes).value_or(1);
  allocation.tasks = PositiveNumber(Variable(getenv, "SLURM_NTASKS"));
  const std::vector<std::string> names = ExpandNodes(Variable(getenv, "SLURM_JOB_NODELIST"));
  const std::vector<int> slots = ExpandCounts(Variable(getenv, "SLURM_TASKS_PER_NODE"));
  if (names.size() != slots.size() || names.size() != static_cast<size_t>(allocation.nodes)) return allocation;
  for (size_t i = 0; i < names.size(); ++i) allocation.hosts.push_back({names[i], slots[i]});
  return allocation;
}

Allocation PbsAllocation(const std::string& text) {
  Allocation allocation{.system = "PBS"};
  std::istringstream lines(text);
  HostsByName hosts(&allocation.hosts);
  int tasks = 0;
  for (std::string name; lines >> name; ++tasks) ++hosts[name].slots;
  if (tasks == 0) return {};
  allocation.nodes = static_cast<int>(allocation.hosts.size());
  allocation.tasks = tasks;
  return allocation;
}

std::string DescribeSome(int count, const char* what, const std::vector<HostSlots>& hosts) {
  std::string text = std::to_string(count) + " " + what + (count == 1 ? "" : "s") + " on";
  for (size_t i = 0; i < std::min(hosts.size(), kHostsDescribed); ++i) text += " " + hosts[i].name;
  if (hosts.size() > kHostsDescribed) text += " ... (" + std::to_string(hosts.size()) + " nodes)";
  return text;
}

int Sum(const std::vector<HostSlots>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, const HostSlots& one) { return sum + one.slots; });
}

// Takes `count` slots off the front.
std::vector<HostSlots> Fill(const std::vector<HostSlots>& hosts, int skip, int count) {
  std::vector<HostSlots> filled;
  for (const HostSlots& host : hosts) {
    const int skipped = std::min(skip, host.slots), taken = std::min(count, host.slots - skipped);
    skip -= skipped;
    count -= taken;
    if (taken > 0) filled.push_back({host.name, taken});
  }
  return filled;
}

std::vector<HostSlots> Spread(const HostSlots* hosts, size_t host_count, int count) {
  std::vector<HostSlots> spread;
  const int all = static_cast<int>(host_count);
  for (int i = 0; i < std::min(all, count); ++i) spread.push_back({hosts[i].name, count / all + (i < count % all ? 1 : 0)});
  return spread;
}

}  // namespace

std::vector<std::string> ExpandNodes(const std::string& list) {
  std::vector<std::string> names;
  for (const std::string& part : Parts(list)) {
    if (!AppendNodes(part, &names)) return {};
  }
  return names;
}

std::vector<int> ExpandCounts(const std::string& list) {
  std::vector<int> counts;
  for (const std::string& part : Parts(list)) {
    const size_t times = part.find("(x");
    const std::optional<int> count = PositiveNumber(part.substr(0, times));
    std::optional<int> repeated = 1;
    if (times != std::string::npos && part.back() == ')') repeated = PositiveNumber(part.substr(times + 2, part.size() - times - 3));
    else if (times != std::string::npos) return {};
    if (!count || *count > kSlotsMax || !repeated || counts.size() + static_cast<size_t>(*repeated) > kNodesMax) return {};
    counts.insert(counts.end(), static_cast<size_t>(*repeated), *count);
  }
  return counts;
}

Allocation FindAllocation(const GetEnv& getenv, const std::function<Result<std::string>(const std::string&)>& read_file) {
  if (!Variable(getenv, "SLURM_JOB_ID").empty()) return SlurmAllocation(getenv);
  const std::string file = Variable(getenv, "PBS_NODEFILE");
  if (Variable(getenv, "PBS_JOBID").empty() || file.empty()) return {};
  const Result<std::string> text = read_file(file);
  return text.ok() ? PbsAllocation(text.value()) : Allocation{};
}

std::optional<Placement> Place(const std::vector<HostSlots>& hosts, int ranks, int servers, bool servers_come_behind) {
  if (Sum(hosts) < ranks) return std::nullopt;
  Placement placement{.ranks = Fill(hosts, 0, ranks), .servers = {}};
  const size_t used = placement.ranks.size();
  placement.servers_alone = used < hosts.size();
  if (placement.servers_alone) {
    placement.servers = Spread(hosts.data() + used, hosts.size() - used, servers);
  } else if (!servers_come_behind) {
    placement.servers = Spread(hosts.data(), hosts.size(), servers);
  } else {
    placement.servers = Fill(hosts, ranks, servers);
    if (Sum(placement.servers) < servers) return std::nullopt;
  }
  return placement;
}

std::string Describe(const Placement& placement) {
  std::string text = DescribeSome(Sum(placement.ranks), "rank", placement.ranks);
  if (!placement.servers.empty()) text += ", " + DescribeSome(Sum(placement.servers), "server", placement.servers);
  return text;
}

std::string HostList(const std::vector<HostSlots>& hosts) {
  std::string list;
  for (size_t i = 0; i < hosts.size(); ++i) {
    // hydra wants each host once.
    int slots = hosts[i].slots;
    while (i + 1 < hosts.size() && hosts[i + 1].name == hosts[i].name) slots += hosts[++i].slots;
    list += (list.empty() ? "" : ",") + hosts[i].name + ":" + std::to_string(slots);
  }
  return list;
}

HostFile ParseHostFile(const std::string& text) {
  HostFile file;
  HostsByName hosts(&file.hosts);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word, option;
    if (!(words >> word)) continue;
    const size_t colon = word.find(':');
    const int slots = colon == std::string::npos ? 1 : PositiveNumber(word.substr(colon + 1)).value_or(0);
    HostSlots& host = hosts[word.substr(0, colon)];
    const bool comes_again = &host != &file.hosts.back();
    file.slots += static_cast<uint64_t>(slots);
    file.is_special |= host.name.empty() || slots == 0 || slots > kSlotsMax - host.slots || (words >> option) || comes_again;
    if (!file.is_special) host.slots += slots;
  }
  file.is_special |= file.hosts.size() > kNodesMax;
  return file;
}

}  // namespace ramspan
