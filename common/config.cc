#include "common/config.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <string_view>
#include <utility>

#include "common/config_file.h"
#include "common/config_rambrain.h"
#include "common/config_values.h"
#include "common/log.h"

namespace ramspan {
namespace {

namespace po = boost::program_options;

constexpr std::string_view kTestPrefix = "RAMSPAN_TEST_";  // fail points and the like, read by who defines them

// Read by the launcher, the servers, the log and ProcessConfigSources; not keys, so no file can set them. What the launcher
// sets is no advice for a user.
constexpr const char* kUsersVariables[] = {"RAMSPAN_CONFIG", "RAMSPAN_LOG"};
constexpr const char* kLaunchersVariables[] = {"RAMSPAN_SERVER_MEMORY", "RAMSPAN_RUN_DIR"};

// `meant` may be empty: nothing is near.
std::string DidYouMean(const std::string& meant, const char* quote) {
  return meant.empty() ? "docs/configuration.md lists them." : std::string("did you mean ") + quote + meant + quote + "?";
}

// swapMemory -> RAMSPAN_SWAP_MEMORY, enableDMA -> RAMSPAN_ENABLE_DMA.
std::string EnvironmentName(const std::string& key) {
  std::string name(kEnvironmentPrefix);
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  for (size_t i = 0; i < key.size(); ++i) {
    if (i > 0 && is_upper(key[i]) && !is_upper(key[i - 1])) name += '_';
    name += is_upper(key[i]) ? key[i] : static_cast<char>(key[i] - 'a' + 'A');
  }
  return name;
}

// ---- Sources ----

struct Setting {
  std::string key;
  std::string value;
  std::string where;  // for messages
};

// What the program set, as text: one path of checks for all sources.
std::vector<Setting> ProgramSettings(const Options& options) {
  std::vector<Setting> settings;
  const auto add = [&settings](const char* key, std::string value) {
    settings.push_back({key, std::move(value), "program call"});
  };
  const auto add_switch = [&add](const char* key, const std::optional<bool>& value) {
    if (value) add(key, *value ? "true" : "false");
  };
  if (options.memory) add("memory", std::to_string(*options.memory));
  if (options.swapMemory) add("swapMemory", std::to_string(*options.swapMemory));
  if (options.memoryManager) add("memoryManager", *options.memoryManager);
  if (options.swap) add("swap", *options.swap);
  if (options.swapfiles) add("swapfiles", *options.swapfiles);
  add_switch("enableDMA", options.enableDMA);
  if (options.policy) {
    add("policy", *options.policy == SwapPolicy::kFail          ? "fail"
                  : *options.policy == SwapPolicy::kInteractive ? "interactive"
                                                                : "autoextendable");
  }
  if (options.transport) {
    add("transport", *options.transport == Transport::kAuto  ? "auto"
                     : *options.transport == Transport::kMpi ? "mpi"
                     : *options.transport == Transport::kOfi ? "ofi"
                                                             : "none");
  }
  if (options.servers) add("servers", *options.servers);
  if (options.serverKeyFile) add("serverKeyFile", *options.serverKeyFile);
  if (options.fabricProvider) add("fabricProvider", *options.fabricProvider);
  add_switch("checksum", options.checksum);
  add_switch("preemptive", options.preemptive);
  add_switch("debug", options.debug);
  add_switch("bundles", options.bundles);
  if (options.stats) add("stats", *options.stats);
  if (options.trace) add("trace", *options.trace);
  return settings;
}

// Resolves one Config. Sources are applied from the lowest priority to the highest, so that a mistake is reported even
// where a better source overrides it: a file that is wrong today is wrong for the next program.
class Loader {
 public:
  explicit Loader(const ConfigSources& sources) : sources_(sources) { DescribeKeys(); }
  Loader(const Loader&) = delete;  // keys_ points to this
  Loader& operator=(const Loader&) = delete;

  Result<Config> Load();

 private:
  void DescribeKeys();
  template <typename Setter>
  void AddKey(const char* key, Setter setter, const char* meaning);

  Status ApplyFile(const std::string& path, bool must_exist);
  Status ApplyBlock(const ConfigBlock& block, const std::string& path);
  Status ApplyEnvironment();
  Status Apply(const std::vector<Setting>& settings, const std::string& place);
  Status CheckEnvironmentNames() const;
  const char* Environment(const std::string& name) const;  // nullptr when unset or empty
  std::vector<std::string> Keys() const;

  const ConfigSources& sources_;
  po::options_description keys_;
  Config config_;

  // Of the source that is being applied.
  ConfigDialect dialect_ = ConfigDialect::kRamspan;
  std::map<std::string, std::string> where_;
  Status failure_;
};

template <typename Setter>
void Loader::AddKey(const char* key, Setter setter, const char* meaning) {
  const auto store = [this, key, setter](const std::string& text) {
    const Status status = setter(text);
    if (status.ok()) {
      config_.source[key] = where_[key];
    } else if (dialect_ == ConfigDialect::kRambrain) {
      config_.passed_over.push_back(where_[key] + ": " + key + ": " + status.message());
    } else if (failure_.ok()) {
      failure_ = InvalidArgument(where_[key] + ": " + key + ": " + status.message());
    }
  };
  keys_.add_options()(key, po::value<std::string>()->notifier(store), meaning);
}

void Loader::DescribeKeys() {
  Config& c = config_;
  const auto memory = [&c](const std::string& text) {
    return SetMemory(text, &c.memory);
  };
  const auto swap_memory = [&c](const std::string& text) {
    return SetSwapMemory(text, &c.swap_memory);
  };
  const auto manager = [&c](const std::string& text) {
    return SetManager(text, &c.memory_manager);
  };
  const auto swap = [&c](const std::string& text) {
    return SetChoice<std::string>(
        text, {{"auto", "auto"}, {"file", "file"}, {"managedFileSwap", "file"}, {"remote", "remote"}}, &c.swap);
  };
  const auto mask = [&c](const std::string& text) { return SetMask(text, &c.swapfiles); };
  const auto dma = [&c](const std::string& text) { return SetSwitch(text, &c.enable_dma); };
  const auto policy = [&c](const std::string& text) { return SetPolicy(text, &c.policy); };
  const auto transport = [&c](const std::string& text) { return SetTransport(text, &c.transport); };
  const auto servers = [this, &c](const std::string& text) { return SetServers(text, where_["servers"].starts_with("environment"), &c.servers); };
  const auto key_file = [&c](const std::string& text) {
    c.server_key_file = text;
    return Status();
  };
  const auto provider = [&c](const std::string& text) {
    c.fabric_provider = text;
    return Status();
  };
  const auto checksum = [&c](const std::string& text) { return SetSwitch(text, &c.checksum); };
  const auto preemptive = [&c](const std::string& text) { return SetSwitch(text, &c.preemptive); };
  const auto debug = [&c](const std::string& text) { return SetSwitch(text, &c.debug); };
  const auto bundles = [&c](const std::string& text) { return SetSwitch(text, &c.bundles); };
  const auto stats = [&c](const std::string& text) {
    c.stats = text;  // an empty one switches off what a file of lower priority set
    return Status();
  };
  const auto trace = [&c](const std::string& text) {
    c.trace = text;
    return Status();
  };
  const auto page_block = [&c](const std::string& text) { return SetPageBlock(text, &c.page_block); };
  const auto page_faults = [&c](const std::string& text) {
    return SetChoice<FaultMode>(text, {{"auto", FaultMode::kAuto}, {"thread", FaultMode::kThread}, {"signal", FaultMode::kSignal}, {"protect", FaultMode::kProtect}}, &c.page_faults);
  };
  const auto page_moves = [&c](const std::string& text) {
    return SetChoice<PageMoves>(text, {{"auto", PageMoves::kAuto}, {"move", PageMoves::kMove}, {"copy", PageMoves::kCopy}}, &c.page_moves);
  };
  const auto page_children = [&c](const std::string& text) { return SetChoice<bool>(text, {{"copy", true}, {"none", false}}, &c.page_children); };
  const auto pages_above = [&c](const std::string& text) { return SetPagesAbove(text, &c.pages_above); };
  AddKey("memory", memory, "hard limit of local memory");
  AddKey("swapMemory", swap_memory, "most bytes of local swap files");
  AddKey("memoryManager", manager, "who leaves when memory is full");
  AddKey("swap", swap, "where chunks go: remote memory, files, or both");
  AddKey("swapfiles", mask, "mask of swap file names");
  AddKey("enableDMA", dma, "bypass the page cache");
  AddKey("policy", policy, "what to do when the swap files are full");
  AddKey("transport", transport, "the way to the servers");
  AddKey("servers", servers, "memory servers outside of this job, as host:port,host:port");
  AddKey("serverKeyFile", key_file, "file with the secret that is shared with those servers");
  AddKey("fabricProvider", provider, "libfabric's provider for those servers, by name");
  AddKey("checksum", checksum, "verify what comes back from swap");
  AddKey("preemptive", preemptive, "read ahead, write back ahead");
  AddKey("debug", debug, "catch pointers used after their adhereTo, and forgotten const");
  AddKey("bundles", bundles, "objects smaller than a page share chunks");
  AddKey("stats", stats, "file for the statistics");
  AddKey("trace", trace, "file for the accesses, which `ramspan bench policy` replays");
  AddKey("pageBlock", page_block, "what is swapped as one of memory that is swapped by pages");
  AddKey("pageFaults", page_faults, "who brings such memory when it is touched");
  AddKey("pageMoves", page_moves, "how its pages come and leave");
  AddKey("pageChildren", page_children, "whether forked children get a copy of such memory when they use it");
  AddKey("pagesAbove", pages_above, "the least allocation that ramspan run --pages swaps by pages");
}

std::vector<std::string> Loader::Keys() const {
  std::vector<std::string> keys;
  for (const auto& option : keys_.options()) keys.push_back(option->long_name());
  return keys;
}

const char* Loader::Environment(const std::string& name) const {
  const char* value = sources_.getenv ? sources_.getenv(name.c_str()) : nullptr;
  return value == nullptr || *value == '\0' ? nullptr : value;
}

Status Loader::Apply(const std::vector<Setting>& settings, const std::string& place) {
  where_.clear();
  po::parsed_options parsed(&keys_);
  for (const Setting& setting : settings) {
    std::string wrong;
    if (keys_.find_nothrow(setting.key, /*approx=*/false) == nullptr) {
      wrong = setting.where + ": unknown key \"" + Printable(setting.key) + "\"" + place + "; " +
              DidYouMean(MeantName(setting.key, Keys()), "\"");
    } else if (const auto [first, fresh] = where_.emplace(setting.key, setting.where); !fresh) {
      wrong = setting.where + ": key \"" + setting.key + "\" is already set at " + first->second +
              "; remove one of the two";
    }
    if (wrong.empty()) {
      parsed.options.emplace_back(setting.key, std::vector<std::string>{setting.value});
    } else if (dialect_ == ConfigDialect::kRambrain) {
      config_.passed_over.push_back(wrong);
    } else {
      return InvalidArgument(wrong);
    }
  }
  po::variables_map values;
  po::store(parsed, values);
  po::notify(values);
  return failure_;
}

Status Loader::ApplyBlock(const ConfigBlock& block, const std::string& path) {
  std::vector<Setting> settings;
  const char* home = Environment("HOME");
  for (const ConfigEntry& entry : block.entries) {
    const bool rambrain = dialect_ == ConfigDialect::kRambrain;
    const std::string value = rambrain ? FromRambrainsValue(entry.key, entry.value, home ? home : "") : entry.value;
    settings.push_back({entry.key, value, path + ":" + std::to_string(entry.line)});
  }
  return Apply(settings, " in block [" + Printable(block.name) + "]");
}

Status Loader::ApplyFile(const std::string& path, bool must_exist) {
  Result<std::optional<std::string>> text = ReadConfigFile(path);
  if (!text.ok()) return text.status();
  if (!text.value()) {
    if (!must_exist) return Status();
    return InvalidArgument(path + ": no such file is found; RAMSPAN_CONFIG or Options::customConfig names it");
  }
  Result<std::vector<ConfigBlock>> blocks = ParseConfigText(*text.value(), path, dialect_, &config_.passed_over);
  if (!blocks.ok()) return blocks.status();

  // The program's own block last: it beats [default]. Later blocks of a name do not count.
  for (const std::string_view name : {std::string_view("default"), std::string_view(sources_.program_name)}) {
    const auto named = [name](const ConfigBlock& block) { return block.name == name; };
    const auto block = std::find_if(blocks.value().begin(), blocks.value().end(), named);
    if (block == blocks.value().end()) continue;
    Status status = ApplyBlock(*block, path);
    if (!status.ok()) return status;
  }
  return Status();
}

Status Loader::ApplyEnvironment() {
  std::vector<Setting> settings;
  for (const std::string& key : Keys()) {
    const std::string name = EnvironmentName(key);
    if (const char* value = Environment(name)) settings.push_back({key, value, "environment " + name});
  }
  return Apply(settings, "");
}

Status Loader::CheckEnvironmentNames() const {
  std::vector<std::string> users(std::begin(kUsersVariables), std::end(kUsersVariables));
  for (const std::string& key : Keys()) users.push_back(EnvironmentName(key));
  std::vector<std::string> known = users;
  known.insert(known.end(), std::begin(kLaunchersVariables), std::end(kLaunchersVariables));
  for (const std::string& name : sources_.environment_names) {
    if (!name.starts_with(kEnvironmentPrefix) || name.starts_with(kTestPrefix)) continue;
    if (Environment(name) == nullptr || std::find(known.begin(), known.end(), name) != known.end()) continue;
    return InvalidArgument("environment " + Printable(name) + ": unknown variable; " +
                           DidYouMean(MeantName(name, users, kEnvironmentPrefix), "") +
                           " Unset it if it is not meant for Ramspan");
  }
  if (const char* log = Environment("RAMSPAN_LOG")) {
    int ignored = 0;
    const Status status = SetChoice<int>(log, {{"off", 0}, {"warn", 1}, {"info", 2}}, &ignored);
    if (!status.ok()) return InvalidArgument("environment RAMSPAN_LOG: " + status.message());
  }
  return Status();
}

Result<Config> Loader::Load() {
  config_.swapfiles = sources_.swapfiles_default;
  for (size_t i = sources_.files.size(); i-- > 0;) {
    dialect_ = sources_.rambrain_files.count(sources_.files[i]) != 0 ? ConfigDialect::kRambrain : ConfigDialect::kRamspan;
    Status status = ApplyFile(sources_.files[i], i == 0 && sources_.first_file_is_custom);
    if (!status.ok()) return status;
  }
  dialect_ = ConfigDialect::kRamspan;
  Status status = CheckEnvironmentNames();
  if (status.ok()) status = ApplyEnvironment();
  if (status.ok()) status = Apply(ProgramSettings(sources_.program), "");
  if (!status.ok()) return status;
  return std::move(config_);
}

}  // namespace

Result<Config> LoadConfig(const ConfigSources& sources) {
  // Boost reports by exceptions. All that a user can do wrong is found before Boost sees it; this is for the rest.
  try {
    return Loader(sources).Load();
  } catch (const po::error& error) {
    return InvalidArgument(std::string("configuration: ") + error.what());
  }
}

void WarnOfPassedOver(const Config& config) {
  if (config.passed_over.empty()) return;
  const size_t more = config.passed_over.size() - 1;
  LogWarning("%s%s. Lines like this in Rambrain's configuration files are passed over", config.passed_over[0].c_str(),
             more == 0 ? "" : (" (and " + std::to_string(more) + " more)").c_str());
}

}  // namespace ramspan
