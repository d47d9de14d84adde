#include <gtest/gtest.h>

#include "tests/cluster/cluster_fixture.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) ramspan::ClusterFixture::EnterWorldOrSay();
  return RUN_ALL_TESTS();
}
