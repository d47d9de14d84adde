#include "common/config.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cerrno>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "common/config_file.h"
#include "common/config_rambrain.h"
#include "common/log.h"
#include "common/units.h"

namespace ramspan {
namespace {

namespace po = boost::program_options;

constexpr uint64_t kMemoryMin = uint64_t{1} << 20;
constexpr uint64_t kMemoryMax = uint64_t{1} << 46;
constexpr uint64_t kSwapMemoryMin = 4096;               // one slot of the smallest size
constexpr uint64_t kSwapMemoryMax = uint64_t{1} << 52;  // 2^40 granules: all that a slot allocator can count
constexpr std::string_view kEnvironmentPrefix = "RAMSPAN_";
constexpr std::string_view kTestPrefix = "RAMSPAN_TEST_";  // fail points and the like, read by who defines them

// Read by the launcher, the servers, the log and ProcessConfigSources; not keys, so no file can set them.
constexpr const char* kOtherVariables[] = {"RAMSPAN_CONFIG", "RAMSPAN_LOG", "RAMSPAN_SERVERS", "RAMSPAN_SERVER_MEMORY",
                                           "RAMSPAN_RUN_DIR"};

// ---- Values: text to a typed field, or what is wrong with it. ----

Status SetBytes(const std::string& text, uint64_t min, uint64_t max, const char* remedy, uint64_t* out) {
  Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return bytes.status();
  if (bytes.value() < min || bytes.value() > max) {
    return InvalidArgument("\"" + Printable(text) + "\" is not between " + FormatBytes(min) + " and " +
                           FormatBytes(max) + remedy);
  }
  *out = bytes.value();
  return Status();
}

template <typename T>
Status SetChoice(const std::string& text, std::initializer_list<std::pair<const char*, T>> choices, T* out) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (text == name) {
      *out = value;
      return Status();
    }
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return InvalidArgument("\"" + Printable(text) + "\" is not known; the choices are " + names);
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
  if (text == "ofi") {
    return InvalidArgument("\"ofi\": this version has no libfabric transport yet; the choices are auto, mpi, none");
  }
  return SetChoice<Transport>(
      text, {{"auto", Transport::kAuto}, {"mpi", Transport::kMpi}, {"none", Transport::kNone}}, out);
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

// ---- Names ----

// Levenshtein's distance, regardless of case; texts are cut, since only near names matter.
size_t EditDistance(std::string_view a, std::string_view b) {
  a = a.substr(0, 64);
  b = b.substr(0, 64);
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : static_cast<int>(c); };
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

// REQUIRES: names is not empty.
std::string Nearest(std::string_view name, const std::vector<std::string>& names) {
  return *std::min_element(names.begin(), names.end(), [name](const std::string& a, const std::string& b) {
    return EditDistance(name, a) < EditDistance(name, b);
  });
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
                                                             : "none");
  }
  add_switch("checksum", options.checksum);
  add_switch("preemptive", options.preemptive);
  add_switch("debug", options.debug);
  add_switch("bundles", options.bundles);
  if (options.stats) add("stats", *options.stats);
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
    return SetBytes(text, kMemoryMin, kMemoryMax, "; leave it out for half of the available memory", &c.memory);
  };
  const auto swap_memory = [&c](const std::string& text) {
    return SetBytes(text, kSwapMemoryMin, kSwapMemoryMax, "; to have no swap files, set swap = remote", &c.swap_memory);
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
  const auto checksum = [&c](const std::string& text) { return SetSwitch(text, &c.checksum); };
  const auto preemptive = [&c](const std::string& text) { return SetSwitch(text, &c.preemptive); };
  const auto debug = [&c](const std::string& text) { return SetSwitch(text, &c.debug); };
  const auto bundles = [&c](const std::string& text) { return SetSwitch(text, &c.bundles); };
  const auto stats = [&c](const std::string& text) {
    c.stats = text;  // an empty one switches off what a file of lower priority set
    return Status();
  };
  AddKey("memory", memory, "hard limit of local memory");
  AddKey("swapMemory", swap_memory, "most bytes of local swap files");
  AddKey("memoryManager", manager, "who leaves when memory is full");
  AddKey("swap", swap, "where chunks go: remote memory, files, or both");
  AddKey("swapfiles", mask, "mask of swap file names");
  AddKey("enableDMA", dma, "bypass the page cache");
  AddKey("policy", policy, "what to do when the swap files are full");
  AddKey("transport", transport, "the way to the servers");
  AddKey("checksum", checksum, "verify what comes back from swap");
  AddKey("preemptive", preemptive, "read ahead, write back ahead");
  AddKey("debug", debug, "catch pointers used after their adhereTo, and forgotten const");
  AddKey("bundles", bundles, "objects smaller than a page share chunks");
  AddKey("stats", stats, "file for the statistics");
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
      wrong = setting.where + ": unknown key \"" + Printable(setting.key) + "\"" + place + "; did you mean \"" +
              Nearest(setting.key, Keys()) + "\"?";
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
  std::vector<std::string> known(std::begin(kOtherVariables), std::end(kOtherVariables));
  for (const std::string& key : Keys()) known.push_back(EnvironmentName(key));
  for (const std::string& name : sources_.environment_names) {
    if (!name.starts_with(kEnvironmentPrefix) || name.starts_with(kTestPrefix)) continue;
    if (Environment(name) == nullptr || std::find(known.begin(), known.end(), name) != known.end()) continue;
    return InvalidArgument("environment " + Printable(name) + ": unknown variable; did you mean " +
                           Nearest(name, known) + "? Unset it if it is not meant for Ramspan");
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

std::string ProgramName() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return program_invocation_short_name;  // no /proc
  const std::string_view name(path, static_cast<size_t>(length));
  return std::string(name.substr(name.rfind('/') + 1));
}

}  // namespace

ConfigSources ProcessConfigSources(const Options& program) {
  ConfigSources sources;
  sources.program = program;
  sources.getenv = [](const char* name) -> const char* { return std::getenv(name); };
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with(kEnvironmentPrefix)) sources.environment_names.emplace_back(text.substr(0, text.find('=')));
  }
  sources.program_name = ProgramName();

  const auto is_set = [](const char* value) { return value != nullptr && *value != '\0'; };
  const char* custom = program.customConfig ? program.customConfig->c_str() : std::getenv("RAMSPAN_CONFIG");
  if (is_set(custom)) {
    sources.files.emplace_back(custom);
    sources.first_file_is_custom = !program.rambrain;
    if (program.rambrain && program.customConfig) sources.rambrain_files.insert(custom);
  }
  if (program.rambrain) sources.swapfiles_default = "rambrainswap-%d-%d";
  const char* home = std::getenv("HOME");
  if (is_set(home)) {
    if (program.rambrain) {
      sources.files.push_back(std::string(home) + "/.rambrain.conf");
      sources.rambrain_files.insert(sources.files.back());
    }
    sources.files.push_back(std::string(home) + "/.ramspan.conf");
  }
  if (program.rambrain) {
    sources.files.emplace_back("/etc/rambrain.conf");
    sources.rambrain_files.insert(sources.files.back());
  }
  sources.files.emplace_back("/etc/ramspan.conf");
  return sources;
}

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
