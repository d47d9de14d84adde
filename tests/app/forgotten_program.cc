// Objects with destructors that a program never destroys, more than its memory limit holds.
#include <cstdio>

#include "rambrain/managedPtr.h"

namespace {

constexpr int kObjects = 40;

struct Part {
  char bytes[256 << 10] = {'p'};
  ~Part() {
    static int destroyed = 0;
    if (bytes[0] == 'p' && ++destroyed == kObjects) std::puts("all destroyed");
  }
};

}  // namespace

int main() {
  for (int i = 0; i < kObjects; ++i) new rambrain::managedPtr<Part>(1);
  std::puts("forgotten");
}
