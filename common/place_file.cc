#include "common/place_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "common/rendezvous.h"

namespace ramspan {
namespace {

Status Problem(StatusCode code, const std::string& path, const std::string& what) { return {code, "file of memory servers " + path + ": " + what}; }

// Its text. kUnavailable, kInvalidArgument: as ReadPlaceFile.
Result<std::string> TextOf(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.number(), &status) != 0) return Problem(StatusCode::kUnavailable, path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) {
    return Problem(StatusCode::kInvalidArgument, path, S_ISDIR(status.st_mode) ? "it is a folder: write dir:" + path : "it is no ordinary file");
  }
  if (status.st_uid != geteuid() && status.st_uid != 0) return Problem(StatusCode::kInvalidArgument, path, "it belongs to another user");
  if ((status.st_mode & 022) != 0) return Problem(StatusCode::kInvalidArgument, path, "others may write it: chmod 600 it");
  std::string text(kPlaceFileBytesMax + 1, '\0');
  size_t length = 0;
  for (ssize_t n = 1; n != 0 && length < text.size(); length += static_cast<size_t>(n)) {
    n = read(file.number(), text.data() + length, text.size() - length);
    if (n < 0) return Problem(StatusCode::kUnavailable, path, std::strerror(errno));
  }
  if (length > kPlaceFileBytesMax) return Problem(StatusCode::kInvalidArgument, path, "it has more than " + std::to_string(kPlaceFileBytesMax) + " bytes");
  text.resize(length);
  return text;
}

// Of this path: a server that is named there, answers, and is not `own`.
std::optional<SocketPlace> OtherServer(const std::string& path, const SocketPlace& own) {
  const Result<std::vector<SocketPlace>> there = ReadPlaceFile(path);
  if (!there.ok()) return std::nullopt;
  for (const SocketPlace& place : there.value()) {
    if (place.text() != own.text() && Answers(place, -1)) return place;
  }
  return std::nullopt;
}

// A file that is there may be anybody's work: only what a server has written is replaced, and a file without a byte.
Status MayBeReplaced(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return errno == ENOENT ? Status() : Problem(StatusCode::kInvalidArgument, path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) {
    return Problem(StatusCode::kInvalidArgument, path, S_ISDIR(status.st_mode) ? "it is a folder: write dir:" + path : "it is no ordinary file");
  }
  const Result<std::string> text = TextOf(path);
  if (!text.ok()) return {StatusCode::kInvalidArgument, text.status().message()};
  const std::string& all = text.value();
  const bool is_a_servers = !all.empty() && all.find('\n') == all.size() - 1 && ParseSocketPlace(all.substr(0, all.size() - 1)).ok();
  if (all.empty() || is_a_servers) return {};
  return Problem(StatusCode::kInvalidArgument, path, "it holds something else than the one line that a server writes: name another file, or remove it");
}

}  // namespace

Result<std::vector<SocketPlace>> ReadPlaceFile(const std::string& path) {
  Result<std::string> text = TextOf(path);
  if (!text.ok()) return text.status();
  std::vector<SocketPlace> places;
  const std::string& all = text.value();
  size_t line_number = 1;
  for (size_t begin = 0; begin < all.size(); ++line_number) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    std::string line = all.substr(begin, end - begin);
    begin = end + 1;
    line.erase(0, line.find_first_not_of(" \t\r"));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (line.empty() || line[0] == '#') continue;
    Result<SocketPlace> place = ParseSocketPlace(line);
    if (!place.ok()) return Problem(StatusCode::kInvalidArgument, path, "line " + std::to_string(line_number) + ": " + place.status().message());
    places.push_back(std::move(place).value());
  }
  return places;
}

Result<std::unique_ptr<PlaceFilePost>> PlaceFilePost::Make(const std::string& path, const SocketPlace& place) {
  if (Status status = MayBeReplaced(path); !status.ok()) return status;
  if (const std::optional<SocketPlace> other = OtherServer(path, place)) {
    return Problem(StatusCode::kInvalidArgument, path, "the memory server " + other->text() + " has written itself down there, and answers. Give each server a file of "
                   "its own, or all of them one folder (--rendezvous DIR); or remove the file, if that is no memory server any more");
  }
  const std::string line = place.text() + "\n", aside = path + "." + std::to_string(getpid()) + ".new";
  unlink(aside.c_str());
  const Descriptor file(open(aside.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600));
  // Some file systems say only then that they have no room.
  const bool whole = file && write(file.number(), line.data(), line.size()) == static_cast<ssize_t>(line.size()) && fsync(file.number()) == 0;
  if (whole && rename(aside.c_str(), path.c_str()) == 0) return std::unique_ptr<PlaceFilePost>(new PlaceFilePost(path, line));
  const std::string reason = std::strerror(errno);
  unlink(aside.c_str());
  return Problem(StatusCode::kInvalidArgument, path, "it cannot be written: " + reason);
}

PlaceFilePost::~PlaceFilePost() {
  const Result<std::string> text = TextOf(path_);
  if (text.ok() && text.value() == line_) unlink(path_.c_str());
}

}  // namespace ramspan
