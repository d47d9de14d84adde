#include "launch/argument_code.h"

#include <algorithm>
#include <cctype>

namespace ramspan {
namespace {

// A packed word stays well under the kernel's 128 KiB for one argument.
constexpr size_t kPackedBytesMax = 30000;

bool IsPlain(const std::string& argument) {
  if (argument.empty() || argument == ":" || argument[0] == '=') return false;
  return std::none_of(argument.begin(), argument.end(), [](unsigned char c) { return c < ' ' || c == 127; });
}

std::string Hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex = "=";
  for (unsigned char c : bytes) {
    hex += kDigits[c >> 4];
    hex += kDigits[c & 15];
  }
  return hex;
}

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::vector<std::string> Pack(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  std::string packed;
  bool open = false;
  for (const std::string& argument : arguments) {
    if (open && packed.size() + argument.size() > kPackedBytesMax) {
      words.push_back(Hex(packed));
      open = false;
    }
    packed = open ? packed + '\0' + argument : argument;
    open = true;
  }
  if (open) words.push_back(Hex(packed));
  return words;
}

Status Unpack(const std::string& word, std::vector<std::string>& arguments) {
  std::string argument;
  if (word.size() % 2 == 0) return InvalidArgument("\"" + word + "\" is not an encoded argument");
  for (size_t i = 1; i < word.size(); i += 2) {
    const int high = Digit(word[i]), low = Digit(word[i + 1]);
    if (high < 0 || low < 0) return InvalidArgument("\"" + word + "\" is not an encoded argument");
    const char c = static_cast<char>(high * 16 + low);
    if (c != '\0') {
      argument += c;
      continue;
    }
    arguments.push_back(argument);
    argument.clear();
  }
  arguments.push_back(argument);
  return {};
}

}  // namespace

std::vector<std::string> EncodeArguments(const std::vector<std::string>& arguments) {
  if (arguments.size() > kPlainArgumentsMax) return Pack(arguments);
  std::vector<std::string> words;
  for (const std::string& argument : arguments) words.push_back(IsPlain(argument) ? argument : Hex(argument));
  return words;
}

Result<std::vector<std::string>> DecodeArguments(const std::vector<std::string>& words) {
  std::vector<std::string> arguments;
  for (const std::string& word : words) {
    if (word.empty() || word[0] != '=') {
      arguments.push_back(word);
    } else if (Status status = Unpack(word, arguments); !status.ok()) {
      return status;
    }
  }
  return arguments;
}

}  // namespace ramspan
