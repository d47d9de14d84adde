// Appendix B of arXiv 1510.06358: places, blocks and keys of configuration files, and rambrainglobals::config.
#include "rambrain/rambrainconfig.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "rambrain/managedPtr.h"
#include "tests/rambrain/row.h"

using namespace rambrain;

namespace {

// The program under a home of its own, without any variable of this test's.
class Program {
 public:
  Program() {
    char name[] = "/tmp/rambrain-home-XXXXXX";
    home_ = mkdtemp(name);
  }
  ~Program() { std::filesystem::remove_all(home_); }

  void Home(const std::string& text) { Write(home_ + "/.rambrain.conf", text); }
  void RamspanHome(const std::string& text) { Write(home_ + "/.ramspan.conf", text); }
  std::string Custom(const std::string& text) {
    Write(home_ + "/custom.conf", text);
    return home_ + "/custom.conf";
  }
  std::string Run(const std::string& arguments = "", const std::string& environment = "") {
    const std::string command = "cd " + home_ + " && env -u RAMSPAN_MEMORY -u RAMSPAN_SWAPFILES HOME=" + home_ + " " +
                                environment + " " PRINT_CONFIG " " + arguments + " 2>&1";
    std::FILE* pipe = popen(command.c_str(), "r");
    std::string out;
    std::array<char, 4096> buffer;
    while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), n);
    pclose(pipe);
    return out;
  }
  const std::string& home() const { return home_; }

 private:
  static void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  std::string home_;
};

std::string ValueOf(const std::string& out, const std::string& key) {
  const size_t at = out.find(key + "=");
  if (at == std::string::npos) return "missing in: " + out;
  const size_t begin = at + key.size() + 1;
  return out.substr(begin, out.find('\n', begin) - begin);
}

TEST(TableB1, Defaults) {
  Program program;
  const std::string out = program.Run();
  EXPECT_EQ(ValueOf(out, "memoryManager"), "cyclicManagedMemory");
  EXPECT_EQ(ValueOf(out, "swap"), "managedFileSwap");
  EXPECT_EQ(ValueOf(out, "swapfiles"), "rambrainswap-%d-%d");
  EXPECT_EQ(ValueOf(out, "enableDMA"), "0");
  EXPECT_EQ(ValueOf(out, "policy"), "autoextendable");
  struct statvfs fs;
  ASSERT_EQ(statvfs(program.home().c_str(), &fs), 0);
  const double half_of_disk = static_cast<double>(fs.f_bavail) * static_cast<double>(fs.f_frsize) / 2;
  EXPECT_NEAR(std::stod(ValueOf(out, "swapMemory")), half_of_disk, half_of_disk / 4);
  EXPECT_GT(std::stoull(ValueOf(out, "memory")), mib);
}

TEST(TableB1, EachKeyFromAFile) {
  Program program;
  program.Home(
      "[default]\nmemory = 33554432\nswapMemory = 64 MB\nmemoryManager = cyclicManagedMemory\nswap = managedFileSwap\n"
      "swapfiles = /tmp/rambrain-key-%d-%d\nenableDMA = true\npolicy = fixed\n");
  const std::string out = program.Run();
  EXPECT_EQ(ValueOf(out, "memory"), "33554432");
  EXPECT_EQ(ValueOf(out, "swapMemory"), std::to_string(64'000'000 / 4096 * 4096));
  EXPECT_EQ(ValueOf(out, "memoryManager"), "cyclicManagedMemory");
  EXPECT_EQ(ValueOf(out, "swap"), "managedFileSwap");
  EXPECT_EQ(ValueOf(out, "swapfiles"), "/tmp/rambrain-key-%d-%d");
  EXPECT_EQ(ValueOf(out, "enableDMA"), "1");
  EXPECT_EQ(ValueOf(out, "policy"), "fixed");
  program.Home("[default]\npolicy = interactive\n");
  EXPECT_EQ(ValueOf(program.Run(), "policy"), "interactive");
}

TEST(TableB1, SizesWithUnits) {
  Program program;
  for (const auto& [text, bytes] : {std::pair{"1 GiB", "1073741824"}, {"100 MB", "100000000"}, {"2097152", "2097152"}}) {
    program.Home(std::string("[default]\nmemory = ") + text + "\n");
    EXPECT_EQ(ValueOf(program.Run(), "memory"), bytes) << text;
  }
}

TEST(Blocks, TheProgramsOwnBeatsDefaultWhateverTheOrder) {
  Program program;
  program.Home("[rambrain_print_config]\nmemory = 20 MiB\n[ default ]\nmemory = 10 MiB\nswapMemory = 50 MiB\n# comment\n");
  EXPECT_EQ(ValueOf(program.Run(), "memory"), std::to_string(20 * mib));
  EXPECT_EQ(ValueOf(program.Run(), "swapMemory"), std::to_string(50 * mib));
}

TEST(Blocks, TheFirstOfANameCounts) {
  Program program;
  program.Home("[default]\nmemory = 10 MiB\n[default]\nmemory = 20 MiB\nswapMemory = 50 MiB\n[other]\nmemory = 30 MiB\n");
  const std::string out = program.Run();
  EXPECT_EQ(ValueOf(out, "memory"), std::to_string(10 * mib));
  EXPECT_NE(ValueOf(out, "swapMemory"), std::to_string(50 * mib));
}

TEST(Places, CustomBeatsHomeAndItsDefaultBeatsABinaryBlockBelow) {
  Program program;
  program.Home("[rambrain_print_config]\nmemory = 20 MiB\nswapMemory = 50 MiB\n");
  const std::string custom = program.Custom("[default]\nmemory = 10 MiB\n");
  const std::string out = program.Run(custom);
  EXPECT_EQ(ValueOf(out, "memory"), std::to_string(10 * mib));
  EXPECT_EQ(ValueOf(out, "swapMemory"), std::to_string(50 * mib));
}

TEST(Places, RambrainsFileBeatsRamspansAndTheEnvironmentBoth) {
  Program program;
  program.Home("[default]\nmemory = 20 MiB\n");
  program.RamspanHome("[default]\nmemory = 30 MiB\nswapMemory = 50 MiB\n");
  EXPECT_EQ(ValueOf(program.Run(), "memory"), std::to_string(20 * mib));
  EXPECT_EQ(ValueOf(program.Run(), "swapMemory"), std::to_string(50 * mib));
  EXPECT_EQ(ValueOf(program.Run("", "RAMSPAN_MEMORY=40MiB"), "memory"), std::to_string(40 * mib));
}

TEST(Places, ACustomFileThatIsNotThereIsPassedOver) {
  Program program;
  program.Home("[default]\nmemory = 20 MiB\n");
  const std::string out = program.Run(program.home() + "/none.conf");
  EXPECT_EQ(ValueOf(out, "memory"), std::to_string(20 * mib));
  EXPECT_NE(out.find("none.conf does not exist"), std::string::npos) << out;
}

// Rambrain said a word about a line that it did not know, and went on.
TEST(Mistakes, InRambrainsFilesAreWarnedOfOnceWithFileAndLine) {
  Program program;
  program.Home("[default]\nmemroy = 20 MiB\nmemory = 24 MiB\nmemory = 30 MiB\npolicy = maybe\nnonsense\n");
  const std::string out = program.Run();
  EXPECT_EQ(ValueOf(out, "memory"), std::to_string(24 * mib));
  EXPECT_EQ(ValueOf(out, "policy"), "autoextendable");
  EXPECT_NE(out.find(program.home() + "/.rambrain.conf:6"), std::string::npos) << out;
  EXPECT_NE(out.find("(and 3 more)"), std::string::npos) << out;
  EXPECT_EQ(out.find("passed over"), out.rfind("passed over")) << out;
}

TEST(Mistakes, InRamspansFileAreErrorsAlsoForRambrainsPrograms) {
  Program program;
  program.RamspanHome("[default]\nmemroy = 20 MiB\n");
  const std::string out = program.Run();
  EXPECT_NE(out.find("Incomplete setup of objects: " + program.home() + "/.ramspan.conf:2"), std::string::npos) << out;
  EXPECT_NE(out.find("\"memory\"?"), std::string::npos) << out;
  EXPECT_NE(Program().Run("", "RAMSPAN_MEMORY=lots").find("environment RAMSPAN_MEMORY: memory"), std::string::npos);
}

TEST(Dialect, WhatRambrainReadsIsRead) {
  Program program;
  program.Home("memory = 50 MiB\n[default]\nmemory = 100.MB#comment\nswapMemory=20 MiB#30\nswapfiles = ~/swap-%d-%d\n"
               "swap = managedDummySwap\nenableDMA = 2\n");
  const std::string out = program.Run();
  EXPECT_EQ(ValueOf(out, "memory"), "100000000");
  EXPECT_EQ(ValueOf(out, "swapMemory"), std::to_string(20 * mib));
  EXPECT_EQ(ValueOf(out, "swapfiles"), program.home() + "/swap-%d-%d");
  EXPECT_EQ(ValueOf(out, "swap"), "managedFileSwap");
  EXPECT_EQ(ValueOf(out, "enableDMA"), "1");
  EXPECT_NE(out.find(".rambrain.conf:1"), std::string::npos) << out;
}

TEST(Dialect, ASizeBelowTheLeastOneMeansThat) {
  Program program;
  program.Home("[default]\nmemory = 20000\nswapMemory = 1 kB\n");
  const std::string out = program.Run();
  EXPECT_EQ(ValueOf(out, "memory"), std::to_string(mib));
  EXPECT_EQ(ValueOf(out, "swapMemory"), std::to_string(mib));
}

TEST(Config, ReinitReadsAgainAndKeepsAllObjects) {
  const std::string path = "/tmp/rambrain-reinit-" + std::to_string(getpid()) + ".conf";
  unsetenv("RAMSPAN_MEMORY");
  std::ofstream(path) << "[default]\nmemory = 8 MiB\n";
  rambrainglobals::config.setCustomConfigPath(path);
  rambrainglobals::config.reinit();  // before the start: nothing to do yet
  std::vector<managedPtr<double>> field;
  for (int i = 0; i < 30; ++i) field.emplace_back(1 << 16, i);
  EXPECT_EQ(rambrainglobals::config.getConfig().memory.value, 8 * mib);
  std::ofstream(path) << "[default]\nmemory = 4 MiB\nswapMemory = 100 MiB\npolicy = fixed\n";
  rambrainglobals::config.reinit(false);
  EXPECT_EQ(rambrainglobals::config.getConfig().memory.value, 8 * mib);
  rambrainglobals::config.reinit();
  EXPECT_EQ(rambrainglobals::config.getConfig().memory.value, 4 * mib);
  EXPECT_EQ(rambrainglobals::config.getConfig().swapMemory.value, 100 * mib);
  EXPECT_EQ(rambrainglobals::config.getConfig().policy.value, swapPolicy::fixed);
  std::ofstream(path) << "[default]\nmemory = 16 MiB\nenableDMA = true\n";
  EXPECT_THROW(rambrainglobals::config.reinit(), incompleteSetupException);
  std::ofstream(path) << "[default]\nmemory = nonsense\n";
  rambrainglobals::config.reinit();  // passed over
  EXPECT_EQ(rambrainglobals::config.getConfig().memory.value, 4 * mib);
  for (int i = 0; i < 30; ++i) {
    ROWCONST(double, field[i], data);
    EXPECT_EQ(data[65535], i);
  }
  rambrainglobals::config.resizeMemory(1);
  EXPECT_EQ(rambrainglobals::config.getConfig().memory.value, mib);
  std::remove(path.c_str());
}

}  // namespace
