#include "common/place_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/descriptor.h"

namespace ramspan {
namespace {

constexpr const char* kBlanks = " \t\r";

// Without its comment, which begins at a # at the line's begin or after a blank: a Unix socket's path may hold one.
std::string PlaceInLine(std::string line) {
  for (size_t mark = line.find('#'); mark != std::string::npos; mark = line.find('#', mark + 1)) {
    if (mark > 0 && std::strchr(kBlanks, line[mark - 1]) == nullptr) continue;
    line.resize(mark);
    break;
  }
  line.erase(0, line.find_first_not_of(kBlanks));
  line.erase(line.find_last_not_of(kBlanks) + 1);
  return line;
}

}  // namespace

Status ProblemOfPlaceFile(StatusCode code, const std::string& path, const std::string& what) { return {code, "file of memory servers " + path + ": " + what}; }

Result<std::string> TextOfPlaceFile(const std::string& path) {
  const auto problem = [&](StatusCode code, const std::string& what) { return ProblemOfPlaceFile(code, path, what); };
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.number(), &status) != 0) {
    const int error = errno;
    return problem(StatusCode::kUnavailable, std::strerror(error) + std::string(error == ENOENT ? "; the first `ramspan server --rendezvous file:" + path + "` makes it" : ""));
  }
  if (!S_ISREG(status.st_mode)) {
    return problem(StatusCode::kInvalidArgument, S_ISDIR(status.st_mode) ? "it is a folder: write dir:" + path : "it is no ordinary file");
  }
  if (status.st_uid != geteuid() && status.st_uid != 0) return problem(StatusCode::kInvalidArgument, "it belongs to another user");
  if ((status.st_mode & 022) != 0) return problem(StatusCode::kInvalidArgument, "others may write it: chmod 600 it");
  std::string text(kPlaceFileBytesMax + 1, '\0');
  size_t length = 0;
  for (ssize_t n = 1; n != 0 && length < text.size(); length += static_cast<size_t>(n)) {
    n = read(file.number(), text.data() + length, text.size() - length);
    if (n < 0) return problem(StatusCode::kUnavailable, std::strerror(errno));
  }
  if (length > kPlaceFileBytesMax) return problem(StatusCode::kInvalidArgument, "it has more than " + std::to_string(kPlaceFileBytesMax) + " bytes");
  text.resize(length);
  return text;
}

Result<std::vector<SocketPlace>> PlacesInText(const std::string& path, const std::string& text) {
  std::vector<SocketPlace> places;
  size_t line_number = 1;
  for (size_t begin = 0; begin < text.size(); ++line_number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = PlaceInLine(text.substr(begin, end - begin));
    begin = end + 1;
    if (line.empty()) continue;
    if (std::any_of(line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; })) {
      return ProblemOfPlaceFile(StatusCode::kInvalidArgument, path, "line " + std::to_string(line_number) + " has characters that no place has: is it a file of places at all?");
    }
    Result<SocketPlace> place = ParseSocketPlace(line);
    if (!place.ok()) return ProblemOfPlaceFile(StatusCode::kInvalidArgument, path, "line " + std::to_string(line_number) + ": " + place.status().message());
    places.push_back(std::move(place).value());
  }
  return places;
}

std::optional<std::vector<std::string>> LinesOfServers(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    if (end == std::string::npos) return std::nullopt;
    lines.push_back(text.substr(begin, end - begin));
    const Result<SocketPlace> place = ParseSocketPlace(lines.back());
    if (!place.ok() || place.value().text() != lines.back()) return std::nullopt;
  }
  return lines;
}

Result<std::vector<SocketPlace>> ReadPlaceFile(const std::string& path) {
  const Result<std::string> text = TextOfPlaceFile(path);
  if (!text.ok()) return text.status();
  return PlacesInText(path, text.value());
}

}  // namespace ramspan
