// What a setting's text means: a typed value, or what is wrong with it and how to say it right; and which name a mistyped
// one may be. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config.h"
#include "common/config_file.h"
#include "common/status.h"

namespace ramspan {

inline constexpr std::string_view kEnvironmentPrefix = "RAMSPAN_";

// All leave `out` as it is when the text is wrong.
Status SetMemory(const std::string& text, uint64_t* out);
Status SetSwapMemory(const std::string& text, uint64_t* out);
Status SetPageBlock(const std::string& text, uint64_t* out);
Status SetPagesAbove(const std::string& text, uint64_t* out);
Status SetSwitch(std::string text, bool* out);
Status SetManager(const std::string& text, std::string* out);
Status SetTransport(const std::string& text, Transport* out);
// A plain number is the launcher's count of a job's own servers, and no place: in the environment it names none, elsewhere it is wrong.
Status SetServers(const std::string& text, bool may_be_number, std::string* out);
Status SetPolicy(const std::string& text, SwapPolicy* out);
Status SetMask(const std::string& text, std::string* out);

template <typename T>
Status SetChoice(const std::string& text, std::initializer_list<std::pair<const char*, T>> choices, T* out) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (text == name) {
      *out = value;
      return Status();
    }
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return InvalidArgument("\"" + Printable(text) + "\" is not known; the choices are " + names);
}

// The one of `names` that was probably meant: the nearest by letters, or that for which the word is a synonym (limit, ram:
// memory). Names may all begin with `prefix`, which counts for neither. REQUIRES: names is not empty.
std::string MeantName(std::string_view name, const std::vector<std::string>& names, std::string_view prefix = "");

}  // namespace ramspan
