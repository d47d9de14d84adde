// A field of rows of doubles, each holding its number.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/rambrain/row.h"

constexpr unsigned int kDoubles = 1 << 15;  // of a row: 256 KiB

inline std::vector<rambrain::managedPtr<double>> Field(int n) {
  std::vector<rambrain::managedPtr<double>> field;
  for (int i = 0; i < n; ++i) field.emplace_back(kDoubles, i);
  return field;
}

inline void Expect(const std::vector<rambrain::managedPtr<double>>& field) {
  for (size_t i = 0; i < field.size(); ++i) {
    ROWCONST(double, field[i], data);
    ASSERT_EQ(data[0], static_cast<double>(i));
    ASSERT_EQ(data[kDoubles - 1], static_cast<double>(i));
  }
}
