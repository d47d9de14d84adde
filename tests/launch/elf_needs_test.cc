#include "launch/elf_needs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "launch/process.h"

namespace ramspan {
namespace {

TEST(ElfNeeds, AProgramsLibrariesAreFound) {
  const auto libraries = LibrariesNeeded(SelfPath());
  ASSERT_TRUE(libraries.has_value());
  EXPECT_EQ(std::count(libraries->begin(), libraries->end(), "libc.so.6"), 1);
  EXPECT_EQ(MpiUseOf("/bin/sh"), MpiUse::kNone);
}

TEST(ElfNeeds, WhoseMpiItIsSaysTheNameOfItsLibrary) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(MpiUseOfLibraries(Names{"libm.so.6", "libmpich.so.12"}), MpiUse::kPlain);
  EXPECT_EQ(MpiUseOfLibraries(Names{"libmpi.so.12", "libmpifort.so.12"}), MpiUse::kPlain) << "MPICH's binary interface";
  EXPECT_EQ(MpiUseOfLibraries(Names{"libmpi"}), MpiUse::kPlain);
  EXPECT_EQ(MpiUseOfLibraries(Names{"libmpi_mpifh.so.40", "libc.so.6"}), MpiUse::kOpenMpi);
  EXPECT_EQ(MpiUseOfLibraries(Names{"libmpi.so.20"}), MpiUse::kOpenMpi);
  EXPECT_EQ(MpiUseOfLibraries(Names{"libmpi.so.12", "libopen-rte.so.12"}), MpiUse::kOpenMpi);
  EXPECT_EQ(MpiUseOfLibraries(Names{"libmpi.so.40", "libramspan-mpi.so.0"}), MpiUse::kRamspan);
  EXPECT_EQ(MpiUseOfLibraries(Names{"libc.so.6", "libopenblas.so.40", "libmpir.so.23"}), MpiUse::kNone);
}

TEST(ElfNeeds, WhatALimitCannotReachIsFound) {
  EXPECT_EQ(IsStatic(SelfPath()), false);
  EXPECT_EQ(UsesRamspan("/bin/sh"), false);
  EXPECT_EQ(UsesRamspan(SelfPath()), true);  // it holds what it tests
}

TEST(ElfNeeds, AScriptAndAnAbsentFileTellNothing) {
  EXPECT_EQ(IsStatic("/etc/passwd"), std::nullopt);
  EXPECT_EQ(UsesRamspan("/nowhere/at/all"), std::nullopt);
  EXPECT_EQ(MpiUseOf("/etc/passwd"), std::nullopt);
  EXPECT_EQ(MpiUseOf("/nowhere/at/all"), std::nullopt);
}

// Headers that promise more than there is: read to the end, nothing more.
TEST(ElfNeeds, ACutOrBrokenBinaryIsNoHarm) {
  std::ifstream source(SelfPath(), std::ios::binary);
  std::string bytes(size_t{1} << 16, '\0');
  source.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const std::string path = testing::TempDir() + "ramspan-elf-" + std::to_string(getpid());
  for (size_t cut = 0; cut < 2048; cut += 7) {
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(cut));
    LibrariesNeeded(path);
    std::string broken = bytes.substr(0, 4096);
    broken[16 + cut % 1024] = static_cast<char>(0xff);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << broken;
    LibrariesNeeded(path);
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace ramspan
