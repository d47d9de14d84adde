// A library whose constructor and destructor use more memory than the limit: scenario loaded_library. While they run their thread has the dynamic linker's lock.
#include <cstdlib>

namespace {

constexpr size_t kBytes = size_t{24} << 20;

void UseMuch() {
  auto* const bytes = static_cast<unsigned char*>(std::malloc(kBytes));
  if (bytes == nullptr) std::abort();
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 0; i < kBytes; i += 64) {
      if (pass == 1 && bytes[i] != static_cast<unsigned char>(i >> 12 | 1)) std::abort();
      bytes[i] = static_cast<unsigned char>(i >> 12 | 1);
    }
  }
  std::free(bytes);
}

[[gnu::constructor]] void Begin() { UseMuch(); }
[[gnu::destructor]] void End() { UseMuch(); }

}  // namespace
