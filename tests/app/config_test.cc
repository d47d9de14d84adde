// Where a real program's settings come from, and what it says when they are wrong.
#include "tests/app/app_fixture.h"

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ConfigFile : public AppFixture {
 protected:
  // Runs the program with statistics and gives their "config".
  json ConfigOf(Words environment = {}) {
    environment.push_back(StatsVariable());
    ExpectVerified(Run(Sweep({.bytes = kMiB}), environment), {.bytes = kMiB});
    return Stats()["config"];
  }
  // A custom file with this text, as a variable.
  std::string Custom(const std::string& text) const {
    WriteFile(folder_ / "custom.conf", text);
    return "RAMSPAN_CONFIG=" + (folder_ / "custom.conf").string();
  }
  // The run ended by the configuration, before it made anything.
  void ExpectRefused(const Words& environment, const Words& parts) {
    const Outcome outcome = Run(Sweep(), environment);
    ExpectError(outcome, parts);
    EXPECT_TRUE(fs::is_empty(folder_ / "ready"));
    EXPECT_EQ(outcome.out, "");
  }
  fs::path home() const { return folder_ / "home/.ramspan.conf"; }
};

TEST_F(ConfigFile, TheFileInHomeIsRead) {
  WriteFile(home(), "# mine\n[default]\nmemory = 5 MiB  # small\nchecksum = off\n");
  const json config = ConfigOf();
  EXPECT_EQ(config["memory"], 5 * kMiB);
  EXPECT_EQ(config["checksum"], false);
}

TEST_F(ConfigFile, TheCustomFileBeatsHomeKeyByKey) {
  WriteFile(home(), "[default]\nmemory = 5 MiB\npolicy = fail\n");
  const json config = ConfigOf({Custom("[default]\nmemory = 6 MiB\n")});
  EXPECT_EQ(config["memory"], 6 * kMiB);
  EXPECT_EQ(config["policy"], "fail");
}

TEST_F(ConfigFile, TheEnvironmentBeatsTheFile) {
  EXPECT_EQ(ConfigOf({Custom("[default]\nmemory = 6 MiB\n"), "RAMSPAN_MEMORY=7MiB"})["memory"], 7 * kMiB);
}

TEST_F(ConfigFile, TheProgramsBlockBeatsDefault) {
  EXPECT_EQ(ConfigOf({Custom("[sweep_program]\nmemory = 9 MiB\n[default]\nmemory = 6 MiB\n")})["memory"], 9 * kMiB);
  EXPECT_EQ(ConfigOf({Custom("[default]\nmemory = 6 MiB\n[other]\nmemory = 9 MiB\n")})["memory"], 6 * kMiB);
}

TEST_F(ConfigFile, OneTBIsTenToTheTwelfthBytes) {
  EXPECT_EQ(ConfigOf({Custom("[default]\nmemory = 8 MiB\nswapMemory = 1 TB\n")})["swapMemory"], 1'000'000'000'000);
  EXPECT_EQ(ConfigOf({Custom("[default]\nmemory = 1 TB\n")})["memory"], 1'000'000'000'000);
}

TEST_F(ConfigFile, RanksOfAJobReadItToo) {
  WriteFile(home(), "[default]\nmemory = 5 MiB\n");
  ExpectVerified(Run(Job({.ranks = 2, .servers = 1, .memory = ""}, Sweep()), {StatsVariable()}), {}, 2);
  EXPECT_EQ(Stats(0)["config"]["memory"], 5 * kMiB);
  EXPECT_EQ(Stats(1)["config"]["memory"], 5 * kMiB);
}

TEST_F(ConfigFile, AnUnknownKeyEndsTheRunWithFileAndLine) {
  WriteFile(home(), "[default]\n\nmemroy = 5 MiB\n");
  ExpectRefused({}, {home().string() + ":3: unknown key \"memroy\"", "did you mean \"memory\"?"});
}

TEST_F(ConfigFile, AnUnknownKeyEndsAJobWithFileAndLine) {
  WriteFile(home(), "[default]\n\nmemroy = 5 MiB\n");
  for (int servers : {0, 1}) {
    const Outcome outcome = Run(Job({.ranks = 2, .servers = servers}, Sweep()));
    ExpectError(outcome, {home().string() + ":3: unknown key \"memroy\"", "did you mean \"memory\"?"});
    EXPECT_LT(outcome.seconds, kSoon);
  }
}

TEST_F(ConfigFile, AMistypedVariableIsNotSilentlyWithoutEffect) {
  ExpectRefused({"RAMSPAN_MEMROY=8MiB"}, {"environment RAMSPAN_MEMROY: unknown variable", "did you mean RAMSPAN_MEMORY?"});
}

TEST_F(ConfigFile, BadValuesNameTheirPlaceAndWhatIsRight) {
  ExpectRefused({Custom("[default]\nmemory = 1.5\n")}, {"custom.conf:2: memory", "a unit is missing"});
  ExpectRefused({Custom("[default]\nmemory = 4096\n")}, {"custom.conf:2: memory", "not between 1 MiB and 64 TiB"});
  ExpectRefused({Custom("[default]\nswap = disk\n")}, {"custom.conf:2: swap", "the choices are auto, file"});
  ExpectRefused({"RAMSPAN_MEMORY=lots"}, {"environment RAMSPAN_MEMORY", "\"lots\" is not a size"});
  ExpectRefused({"RAMSPAN_CONFIG=/nowhere.conf"}, {"/nowhere.conf: no such file", "RAMSPAN_CONFIG"});
}

}  // namespace
}  // namespace ramspan
