#include "common/config_rambrain.h"

#include <cstdint>

#include "common/units.h"

namespace ramspan {
namespace {

constexpr uint64_t kLeast = uint64_t{1} << 20;  // of a memory limit here, of a swap file there

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Rambrain's sizes are C's floating point numbers: digits may be missing after the point, and an f may follow them.
std::string Size(const std::string& value) {
  size_t end = 0;
  while (end < value.size() && (IsDigit(value[end]) || value[end] == '.')) ++end;
  std::string number = value.substr(0, end);
  std::string unit = value.substr(end);
  if (!unit.empty() && unit[0] == 'f') unit.erase(0, 1);
  if (!number.empty() && number.back() == '.') number.pop_back();
  const std::string size = number + unit;
  const Result<uint64_t> bytes = ParseBytes(size);
  return bytes.ok() && bytes.value() < kLeast ? std::to_string(kLeast) : size;
}

bool IsNumber(const std::string& value) {
  for (const char c : value) {
    if (!IsDigit(c)) return false;
  }
  return !value.empty();
}

}  // namespace

std::string FromRambrainsValue(const std::string& key, const std::string& value, const std::string& home) {
  if (key == "memory" || key == "swapMemory") return Size(value);
  if (key == "swapfiles" && !home.empty() && value.starts_with('~')) return home + value.substr(1);
  if (key == "swap" && value == "managedDummySwap") return "file";
  if (key == "enableDMA" && IsNumber(value)) return value.find_first_not_of('0') == std::string::npos ? "0" : "1";
  return value;
}

}  // namespace ramspan
