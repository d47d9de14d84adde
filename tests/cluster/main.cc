#include <gtest/gtest.h>

#include "tests/cluster/cluster_fixture.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) ramspan::ClusterFixture::EnterWorldOrSay();
  const int status = RUN_ALL_TESTS();
  // The number that CMakeLists.txt knows. Never in place of a failure.
  constexpr int kSkipped = 77;
  return status == 0 && testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? kSkipped : status;
}
