#include <fstream>
#include <iostream>

#include "tests/app/app_fixture.h"

namespace ramspan {

std::string launcher_path, sweep_path;

void AppFixture::Stop() const { WriteFile(folder_ / "ready/stop", ""); }

void AppFixture::WriteFile(const std::filesystem::path& path, const std::string& text) const {
  std::ofstream(path) << text;
}

}  // namespace ramspan

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) {
    std::cerr << "usage: app_test LAUNCHER SWEEP_PROGRAM\n";
    return 2;
  }
  ramspan::launcher_path = argv[1];
  ramspan::sweep_path = argv[2];
  return RUN_ALL_TESTS();
}
