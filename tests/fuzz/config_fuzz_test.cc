// Random configuration texts: seeded, so that a failure can be repeated (the seed is printed). Whatever the text, the
// loader answers with a configuration or with an error that names file and line, never with a crash.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "common/config.h"
#include "common/config_file.h"
#include "common/units.h"

namespace ramspan {
namespace {

constexpr int kTexts = 20'000;
constexpr int kFiles = 2'000;  // through the file system, hence fewer

// Pieces that make a text likely to get past the first checks.
constexpr std::string_view kPieces[] = {
    "[default]", "[app]", "[other]", "[", "]", "\n", "\n", "\n", "\r\n", "=", " = ", "#", " # ", "\"", " ", "\t",
    "memory", "swapMemory", "memoryManager", "swap", "swapfiles", "enableDMA", "policy", "transport", "checksum",
    "preemptive", "debug", "stats", "memroy", "64 MiB", "1.5 GiB", "1 TB", "-1", "99999999999999999999", "0.5", "cyclic",
    "auto", "file", "remote", "/tmp/%d-%d", "%d", "%s%n", "true", "off", "maybe", "fail", "mpi", "ofi",
    "\xEF\xBB\xBF", "\xFF\xFE", "\\", "\xC3\xA9", "memory = 2 MiB\n", "[default]\n", "swap = file # x\n",
    "policy = \"fail\"\n"};

std::string RandomText(std::mt19937_64& random) {
  std::string text = random() % 2 == 0 ? "[default]\n" : "";
  const size_t pieces = random() % 30;
  for (size_t i = 0; i < pieces; ++i) {
    if (random() % 8 == 0) {
      text += static_cast<char>(random());
    } else {
      text += kPieces[random() % std::size(kPieces)];
    }
  }
  return text;
}

// A well-formed file with one byte changed, which reaches deeper than noise does.
std::string MutatedText(std::mt19937_64& random) {
  std::string text =
      "# a file\n[default]\nmemory = 64 MiB # limit\nswapfiles = \"/tmp/a-%d-%d\"\nenableDMA = yes\n\n[app]\n"
      "policy = fail\nswapMemory = 1.5 GiB\r\ntransport = mpi\n";
  const size_t at = random() % text.size();
  switch (random() % 3) {
    case 0: text[at] = static_cast<char>(random()); break;
    case 1: text.erase(at, 1 + random() % 5); break;
    default: text.insert(at, 1, static_cast<char>(random())); break;
  }
  return text;
}

bool NamesALine(const std::string& message, const std::string& file) {
  if (!message.starts_with(file + ":")) return false;
  const size_t digits = file.size() + 1;
  const size_t end = message.find_first_not_of("0123456789", digits);
  return end > digits && message.compare(end, 2, ": ") == 0 && message[digits] != '0';
}

bool IsOneLine(const std::string& message) { return message.find('\n') == std::string::npos; }

TEST(ConfigFuzz, AnyTextParsesOrNamesTheLineThatDoesNot) {
  const uint64_t seed = 20260101;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int parsed = 0;
  for (int i = 0; i < kTexts; ++i) {
    const std::string text = i % 2 == 0 ? RandomText(random) : MutatedText(random);
    const auto blocks = ParseConfigText(text, "f");
    if (blocks.ok()) {
      ++parsed;
      continue;
    }
    ASSERT_TRUE(NamesALine(blocks.status().message(), "f")) << blocks.status().message();
    ASSERT_TRUE(IsOneLine(blocks.status().message()));
  }
  // Both outcomes must be common, or the texts test nothing.
  EXPECT_GT(parsed, kTexts / 20);
  EXPECT_LT(parsed, kTexts * 19 / 20);
}

TEST(ConfigFuzz, AnyFileLoadsOrNamesTheLineThatDoesNot) {
  const uint64_t seed = 20260102;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::string folder = testing::TempDir() + "ramspan-fuzz-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ConfigSources sources;
  sources.program_name = "app";
  sources.files = {folder + "/f"};
  int loaded = 0;
  for (int i = 0; i < kFiles; ++i) {
    std::ofstream(sources.files[0], std::ios::binary) << (i % 2 == 0 ? RandomText(random) : MutatedText(random));
    const Result<Config> config = LoadConfig(sources);
    if (config.ok()) {
      ++loaded;
      EXPECT_TRUE(config.value().memory == 0 || config.value().memory >= 1u << 20);
      continue;
    }
    EXPECT_TRUE(NamesALine(config.status().message(), sources.files[0])) << config.status().message();
    EXPECT_TRUE(IsOneLine(config.status().message())) << config.status().message();
  }
  std::filesystem::remove_all(folder);
  EXPECT_GT(loaded, kFiles / 20);
  EXPECT_LT(loaded, kFiles * 19 / 20);
}

TEST(ConfigFuzz, AnyEnvironmentLoadsOrNamesTheVariable) {
  const uint64_t seed = 20260103;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < kFiles; ++i) {
    const std::string value(kPieces[random() % std::size(kPieces)]);
    const std::vector<std::string> names = {"RAMSPAN_MEMORY", "RAMSPAN_SWAPFILES", "RAMSPAN_POLICY", "RAMSPAN_LOG",
                                            "RAMSPAN_" + value};
    ConfigSources sources;
    sources.environment_names = {names[random() % names.size()]};
    sources.getenv = [&](const char* name) { return name == sources.environment_names[0] ? value.c_str() : nullptr; };
    const Result<Config> config = LoadConfig(sources);
    if (config.ok()) continue;
    ASSERT_TRUE(config.status().message().starts_with("environment RAMSPAN_")) << config.status().message();
    ASSERT_TRUE(IsOneLine(config.status().message()));
  }
}

TEST(ConfigFuzz, AnySizeIsReadOrRefused) {
  const uint64_t seed = 20260104;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr std::string_view kBytes = "0123456789..  kKmMgGtTpPiIbBe-+\t,x";
  for (int i = 0; i < 10 * kTexts; ++i) {
    std::string text;
    for (size_t n = random() % 24; n > 0; --n) text += kBytes[random() % kBytes.size()];
    const Result<uint64_t> bytes = ParseBytes(text);
    if (bytes.ok()) {
      ASSERT_LE(bytes.value(), (1ull << 63) - 1) << text;
      ASSERT_TRUE(ParseBytes(FormatBytes(bytes.value())).ok()) << text;
    } else {
      ASSERT_FALSE(bytes.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace ramspan
