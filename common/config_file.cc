#include "common/config_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ramspan {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kPrintableMax = 60;

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

// Wider than any key there is, so that a mistyped key is told from a line that is no setting at all.
bool IsKey(std::string_view text) {
  for (const char c : text) {
    const bool alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!alphanumeric && c != '_' && c != '-' && c != '.') return false;
  }
  return !text.empty();
}

bool IsControl(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F; }

bool HasControl(std::string_view text) {
  for (const char c : text) {
    if (IsControl(c)) return true;
  }
  return false;
}

bool IsBlankOrComment(std::string_view text) {
  text = Trim(text);
  return text.empty() || text.front() == '#';
}

// Each of these returns an empty string, or what is wrong with the line.
std::string ParseBlock(std::string_view line, ConfigBlock* block) {
  const size_t end = line.find(']');
  if (end == std::string_view::npos) return "the block's \"]\" is missing";
  const std::string_view name = Trim(line.substr(1, end - 1));
  if (name.empty()) return "the block has no name; write [default] or [program-name]";
  if (!IsBlankOrComment(line.substr(end + 1))) return "text after the block's name";
  block->name = name;
  return {};
}

std::string ParseQuoted(std::string_view text, std::string* value) {
  const size_t end = text.find('"', 1);
  if (end == std::string_view::npos) return "the closing quote is missing";
  if (!IsBlankOrComment(text.substr(end + 1))) return "text after the closing quote";
  *value = text.substr(1, end - 1);
  return {};
}

std::string ParseValue(std::string_view text, ConfigDialect dialect, std::string* value) {
  text = Trim(text);
  if (!text.empty() && text.front() == '"') return ParseQuoted(text, value);
  const size_t hash = text.find('#');
  if (hash != std::string_view::npos) {
    // Taken as a comment, it would cut a path like /tmp/run#3 silently.
    if (dialect == ConfigDialect::kRamspan && hash > 0 && !IsBlank(text[hash - 1])) {
      return "\"#\" within a value; put a blank before a comment, or quote the value";
    }
    text = Trim(text.substr(0, hash));
  }
  *value = text;
  return {};
}

std::string ParseEntry(std::string_view line, ConfigDialect dialect, ConfigEntry* entry) {
  const size_t equals = line.find('=');
  const std::string_view key = Trim(line.substr(0, equals == std::string_view::npos ? 0 : equals));
  if (!IsKey(key)) return "\"" + Printable(line) + "\" is neither a [block], a # comment nor key = value";
  entry->key = key;
  return ParseValue(line.substr(equals + 1), dialect, &entry->value);
}

std::string ParseLine(std::string_view line, int number, ConfigDialect dialect, std::vector<ConfigBlock>* blocks) {
  if (IsBlankOrComment(line)) return {};
  // A NUL would cut a path silently; a lone carriage return would hide a line.
  if (HasControl(line)) return "a control character; this is not a text file";
  line = Trim(line);
  if (line.front() == '[') {
    blocks->push_back({.line = number});
    return ParseBlock(line, &blocks->back());
  }
  ConfigEntry entry{.line = number};
  std::string error = ParseEntry(line, dialect, &entry);
  if (!error.empty()) return error;
  if (blocks->empty()) {
    return "key \"" + Printable(entry.key) + "\" before the first block; put a line [default] above it";
  }
  blocks->back().entries.push_back(std::move(entry));
  return {};
}

}  // namespace

Result<std::optional<std::string>> ReadConfigFile(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    // EACCES: a folder that may not be searched (another user's home) holds no configuration for us.
    if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) return std::optional<std::string>();
    return InvalidArgument(path + ": cannot be read: " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode)) return InvalidArgument(path + ": is not a regular file");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return InvalidArgument(path + ": cannot be read: " + std::strerror(errno));

  std::string text;
  char buffer[4096];
  ssize_t got = 1;
  while (got > 0 && text.size() <= kConfigFileMaxBytes) {
    do {
      got = ::read(fd, buffer, sizeof buffer);
    } while (got < 0 && errno == EINTR);
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
  const int error = errno;
  ::close(fd);
  if (got < 0) return InvalidArgument(path + ": cannot be read: " + std::strerror(error));
  return std::optional<std::string>(std::move(text));
}

std::string Printable(std::string_view text) {
  std::string out(text.substr(0, kPrintableMax));
  for (char& c : out) {
    if (IsControl(c) || c == '\t') c = '?';
  }
  if (text.size() > kPrintableMax) out += "...";
  return out;
}

Result<std::vector<ConfigBlock>> ParseConfigText(std::string_view text, const std::string& file, ConfigDialect dialect,
                                                 std::vector<std::string>* passed_over) {
  if (text.size() > kConfigFileMaxBytes) {
    return InvalidArgument(file + ":1: larger than 1 MiB; this is no configuration file");
  }
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<ConfigBlock> blocks;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string error = ParseLine(line, number, dialect, &blocks);
    if (error.empty()) continue;
    const std::string message = file + ":" + std::to_string(number) + ": " + error;
    if (dialect == ConfigDialect::kRamspan) return InvalidArgument(message);
    if (passed_over != nullptr) passed_over->push_back(message);
  }
  return blocks;
}

}  // namespace ramspan
