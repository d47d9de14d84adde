// What MPICH and UCX are told while MPI starts, and what of it is left.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/mpi_world.h"

namespace ramspan {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "(unset)" : value;
}

void ExpectEnvironment(const std::string& tls, const std::string& segment) {
  EXPECT_EQ(Environment("UCX_TLS"), tls);
  EXPECT_EQ(Environment("UCX_TCP_TX_SEG_SIZE"), segment);
}

TEST(MpiSettings, AreThereWhileMpiStartsAndGoneAfterwards) {
  unsetenv("UCX_TLS");
  unsetenv("UCX_TCP_TX_SEG_SIZE");
  {
    const MpiSettings while_mpi_starts;
    ExpectEnvironment("^sysv", "64k");
  }
  ExpectEnvironment("(unset)", "(unset)");
}

TEST(MpiSettings, TheUsersOwnStayAsTheyAreEachForItself) {
  setenv("UCX_TLS", "tcp,self", 1);
  unsetenv("UCX_TCP_TX_SEG_SIZE");
  {
    const MpiSettings while_mpi_starts;
    ExpectEnvironment("tcp,self", "64k");
  }
  ExpectEnvironment("tcp,self", "(unset)");
  unsetenv("UCX_TLS");
}

}  // namespace
}  // namespace ramspan
