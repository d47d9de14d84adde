#include "common/units.h"

#include <charconv>
#include <iterator>
#include <limits>

namespace ramspan {
namespace {

__extension__ typedef unsigned __int128 Uint128;  // a fraction of 18 digits times 2^50 does not fit in 64 bits

struct Unit {
  std::string_view name;  // lower case
  uint64_t bytes;
};

constexpr Unit kUnits[] = {
    {"b", 1},
    {"kb", 1000},
    {"mb", 1000'000},
    {"gb", 1000'000'000},
    {"tb", 1000'000'000'000},
    {"pb", 1000'000'000'000'000},
    {"kib", uint64_t{1} << 10},
    {"mib", uint64_t{1} << 20},
    {"gib", uint64_t{1} << 30},
    {"tib", uint64_t{1} << 40},
    {"pib", uint64_t{1} << 50},
    {"k", uint64_t{1} << 10},
    {"m", uint64_t{1} << 20},
    {"g", uint64_t{1} << 30},
    {"t", uint64_t{1} << 40},
    {"p", uint64_t{1} << 50},
};

constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();
constexpr size_t kQuotedMax = 40;  // of the user's text in a message

// std::isdigit and tolower depend on the locale, and a user's locale must not change what a size means.
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
char ToLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool IsBlank(char c) { return c == ' ' || c == '\t'; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view TakeDigits(std::string_view* text) {
  size_t n = 0;
  while (n < text->size() && IsDigit((*text)[n])) ++n;
  const std::string_view digits = text->substr(0, n);
  text->remove_prefix(n);
  return digits;
}

const Unit* FindUnit(std::string_view name) {
  if (name.empty()) return &kUnits[0];
  for (const Unit& unit : kUnits) {
    if (unit.name.size() != name.size()) continue;
    size_t same = 0;
    while (same < name.size() && ToLower(name[same]) == unit.name[same]) ++same;
    if (same == name.size()) return &unit;
  }
  return nullptr;
}

Status Bad(std::string_view text, const char* why) {
  std::string quoted(text.substr(0, kQuotedMax));
  for (char& c : quoted) {
    if (static_cast<unsigned char>(c) < ' ') c = '?';  // a message is one line
  }
  if (text.size() > kQuotedMax) quoted += "...";
  return InvalidArgument("\"" + quoted + "\" is not a size in bytes: " + why +
                         "; sizes look like 4096, 64 MiB, 1.5 GiB or 1 TB");
}

// whole.fraction * unit, rounded down to a byte (a limit never grows by rounding). False when it is over kMaxBytes.
bool Scale(std::string_view whole, std::string_view fraction, uint64_t unit, uint64_t* bytes) {
  uint64_t count = 0;
  for (const char c : whole) {
    if (__builtin_mul_overflow(count, uint64_t{10}, &count)) return false;
    if (__builtin_add_overflow(count, static_cast<uint64_t>(c - '0'), &count)) return false;
  }
  constexpr size_t kFractionDigits = 18;  // what follows is worth less than 0.002 bytes in any unit
  Uint128 numerator = 0, denominator = 1;
  for (const char c : fraction.substr(0, kFractionDigits)) {
    numerator = numerator * 10 + static_cast<unsigned>(c - '0');
    denominator *= 10;
  }
  const Uint128 total = Uint128{count} * unit + numerator * unit / denominator;
  if (total > kMaxBytes) return false;
  *bytes = static_cast<uint64_t>(total);
  return true;
}

}  // namespace

Result<uint64_t> ParseBytes(std::string_view text) {
  std::string_view rest = Trim(text);
  if (rest.empty()) return Bad(text, "it is empty");
  if (rest.front() == '-') return Bad(text, "it is negative");
  const std::string_view whole = TakeDigits(&rest);
  if (whole.empty()) return Bad(text, "it does not begin with a digit");
  std::string_view fraction;
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    fraction = TakeDigits(&rest);
    if (fraction.empty()) return Bad(text, "digits are missing after the point");
  }
  const Unit* unit = FindUnit(Trim(rest));
  if (unit == nullptr) return Bad(text, "its unit is none of B, kB to PB, KiB to PiB, and K, M, G, T, P");
  const bool has_fraction = fraction.find_first_not_of('0') != std::string_view::npos;
  // "1.5" is a forgotten unit, not one byte.
  if (unit->bytes == 1 && has_fraction) return Bad(text, "a fraction of a byte; a unit is missing");

  uint64_t bytes = 0;
  if (!Scale(whole, fraction, unit->bytes, &bytes)) return Bad(text, "it is over 2^63-1 bytes");
  if (bytes == 0 && has_fraction) return Bad(text, "it is less than one byte");
  return bytes;
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  // 1023.5 would print as "1024 KiB": such values belong to the next unit.
  while (value >= 1023.5 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  const bool exact = bytes % (uint64_t{1} << (10 * unit)) == 0;
  const int decimals = exact || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  // Not printf, which would write the decimal point of the program's locale: ParseBytes reads only one.
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, decimals);
  return std::string(text, end.ptr) + " " + kNames[unit];
}

std::string UnitsForgotten(const std::string& text) {
  const bool bare = text.find_first_not_of("0123456789") == std::string::npos;
  const bool zero = text.find_first_not_of('0') == std::string::npos;
  return bare && !zero ? "; units forgotten? (" + text + "MiB)" : "";
}

}  // namespace ramspan
