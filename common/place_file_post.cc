#include "common/place_file_post.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "common/descriptor.h"
#include "common/log.h"
#include "common/place_file.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A change takes milliseconds. Hundreds of servers that start at once make theirs one after another.
constexpr std::chrono::seconds kLockMayTake{30};
constexpr milliseconds kLockAgain{5};
constexpr int kBirthsMax = 100;  // how often the file may appear, and go again, while this server makes it
// Who is alive answers, or refuses, at once. Silence says nothing, and is not waited for for long.
constexpr milliseconds kAnswerMayTake{200};
constexpr std::chrono::seconds kLooksMayTake{2};

using Lines = std::vector<std::string>;

Status Wrong(const std::string& path, const std::string& what) { return ProblemOfPlaceFile(StatusCode::kInvalidArgument, path, what); }

// Nothing: not only servers have written this.
std::optional<Lines> LinesOfServers(const std::string& text) {
  Lines lines;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    if (end == std::string::npos) return std::nullopt;
    lines.push_back(text.substr(begin, end - begin));
    const Result<SocketPlace> place = ParseSocketPlace(lines.back());
    if (!place.ok() || place.value().text() != lines.back()) return std::nullopt;
  }
  return lines;
}

bool IsSamePlace(const SocketPlace& a, const SocketPlace& b) {
  if (a.text() == b.text()) return true;
  if (a.is_local() || b.is_local() || a.port != b.port) return false;
  const Result<std::vector<SocketAddress>> of_a = Resolve(a), of_b = Resolve(b);
  if (!of_a.ok() || !of_b.ok()) return false;
  return std::any_of(of_a.value().begin(), of_a.value().end(), [&](const SocketAddress& one) {
    return std::any_of(of_b.value().begin(), of_b.value().end(), [&](const SocketAddress& other) { return one.host() == other.host(); });
  });
}

// What the network says of the places in a file; asked before the file is locked, because names and silent hosts take time.
struct Known {
  std::set<std::string> own;  // names of the server's place
  Lines deserted;             // where nobody listened
};

Known AskNetwork(const std::string& path, const SocketPlace& own) {
  Known known{.own = {own.text()}, .deserted = {}};
  const Result<std::vector<SocketPlace>> there = ReadPlaceFile(path);
  if (!there.ok()) return known;
  const auto until = steady_clock::now() + kLooksMayTake;
  for (const SocketPlace& place : there.value()) {
    if (steady_clock::now() > until) break;
    if (IsSamePlace(place, own)) {
      known.own.insert(place.text());
    } else if (IsDeserted(place, kAnswerMayTake)) {
      known.deserted.push_back(place.text());
    }
  }
  return known;
}

// The file, locked; an empty descriptor: there is none.
Result<Descriptor> LockFile(const std::string& path) {
  const auto until = steady_clock::now() + kLockMayTake;
  for (; steady_clock::now() < until; std::this_thread::sleep_for(kLockAgain)) {
    struct stat there {}, ours {};
    if (lstat(path.c_str(), &there) != 0) return errno == ENOENT ? Result<Descriptor>(Descriptor()) : Wrong(path, std::strerror(errno));
    if (S_ISLNK(there.st_mode)) return Wrong(path, "it is a link, which a server does not follow: name the file itself");
    if (!S_ISREG(there.st_mode)) return Wrong(path, S_ISDIR(there.st_mode) ? "it is a folder: write --rendezvous " + path : "it is no ordinary file");
    Descriptor file(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file && errno == ENOENT) continue;
    if (!file) return Wrong(path, std::string("this server cannot write it: ") + std::strerror(errno));
    // Any other error: this file system has no locks.
    if (flock(file.number(), LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) continue;
    // Who had it locked may have put another one in its place.
    if (fstat(file.number(), &ours) == 0 && lstat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) return file;
  }
  return ProblemOfPlaceFile(StatusCode::kUnavailable, path, "other processes keep it locked");
}

// Appears whole. kAborted: there shall be none yet, and there is one.
Status PutInPlace(const std::string& path, const std::string& text, bool is_new) {
  std::string aside = path + ".XXXXXX";
  const Descriptor file(mkostemp(aside.data(), O_CLOEXEC));  // 0600
  if (!file) return Wrong(path, std::string("no file can be made beside it: ") + std::strerror(errno));
  // Some file systems say only then that they have no room.
  const bool whole = write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(file.number()) == 0;
  if (whole && is_new) {
    const int error = link(aside.c_str(), path.c_str()) == 0 ? 0 : errno;
    if (error == 0 || error == EEXIST) {
      unlink(aside.c_str());
      return error == 0 ? Status() : Aborted(path + " is there already");
    }
    // This file system has no links: of two servers that make the file at once one writes itself down later.
  }
  if (whole && rename(aside.c_str(), path.c_str()) == 0) return {};
  const std::string reason = std::strerror(errno);
  unlink(aside.c_str());
  return Wrong(path, "it cannot be written: " + reason);
}

// Replaces what is in the file by what `change` makes of it, while no other server changes it. A file that becomes empty goes.
Status Change(const std::string& path, const std::function<Result<std::string>(const std::string&)>& change) {
  for (int births = 0; births < kBirthsMax; ++births) {
    const Result<Descriptor> locked = LockFile(path);
    if (!locked.ok()) return locked.status();
    const bool is_new = !locked.value();
    const Result<std::string> before = is_new ? Result<std::string>(std::string()) : TextOfPlaceFile(path);
    const Result<std::string> after = before.ok() ? change(before.value()) : before;
    if (!after.ok()) return after.status();
    if (after.value() == before.value()) return {};
    if (after.value().empty()) return unlink(path.c_str()) == 0 ? Status() : Wrong(path, std::string("it cannot be removed: ") + std::strerror(errno));
    Status put = PutInPlace(path, after.value(), is_new);
    if (put.code() != StatusCode::kAborted) return put;
  }
  return ProblemOfPlaceFile(StatusCode::kUnavailable, path, "others make and remove it all the time");
}

Result<std::string> WithPlace(const std::string& path, const std::string& text, const std::string& own, const Known& known) {
  const Result<std::vector<SocketPlace>> places = PlacesInText(path, text);
  if (!places.ok()) return Wrong(path, "it holds something else than places of memory servers: name another file, or remove it");
  for (const SocketPlace& place : places.value()) {
    if (known.own.count(place.text()) != 0) return text;
  }
  const std::optional<Lines> lines = LinesOfServers(text);
  if (!lines) return Wrong(path, "it was written by hand and does not name this server: write the line " + own + " into it, or name another file");
  std::string all;
  for (const std::string& line : *lines) {
    // Asked again: it may have been started meanwhile, and found its line there.
    const bool silent = std::find(known.deserted.begin(), known.deserted.end(), line) != known.deserted.end();
    if (!silent || !IsDeserted(ParseSocketPlace(line).value(), kAnswerMayTake)) all += line + "\n";
  }
  all += own + "\n";
  if (all.size() > kPlaceFileBytesMax) return Wrong(path, "it has no room for another line: name another file, or start the servers with one folder (--rendezvous DIR)");
  return all;
}

std::string WithoutPlace(const std::string& text, const std::string& own) {
  const std::optional<Lines> lines = LinesOfServers(text);
  if (!lines) return text;
  std::string others;
  for (const std::string& line : *lines) others += line == own ? "" : line + "\n";
  return others;
}

Status AddPlace(const std::string& path, const SocketPlace& place) {
  const Known known = AskNetwork(path, place);
  return Change(path, [&](const std::string& text) { return WithPlace(path, text, place.text(), known); });
}

}  // namespace

Result<std::unique_ptr<PlaceFilePost>> PlaceFilePost::Make(const std::string& path, const SocketPlace& place, milliseconds look_every) {
  if (Status added = AddPlace(path, place); !added.ok()) return added;
  auto post = std::unique_ptr<PlaceFilePost>(new PlaceFilePost(path, place));
  PlaceFilePost* const raw = post.get();
  Result<std::unique_ptr<Announcer>> announcer = Announcer::Start({.first = nullptr, .again = [raw] { return raw->Announce(); }}, look_every);
  if (!announcer.ok()) return announcer.status();  // the post takes its line away
  post->announcer_ = std::move(announcer).value();
  return post;
}

// Without the lock and the network, unless something is to be done.
Status PlaceFilePost::Announce() const {
  const Result<std::vector<SocketPlace>> there = ReadPlaceFile(path_);
  const auto is_own = [this](const SocketPlace& one) { return one.text() == place_.text(); };
  if (there.ok() && std::any_of(there.value().begin(), there.value().end(), is_own)) return {};
  return AddPlace(path_, place_);
}

PlaceFilePost::~PlaceFilePost() {
  announcer_.reset();
  const Status removed = Change(path_, [this](const std::string& text) { return Result<std::string>(WithoutPlace(text, place_.text())); });
  if (!removed.ok()) LogWarning("%s; it may still name the memory server %s, which ends", removed.c_str(), place_.text().c_str());
}

}  // namespace ramspan
