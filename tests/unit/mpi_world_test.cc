// What of MpiWorld needs no MPI job.
#include "common/mpi_world.h"

#include <gtest/gtest.h>

namespace ramspan {
namespace {

// Stores go to offsets below this: with what the server says alone, one that lies would have clients write into other memory.
TEST(UsablePoolBytes, NoMoreThanIsMappedWhateverTheServerSays) {
  EXPECT_EQ(UsablePoolBytes(uint64_t{64} << 30, 1 << 20), uint64_t{1} << 20);
  EXPECT_EQ(UsablePoolBytes(UINT64_MAX, 4096), 4096u);
}

TEST(UsablePoolBytes, NoMoreThanTheServerLendsWhateverIsMapped) { EXPECT_EQ(UsablePoolBytes(4096, 1 << 20), 4096u); }

// There MPI bounds each transfer by the window's size itself.
TEST(UsablePoolBytes, WhatIsNotMappedIsTheServersWord) {
  EXPECT_EQ(UsablePoolBytes(12345, 0), 12345u);
  EXPECT_EQ(UsablePoolBytes(12345, -1), 12345u);
}

}  // namespace
}  // namespace ramspan
