// transpose: an n x n matrix that does not fit memory, transposed in place in three ways (arXiv 1510.06358, figures 8 and
// 9). Each is checked element by element.
//   simple  saved by rows, element (i, j) exchanged with (j, i): each row is fetched once for every other row
//   clever  saved by rows, exchanged in square tiles: as many rows as a tile has are pinned on both sides
//   block   saved in tiles: two tiles are pinned, transposed, exchanged
#include <ramspan/adhere_all.h>
#include <ramspan/blocked_array.h>
#include <ramspan/runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <utility>
#include <vector>

using ramspan::adhereTo;
using ramspan::blockedArray;
using ramspan::managedPtr;

namespace {

double Element(size_t n, size_t i, size_t j) { return static_cast<double>(i * n + j); }

using Rows = std::vector<managedPtr<double>>;

Rows MakeRows(size_t n) {
  Rows rows;
  for (size_t i = 0; i < n; ++i) {
    rows.emplace_back(n);
    ADHERETOLOC(double, rows[i], row);
    for (size_t j = 0; j < n; ++j) row[j] = Element(n, i, j);
  }
  return rows;
}

size_t WrongInRows(const Rows& rows) {
  size_t wrong = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    ADHERETOLOCCONST(double, rows[i], row);
    for (size_t j = 0; j < rows.size(); ++j) wrong += row[j] != Element(rows.size(), j, i);
  }
  return wrong;
}

void Simple(Rows& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    ADHERETOLOC(double, rows[i], a);
    for (size_t j = i + 1; j < rows.size(); ++j) {
      ADHERETOLOC(double, rows[j], b);
      std::swap(a[j], b[i]);
    }
  }
}

// Pins the rows of two stripes, all or none: threads that held half of theirs could stop each other.
void Clever(Rows& rows, size_t tile) {
  const size_t n = rows.size(), tiles = (n + tile - 1) / tile;
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // the first one; none may leave the loop
#pragma omp parallel for schedule(dynamic)
  for (size_t pair = 0; pair < tiles * tiles; ++pair) {
    const size_t bi = pair / tiles, bj = pair % tiles;
    if (bj < bi || failed) continue;
    try {
      std::vector<managedPtr<double>> both(rows.begin() + static_cast<long>(bi * tile),
                                           rows.begin() + static_cast<long>(std::min(n, (bi + 1) * tile)));
      const size_t height = both.size();
      if (bj > bi) {
        both.insert(both.end(), rows.begin() + static_cast<long>(bj * tile),
                    rows.begin() + static_cast<long>(std::min(n, (bj + 1) * tile)));
      }
      auto pins = ramspan::adhereAll(both);
      std::vector<double*> row;
      for (auto& pin : pins) row.push_back(pin);
      double** below = bj > bi ? row.data() + height : row.data();
      const size_t width = bj > bi ? both.size() - height : height;
      for (size_t i = 0; i < height; ++i) {
        for (size_t j = bj > bi ? 0 : i + 1; j < width; ++j) std::swap(row[i][bj * tile + j], below[j][bi * tile + i]);
      }
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void Block(blockedArray<double, 2>& matrix) {
  const size_t tiles = matrix.block_counts()[0];
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // the first one; none may leave the loop
#pragma omp parallel for schedule(dynamic)
  for (size_t pair = 0; pair < tiles * tiles; ++pair) {
    const size_t bi = pair / tiles, bj = pair % tiles;
    if (bj < bi || failed) continue;
    try {
      auto pins = ramspan::adhereAll(matrix.chunk({bi, bj}), matrix.chunk({bj, bi}));
      auto a = matrix.block({bi, bj}), b = matrix.block({bj, bi});
      for (size_t i = 0; i < a.shape()[0]; ++i) {
        for (size_t j = bi == bj ? i + 1 : 0; j < a.shape()[1]; ++j) std::swap(a(i, j), b(j, i));
      }
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

template <typename F>
void Timed(const char* name, size_t n, F&& run) {
  const auto begin = std::chrono::steady_clock::now();
  const size_t wrong = run();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%-8s %zu x %zu  %7.3f s  %zu elements wrong\n", name, n, n, seconds, wrong);
  if (wrong > 0) std::exit(1);
}

}  // namespace

int main(int argc, char** argv) try {
  const size_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2048;
  const size_t tile = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 128;
  if (n == 0 || tile == 0) {
    std::fprintf(stderr, "usage: transpose [N [TILE]]\n");
    return 2;
  }
  Timed("simple", n, [&] {
    Rows rows = MakeRows(n);
    Simple(rows);
    return WrongInRows(rows);
  });
  Timed("clever", n, [&] {
    Rows rows = MakeRows(n);
    // Two stripes a thread at the same time: a quarter of the limit for each of two threads.
    const size_t fitting = ramspan::MemoryLimit() / 8 / (n * sizeof(double));
    Clever(rows, std::clamp<size_t>(fitting, 1, tile));
    return WrongInRows(rows);
  });
  Timed("block", n, [&] {
    blockedArray<double, 2> matrix({n, n}, {tile, tile});
    const auto each = [&](auto&& visit) {
      for (size_t bi = 0; bi < matrix.block_counts()[0]; ++bi) {
        for (size_t bj = 0; bj < matrix.block_counts()[1]; ++bj) visit(bi, bj);
      }
    };
    each([&](size_t bi, size_t bj) {
      auto block = matrix.block({bi, bj});
      for (size_t i = 0; i < block.shape()[0]; ++i) {
        for (size_t j = 0; j < block.shape()[1]; ++j) {
          block(i, j) = Element(n, block.origin()[0] + i, block.origin()[1] + j);
        }
      }
    });
    Block(matrix);
    size_t wrong = 0;
    each([&](size_t bi, size_t bj) {
      const auto block = matrix.read({bi, bj});
      for (size_t i = 0; i < block.shape()[0]; ++i) {
        for (size_t j = 0; j < block.shape()[1]; ++j) {
          wrong += block(i, j) != Element(n, block.origin()[1] + j, block.origin()[0] + i);
        }
      }
    });
    return wrong;
  });
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "transpose: %s\n", e.what());
  return 1;
}
