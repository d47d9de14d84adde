#include "common/config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "common/config_file.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// Sources that a test fills in: files below a temporary folder and an environment of its own.
class ConfigOf : public testing::Test {
 protected:
  ConfigOf() {
    std::string name = testing::TempDir() + "ramspan-config-XXXXXX";
    root_ = ::mkdtemp(name.data());
    sources_.program_name = "app";
    sources_.getenv = [this](const char* variable) -> const char* {
      const auto found = environment_.find(variable);
      return found == environment_.end() ? nullptr : found->second.c_str();
    };
  }
  ~ConfigOf() override { std::filesystem::remove_all(root_); }

  // Adds a file below the ones already there; returns its path.
  std::string AddFile(const std::string& name, const std::string& text) {
    const std::string path = root_ / name;
    std::ofstream(path, std::ios::binary) << text;
    sources_.files.push_back(path);
    return path;
  }
  void SetEnvironment(const std::string& name, const std::string& value) {
    environment_[name] = value;
    sources_.environment_names.push_back(name);
  }
  Config Loaded() {
    Result<Config> config = LoadConfig(sources_);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? config.value() : Config();
  }
  std::string Error() {
    const Result<Config> config = LoadConfig(sources_);
    EXPECT_FALSE(config.ok());
    if (config.ok()) return "";
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
    return config.status().message();
  }
  // The error of a file that holds `text`, without the path in front.
  std::string FileError(const std::string& text) {
    sources_.files.clear();
    const std::string path = AddFile("one.conf", text);
    const std::string error = Error();
    EXPECT_TRUE(error.starts_with(path + ":")) << error;
    return error.substr(std::min(error.size(), path.size()));
  }
  Config FromFile(const std::string& text) {
    sources_.files.clear();
    AddFile("one.conf", text);
    return Loaded();
  }
  // A program that sets one key in [default]: accepted or not.
  bool Accepts(const std::string& setting) {
    sources_.files.clear();
    AddFile("one.conf", "[default]\n" + setting + "\n");
    return LoadConfig(sources_).ok();
  }

  std::filesystem::path root_;
  std::map<std::string, std::string> environment_;
  ConfigSources sources_;
};

TEST_F(ConfigOf, NothingIsTheDefaults) {
  const Config config = Loaded();
  EXPECT_EQ(config.memory, 0u);
  EXPECT_EQ(config.swap_memory, 0u);
  EXPECT_EQ(config.memory_manager, "replay");
  EXPECT_EQ(config.swap, "auto");
  EXPECT_EQ(config.swapfiles, "");
  EXPECT_FALSE(config.enable_dma);
  EXPECT_EQ(config.policy, SwapPolicy::kAutoextendable);
  EXPECT_EQ(config.transport, Transport::kAuto);
  EXPECT_TRUE(config.checksum);
  EXPECT_TRUE(config.preemptive);
  EXPECT_TRUE(config.bundles);
  EXPECT_EQ(config.stats, "");
  EXPECT_EQ(config.trace, "");
  EXPECT_EQ(config.page_block, kPageBlockAdapts);
  EXPECT_EQ(config.page_faults, FaultMode::kAuto);
  EXPECT_EQ(config.page_moves, PageMoves::kAuto);
  EXPECT_TRUE(config.page_children);
  EXPECT_EQ(config.pages_above, 128u << 10);
  EXPECT_TRUE(config.source.empty());
}

TEST_F(ConfigOf, EveryKeyCanBeSetInAFile) {
  const Config config = FromFile(
      "[default]\nmemory = 64 MiB\nswapMemory = 1.5 GiB\nmemoryManager = cyclicManagedMemory\nswap = managedFileSwap\n"
      "swapfiles = /scratch/a-%d-%d\nenableDMA = true\npolicy = interactive\ntransport = none\nchecksum = off\n"
      "preemptive = no\ndebug = yes\nbundles = no\nstats = /tmp/s.json\ntrace = /tmp/t\n"
      "pageBlock = 4 KiB\npageFaults = signal\npageMoves = copy\npageChildren = none\npagesAbove = 1 MiB\n");
  EXPECT_EQ(config.memory, 64 * kMiB);
  EXPECT_EQ(config.swap_memory, 1536 * kMiB);
  EXPECT_EQ(config.memory_manager, "cyclic");
  EXPECT_EQ(config.swap, "file");
  EXPECT_EQ(config.swapfiles, "/scratch/a-%d-%d");
  EXPECT_TRUE(config.enable_dma);
  EXPECT_EQ(config.policy, SwapPolicy::kInteractive);
  EXPECT_EQ(config.transport, Transport::kNone);
  EXPECT_FALSE(config.checksum);
  EXPECT_FALSE(config.preemptive);
  EXPECT_TRUE(config.debug);
  EXPECT_FALSE(config.bundles);
  EXPECT_EQ(config.stats, "/tmp/s.json");
  EXPECT_EQ(config.trace, "/tmp/t");
  EXPECT_EQ(config.page_block, 4096u);
  EXPECT_EQ(config.page_faults, FaultMode::kSignal);
  EXPECT_EQ(config.page_moves, PageMoves::kCopy);
  EXPECT_FALSE(config.page_children);
  EXPECT_EQ(config.pages_above, 1u << 20);
  EXPECT_EQ(config.source.size(), 19u);
  EXPECT_EQ(config.source.at("policy"), sources_.files[0] + ":8");
}

TEST_F(ConfigOf, EveryKeyCanBeSetInTheEnvironment) {
  const std::map<std::string, std::string> names = {
      {"RAMSPAN_MEMORY", "64MiB"},          {"RAMSPAN_SWAP_MEMORY", "1GB"}, {"RAMSPAN_MEMORY_MANAGER", "second-chance"},
      {"RAMSPAN_SWAP", "remote"},           {"RAMSPAN_SWAPFILES", "%d.%d"}, {"RAMSPAN_ENABLE_DMA", "1"},
      {"RAMSPAN_POLICY", "fail"},           {"RAMSPAN_TRANSPORT", "mpi"},   {"RAMSPAN_CHECKSUM", "0"},
      {"RAMSPAN_PREEMPTIVE", "OFF"},        {"RAMSPAN_DEBUG", "on"},      {"RAMSPAN_STATS", "s"},
      {"RAMSPAN_BUNDLES", "false"},         {"RAMSPAN_TRACE", "t"}};
  for (const auto& [name, value] : names) SetEnvironment(name, value);
  const Config config = Loaded();
  EXPECT_EQ(config.memory, 64 * kMiB);
  EXPECT_EQ(config.swap_memory, 1000'000'000u);
  EXPECT_EQ(config.memory_manager, "second-chance");
  EXPECT_EQ(config.swap, "remote");
  EXPECT_EQ(config.swapfiles, "%d.%d");
  EXPECT_TRUE(config.enable_dma);
  EXPECT_EQ(config.policy, SwapPolicy::kFail);
  EXPECT_EQ(config.transport, Transport::kMpi);
  EXPECT_FALSE(config.checksum);
  EXPECT_FALSE(config.preemptive);
  EXPECT_EQ(config.stats, "s");
  EXPECT_EQ(config.trace, "t");
  EXPECT_TRUE(config.debug);
  EXPECT_FALSE(config.bundles);
  EXPECT_EQ(config.source.size(), names.size());
  EXPECT_EQ(config.source.at("enableDMA"), "environment RAMSPAN_ENABLE_DMA");
}

TEST_F(ConfigOf, EveryKeyCanBeSetByTheProgram) {
  Options& o = sources_.program;
  o.memory = 2 * kMiB;
  o.swapMemory = 3 * kMiB;
  o.memoryManager = "cyclic";
  o.swap = "file";
  o.swapfiles = "a%d%d";
  o.enableDMA = true;
  o.policy = SwapPolicy::kFail;
  o.transport = Transport::kMpi;
  o.checksum = false;
  o.preemptive = false;
  o.debug = true;
  o.bundles = false;
  o.stats = "s";
  o.trace = "t";
  const Config config = Loaded();
  EXPECT_EQ(config.memory, 2 * kMiB);
  EXPECT_EQ(config.swap_memory, 3 * kMiB);
  EXPECT_EQ(config.swap, "file");
  EXPECT_EQ(config.swapfiles, "a%d%d");
  EXPECT_TRUE(config.enable_dma);
  EXPECT_EQ(config.policy, SwapPolicy::kFail);
  EXPECT_EQ(config.transport, Transport::kMpi);
  EXPECT_FALSE(config.checksum);
  EXPECT_FALSE(config.preemptive);
  EXPECT_TRUE(config.debug);
  EXPECT_FALSE(config.bundles);
  EXPECT_EQ(config.source.size(), 14u);
  EXPECT_EQ(config.source.at("memory"), "program call");
}

TEST_F(ConfigOf, TheFirstSourceWinsKeyByKey) {
  AddFile("custom", "[default]\nmemory = 3 MiB\nswapMemory = 3 MiB\n");
  AddFile("home", "[default]\nmemory = 4 MiB\nswapMemory = 4 MiB\nstats = home\n");
  AddFile("etc", "[default]\nmemory = 5 MiB\nstats = etc\nenableDMA = on\n");
  Config config = Loaded();
  EXPECT_EQ(config.memory, 3 * kMiB);
  EXPECT_EQ(config.swap_memory, 3 * kMiB);
  EXPECT_EQ(config.stats, "home");
  EXPECT_TRUE(config.enable_dma);
  EXPECT_EQ(config.source.at("enableDMA"), sources_.files[2] + ":4");
  SetEnvironment("RAMSPAN_MEMORY", "2MiB");
  EXPECT_EQ(Loaded().memory, 2 * kMiB);
  sources_.program.memory = 1 * kMiB;
  config = Loaded();
  EXPECT_EQ(config.memory, 1 * kMiB);
  EXPECT_EQ(config.swap_memory, 3 * kMiB);
}

TEST_F(ConfigOf, TheProgramsBlockBeatsDefaultInOneFileWhateverTheOrder) {
  EXPECT_EQ(FromFile("[app]\nmemory = 2 MiB\n[default]\nmemory = 1 MiB\n").memory, 2 * kMiB);
  EXPECT_EQ(FromFile("[default]\nmemory = 1 MiB\n[app]\nmemory = 2 MiB\n").memory, 2 * kMiB);
}

TEST_F(ConfigOf, DefaultInABetterFileBeatsTheProgramsBlockInAWorseOne) {
  AddFile("home", "[default]\nmemory = 1 MiB\n");
  AddFile("etc", "[app]\nmemory = 2 MiB\n");
  EXPECT_EQ(Loaded().memory, 1 * kMiB);
}

TEST_F(ConfigOf, TheFirstBlockOfANameCounts) {
  EXPECT_EQ(FromFile("[app]\nmemory = 1 MiB\n[app]\nmemory = 2 MiB\nswap = file\n").swap, "auto");
  EXPECT_EQ(FromFile("[app]\nmemory = 1 MiB\n[app]\nmemory = 2 MiB\n").memory, 1 * kMiB);
}

TEST_F(ConfigOf, BlocksOfOtherProgramsAreOnlyCheckedForSyntax) {
  EXPECT_EQ(FromFile("[other]\nmemroy = nonsense\nmemory = -1\n").memory, 0u);
  EXPECT_EQ(FileError("[other]\nmemory\n"), ":2: \"memory\" is neither a [block], a # comment nor key = value");
}

TEST_F(ConfigOf, AnUnknownKeyNamesFileLineBlockAndTheNearestKey) {
  EXPECT_EQ(FileError("[default]\n\nmemroy = 1 GiB\n"),
            ":3: unknown key \"memroy\" in block [default]; did you mean \"memory\"?");
  EXPECT_EQ(FileError("[app]\nenableDma = 1\n"),
            ":2: unknown key \"enableDma\" in block [app]; did you mean \"enableDMA\"?");
}

TEST_F(ConfigOf, ABadNumberNamesFileLineAndKey) {
  EXPECT_TRUE(FileError("[default]\nmemory = lots\n").starts_with(":2: memory: \"lots\" is not a size in bytes"));
  EXPECT_TRUE(FileError("[default]\n#\nmemory =\n").starts_with(":3: memory: \"\" is not a size in bytes"));
}

TEST_F(ConfigOf, ABadNumberInTheEnvironmentNamesTheVariable) {
  SetEnvironment("RAMSPAN_MEMORY", "12 parsecs");
  EXPECT_TRUE(Error().starts_with("environment RAMSPAN_MEMORY: memory: \"12 parsecs\" is not")) << Error();
}

TEST_F(ConfigOf, ABadValueIsAnErrorThoughABetterSourceOverridesIt) {
  AddFile("etc", "[default]\nmemory = lots\n");
  SetEnvironment("RAMSPAN_MEMORY", "1GiB");
  EXPECT_NE(Error().find("etc:2: memory"), std::string::npos);
}

TEST_F(ConfigOf, MemoryIsBetween1MiBAnd64TiB) {
  EXPECT_TRUE(Accepts("memory = 1 MiB"));
  EXPECT_TRUE(Accepts("memory = 64 TiB"));
  EXPECT_FALSE(Accepts("memory = 1048575"));
  EXPECT_FALSE(Accepts("memory = 0"));
  EXPECT_FALSE(Accepts("memory = 70368744177665"));
  EXPECT_NE(FileError("[default]\nmemory = 1\n").find("between 1 MiB and 64 TiB"), std::string::npos);
  sources_.files.clear();
  sources_.program.memory = 0;
  EXPECT_TRUE(Error().starts_with("program call: memory: \"0\" is not between"));
}

TEST_F(ConfigOf, NoSwapMemoryIsNotAWayToSayNoFiles) {
  EXPECT_TRUE(Accepts("swapMemory = 4096"));
  EXPECT_NE(FileError("[default]\nswapMemory = 0\n").find("set swap = remote"), std::string::npos);
}

TEST_F(ConfigOf, SwitchesAreWordsOrDigits) {
  for (const char* on : {"true", "True", "1", "yes", "on", "ON"}) {
    EXPECT_TRUE(FromFile(std::string("[default]\nenableDMA = ") + on + "\n").enable_dma) << on;
  }
  for (const char* off : {"false", "0", "no", "off"}) {
    EXPECT_FALSE(FromFile(std::string("[default]\nchecksum = ") + off + "\n").checksum) << off;
  }
  for (const char* bad : {"", "2", "y", "enable", "truee", "00"}) {
    EXPECT_FALSE(Accepts(std::string("enableDMA = ") + bad)) << bad;
  }
}

TEST_F(ConfigOf, ChoicesNameWhatExists) {
  EXPECT_EQ(FileError("[default]\nswap = disk\n"),
            ":2: swap: \"disk\" is not known; the choices are auto, file, managedFileSwap, remote");
  EXPECT_EQ(FileError("[default]\nmemoryManager = lru\n"),
            ":2: memoryManager: \"lru\" is not known; the choices are replay, cyclic, second-chance, cyclicManagedMemory");
  EXPECT_EQ(FileError("[default]\npolicy = Fail\n"),
            ":2: policy: \"Fail\" is not known; the choices are fail, interactive, autoextendable");
}

TEST_F(ConfigOf, ServersAreAListOfPlaces) {
  EXPECT_TRUE(Accepts("transport = ofi"));
  EXPECT_TRUE(Accepts("servers = node7:7117,node8:7117"));
  EXPECT_TRUE(Accepts("servers = /run/ramspan.sock"));
  EXPECT_EQ(FileError("[default]\nservers = 2\n"),
            ":2: servers: \"2\" is neither a list of memory servers, like node7:7117,node8:7117, nor (from the launcher) a number of memory servers");
}

TEST_F(ConfigOf, ServersInTheEnvironmentMayBeTheLaunchersNumber) {
  SetEnvironment("RAMSPAN_SERVERS", "2");
  EXPECT_EQ(Loaded().servers, "");
  SetEnvironment("RAMSPAN_SERVERS", "node7:7117");
  EXPECT_EQ(Loaded().servers, "node7:7117");
  SetEnvironment("RAMSPAN_SERVERS", "many");
  EXPECT_TRUE(Error().starts_with("environment RAMSPAN_SERVERS: servers: \"many\" is neither a list"));
}

TEST_F(ConfigOf, SwapFileMasksHoldExactlyTwoNumbers) {
  for (const char* good : {"/a/%d-%d", "%d%d", "x%dy%dz"}) {
    EXPECT_TRUE(Accepts(std::string("swapfiles = ") + good)) << good;
  }
  for (const char* bad : {"", "/a", "/a-%d", "%d%d%d", "%d-%d-%s", "%d-%d%%", "%d-%d%", "%5d-%d", "%n%d%d", "%%d%d"}) {
    EXPECT_FALSE(Accepts(std::string("swapfiles = ") + bad)) << bad;
  }
}

TEST_F(ConfigOf, AnEmptyVariableCountsAsUnset) {
  AddFile("home", "[default]\nstats = home\n");
  SetEnvironment("RAMSPAN_STATS", "");
  SetEnvironment("RAMSPAN_MEMORY", "");
  SetEnvironment("RAMSPAN_UNKNOWN", "");
  EXPECT_EQ(Loaded().stats, "home");
}

TEST_F(ConfigOf, AnEmptyStatsFileSwitchesThemOff) {
  AddFile("home", "[default]\nstats = \"\"\n");
  AddFile("etc", "[default]\nstats = all.json\n");
  EXPECT_EQ(Loaded().stats, "");
}

TEST_F(ConfigOf, AnUnknownVariableNamesTheNearestKnownOne) {
  SetEnvironment("RAMSPAN_MEMROY", "1GiB");
  EXPECT_TRUE(Error().starts_with("environment RAMSPAN_MEMROY: unknown variable; did you mean RAMSPAN_MEMORY?"));
}

// "did you mean RAMSPAN_LOG?" was the answer: the nearest by letters.
TEST_F(ConfigOf, WhatPeopleCallTheLimitIsUnderstoodAsIt) {
  for (const char* name : {"RAMSPAN_LIMIT", "RAMSPAN_MEM", "RAMSPAN_MEMORY_LIMIT", "RAMSPAN_SIZE"}) {
    environment_.clear();
    sources_.environment_names.clear();
    SetEnvironment(name, "1GiB");
    EXPECT_THAT(Error(), testing::HasSubstr("did you mean RAMSPAN_MEMORY?")) << name;
  }
  environment_.clear();
  sources_.environment_names.clear();
  EXPECT_EQ(FileError("[default]\nlimit = 1 GiB\n"), ":2: unknown key \"limit\" in block [default]; did you mean \"memory\"?");
  EXPECT_EQ(FileError("[default]\nstat = a\n"), ":2: unknown key \"stat\" in block [default]; did you mean \"stats\"?");
}

// RAMSPAN_THREADS was asked for RAMSPAN_SERVERS, which has nothing to do with them.
TEST_F(ConfigOf, AVariableThatIsNearNoneIsNotGuessedAt) {
  SetEnvironment("RAMSPAN_THREADS", "2");
  EXPECT_TRUE(Error().starts_with("environment RAMSPAN_THREADS: unknown variable; docs/configuration.md lists them.")) << Error();
  environment_.clear();
  sources_.environment_names.clear();
  EXPECT_EQ(FileError("[default]\nthreads = 2\n"),
            ":2: unknown key \"threads\" in block [default]; docs/configuration.md lists them.");
  EXPECT_EQ(FileError("[default]\nfiles = a\n"), ":2: unknown key \"files\" in block [default]; did you mean \"swapfiles\"?");
}

TEST_F(ConfigOf, ABareNumberThatIsTooSmallIsAskedForItsUnits) {
  SetEnvironment("RAMSPAN_MEMORY", "64");
  EXPECT_THAT(Error(), testing::HasSubstr("between 1 MiB and 64 TiB; units forgotten? (64MiB)"));
  SetEnvironment("RAMSPAN_MEMORY", "64KiB");
  EXPECT_THAT(Error(), testing::Not(testing::HasSubstr("units")));
  SetEnvironment("RAMSPAN_MEMORY", "0");
  EXPECT_THAT(Error(), testing::Not(testing::HasSubstr("units")));
}

TEST_F(ConfigOf, VariablesOfLauncherServerLogAndTestsAreLegal) {
  for (const char* name : {"RAMSPAN_CONFIG", "RAMSPAN_SERVER_MEMORY", "RAMSPAN_RUN_DIR",
                           "RAMSPAN_TEST_ANYTHING", "RAMSPANNER", "PATH"}) {
    SetEnvironment(name, "x");
  }
  SetEnvironment("RAMSPAN_LOG", "info");
  EXPECT_TRUE(Loaded().source.empty());
}

TEST_F(ConfigOf, AnUnknownLogLevelIsAnError) {
  SetEnvironment("RAMSPAN_LOG", "verbose");
  EXPECT_EQ(Error(), "environment RAMSPAN_LOG: \"verbose\" is not known; the choices are off, warn, info");
}

TEST_F(ConfigOf, AMissingFileIsSkippedUnlessItIsTheCustomOne) {
  sources_.files = {root_ / "a.conf", root_ / "b.conf", "/dev/null/c.conf"};
  Loaded();
  sources_.first_file_is_custom = true;
  EXPECT_TRUE(Error().starts_with(sources_.files[0] + ": no such file"));
  AddFile("a.conf", "");
  Loaded();
}

TEST_F(ConfigOf, WhatIsNoRegularFileIsAnErrorAndNeverAHang) {
  sources_.files = {root_};
  EXPECT_NE(Error().find("not a regular file"), std::string::npos);
  const std::string pipe = root_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  sources_.files = {pipe};
  EXPECT_NE(Error().find("not a regular file"), std::string::npos);
  sources_.files = {"/dev/null"};
  sources_.first_file_is_custom = true;
  Loaded();
}

TEST_F(ConfigOf, AFileOverOneMebibyteIsAnError) {
  EXPECT_NE(FileError(std::string((1 << 20) + 1, '\n')).find("larger than 1 MiB"), std::string::npos);
  sources_.files = {"/dev/zero"};
  EXPECT_NE(Error().find("larger than 1 MiB"), std::string::npos);
  EXPECT_EQ(FromFile("[default]\nmemory=1MiB\n" + std::string((1 << 20) - 22, '\n')).memory, 1 * kMiB);
}

TEST_F(ConfigOf, WindowsLineEndsAndAByteOrderMarkAreTolerated) {
  const Config config = FromFile("\xEF\xBB\xBF[default]\r\nmemory = 1 MiB\r\nstats = \"a\"\r\n\r\n");
  EXPECT_EQ(config.memory, 1 * kMiB);
  EXPECT_EQ(config.stats, "a");
}

TEST_F(ConfigOf, CommentsMayFollowBlocksAndValues) {
  const Config config = FromFile("# top\n  # indented\n [ default ]  # block\nmemory = 1 MiB # size\nstats=a\t#\n");
  EXPECT_EQ(config.memory, 1 * kMiB);
  EXPECT_EQ(config.stats, "a");
}

TEST_F(ConfigOf, QuotesKeepBlanksAndHashes) {
  EXPECT_EQ(FromFile("[default]\nstats = \" a # b = c \" # comment\n").stats, " a # b = c ");
  EXPECT_EQ(FromFile("[default]\nstats = a=b \"c\"\n").stats, "a=b \"c\"");
}

TEST_F(ConfigOf, AHashWithinAValueDoesNotCutItSilently) {
  EXPECT_NE(FileError("[default]\nstats = /tmp/run#3\n").find(":2: \"#\" within a value"), std::string::npos);
}

TEST_F(ConfigOf, TheLastLineNeedsNoNewline) { EXPECT_EQ(FromFile("[default]\nmemory = 1MiB").memory, 1 * kMiB); }

TEST_F(ConfigOf, SyntaxErrorsNameTheirLine) {
  EXPECT_TRUE(FileError("memory = 1 GiB\n").starts_with(":1: key \"memory\" before the first block"));
  EXPECT_TRUE(FileError("[default\n").starts_with(":1: "));
  EXPECT_TRUE(FileError("[]\n").starts_with(":1: the block has no name"));
  EXPECT_TRUE(FileError("[default] x\n").starts_with(":1: text after the block's name"));
  EXPECT_TRUE(FileError("[default]\n= 3\n").starts_with(":2: "));
  EXPECT_TRUE(FileError("[default]\nmy key = 3\n").starts_with(":2: "));
  EXPECT_TRUE(FileError("[default]\nstats = \"a\n").starts_with(":2: the closing quote is missing"));
  EXPECT_TRUE(FileError("[default]\nstats = \"a\" b\n").starts_with(":2: text after the closing quote"));
  EXPECT_TRUE(FileError(std::string("[default]\nstats = a\0b\n", 22)).starts_with(":2: a control character"));
  EXPECT_TRUE(FileError("[default]\nmemory = 1 GiB\rswap = file\n").starts_with(":2: a control character"));
}

TEST_F(ConfigOf, AKeyThatIsSetTwiceInABlockNamesBothLines) {
  EXPECT_NE(FileError("[default]\nmemory = 1 GiB\n\nmemory = 2 GiB\n").find(":4: key \"memory\" is already set at "),
            std::string::npos);
}

TEST_F(ConfigOf, TheExampleFileHoldsEveryKeyWithItsDefault) {
  const std::filesystem::path example = EXAMPLE_CONFIG;  // from tests/CMakeLists.txt
  std::ifstream file(example);
  ASSERT_TRUE(file.is_open()) << example;
  std::string line, text;
  while (std::getline(file, line)) {
    // "#key = value" is a setting that is commented out; "# text" is prose.
    if (line.size() > 1 && line[0] == '#' && line[1] != ' ') line.erase(0, 1);
    text += line + "\n";
  }
  const Config config = FromFile(text);
  EXPECT_EQ(config.source.size(), 14u);
  for (const char* without_default : {"servers", "serverKeyFile", "fabricProvider"}) {
    EXPECT_NE(text.find("# " + std::string(without_default) + " = "), std::string::npos) << without_default;
  }
  const Config defaults;
  EXPECT_EQ(config.memory_manager, defaults.memory_manager);
  EXPECT_EQ(config.swap, defaults.swap);
  EXPECT_EQ(config.enable_dma, defaults.enable_dma);
  EXPECT_EQ(config.policy, defaults.policy);
  EXPECT_EQ(config.transport, defaults.transport);
  EXPECT_EQ(config.checksum, defaults.checksum);
  EXPECT_EQ(config.preemptive, defaults.preemptive);
  EXPECT_EQ(config.bundles, defaults.bundles);
  EXPECT_EQ(config.stats, defaults.stats);
  EXPECT_EQ(config.trace, defaults.trace);
}

// A variable of this process, restored at the end.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(ProcessConfigSources, AreTheCustomFileHomeAndEtc) {
  const ScopedVariable home("HOME", "/home/me");
  const ScopedVariable custom("RAMSPAN_CONFIG", "/x/y.conf");
  const ConfigSources sources = ProcessConfigSources(Options());
  EXPECT_EQ(sources.files, (std::vector<std::string>{"/x/y.conf", "/home/me/.ramspan.conf", "/etc/ramspan.conf"}));
  EXPECT_TRUE(sources.first_file_is_custom);
  EXPECT_NE(std::find(sources.environment_names.begin(), sources.environment_names.end(), "RAMSPAN_CONFIG"),
            sources.environment_names.end());
  EXPECT_STREQ(sources.getenv("RAMSPAN_CONFIG"), "/x/y.conf");
  EXPECT_EQ(sources.program_name, std::filesystem::read_symlink("/proc/self/exe").filename());
}

TEST(ProcessConfigSources, TheProgramsCustomFileBeatsTheEnvironments) {
  const ScopedVariable custom("RAMSPAN_CONFIG", "/x/y.conf");
  Options options;
  options.customConfig = "mine.conf";
  EXPECT_EQ(ProcessConfigSources(options).files[0], "mine.conf");
}

TEST(ProcessConfigSources, HaveNoCustomFileWhereNoneIsNamed) {
  const ScopedVariable home("HOME", "");
  const ScopedVariable custom("RAMSPAN_CONFIG", "");
  const ConfigSources sources = ProcessConfigSources(Options());
  EXPECT_EQ(sources.files, std::vector<std::string>{"/etc/ramspan.conf"});
  EXPECT_FALSE(sources.first_file_is_custom);
}

}  // namespace
}  // namespace ramspan
