// views: chunks seen through the libraries that scientists use. A matrix product c = a * b in blocks, each block an Eigen::Map;
// where the compiler has it (C++23), the same blocks as std::mdspan.
#include <ramspan/adhere_all.h>
#include <ramspan/blocked_array.h>

#include <Eigen/Core>
#include <cstdio>
#include <cstdlib>
#if __has_include(<mdspan>)
#include <mdspan>
#endif

using ramspan::arrayBlock;
using ramspan::blockedArray;

namespace {

// A block is contiguous and row-major.
template <typename T>
auto AsEigen(const arrayBlock<T, 2>& block) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Mapped = std::conditional_t<std::is_const_v<T>, const Matrix, Matrix>;
  return Eigen::Map<Mapped>(block.data(), static_cast<Eigen::Index>(block.shape()[0]),
                            static_cast<Eigen::Index>(block.shape()[1]));
}

#if defined(__cpp_lib_mdspan)
template <typename T>
auto AsMdspan(const arrayBlock<T, 2>& block) {
  return std::mdspan(block.data(), block.shape()[0], block.shape()[1]);
}
#endif

template <typename F>
void ForEachBlock(const blockedArray<double, 2>& array, F&& visit) {
  for (size_t i = 0; i < array.block_counts()[0]; ++i) {
    for (size_t j = 0; j < array.block_counts()[1]; ++j) visit(i, j);
  }
}

// Small integers, so that sums are exact: (i + 1) mod 7 in all of row i.
double RowValue(size_t i) { return static_cast<double>((i + 1) % 7); }

void Multiply(const blockedArray<double, 2>& a, const blockedArray<double, 2>& b, blockedArray<double, 2>& c) {
  ForEachBlock(c, [&](size_t i, size_t j) {
    auto sum = c.block({i, j});
    AsEigen(sum).setZero();
    for (size_t k = 0; k < a.block_counts()[1]; ++k) {
      const auto left = a.read({i, k}), right = b.read({k, j});  // three blocks are pinned here
      AsEigen(sum).noalias() += AsEigen(left) * AsEigen(right);
    }
  });
}

}  // namespace

int main(int argc, char** argv) try {
  const size_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024;
  const size_t block = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 128;
  if (n == 0 || block == 0) {
    std::fprintf(stderr, "usage: views [N [BLOCK]]\n");
    return 2;
  }
  const std::array<size_t, 2> shape{n, n}, tile{block, block};
  blockedArray<double, 2> a(shape, tile), b(shape, tile), c(shape, tile);
  ForEachBlock(a, [&](size_t i, size_t j) {
    auto x = a.block({i, j}), y = b.block({i, j});
    for (size_t r = 0; r < x.shape()[0]; ++r) AsEigen(x).row(static_cast<Eigen::Index>(r)).setConstant(RowValue(x.origin()[0] + r));
    AsEigen(y).setConstant(2);
  });
  Multiply(a, b, c);
  size_t wrong = 0;
  ForEachBlock(c, [&](size_t i, size_t j) {
    const auto z = c.read({i, j});
#if defined(__cpp_lib_mdspan)
    const auto at = AsMdspan(z);
    for (size_t r = 0; r < at.extent(0); ++r) {
      for (size_t s = 0; s < at.extent(1); ++s) wrong += at[r, s] != 2 * static_cast<double>(n) * RowValue(z.origin()[0] + r);
    }
#else
    for (size_t r = 0; r < z.shape()[0]; ++r) {
      for (size_t s = 0; s < z.shape()[1]; ++s) wrong += z(r, s) != 2 * static_cast<double>(n) * RowValue(z.origin()[0] + r);
    }
#endif
  });
  std::printf("%zu x %zu in blocks of %zu x %zu: %zu elements wrong\n", n, n, block, block, wrong);
  return wrong == 0 ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "views: %s\n", e.what());
  return 1;
}
