#include "common/place_file_post.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/descriptor.h"
#include "common/log.h"
#include "common/place_file.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A change takes milliseconds. Hundreds of servers that start at once make theirs one after another; one that ends is waited for by somebody.
// One that starts has to serve, and hears no signal before it does: what is not done by then, the announcer does.
constexpr std::chrono::seconds kLockMayTake{30}, kLockMayTakeAtTheStart{2}, kLockMayTakeAtTheEnd{2};
constexpr milliseconds kLockAgain{5};
// Who is alive answers, or refuses, at once. Silence says nothing, and is not waited for for long; less so while the file is locked.
constexpr milliseconds kAnswerMayTake{200};
constexpr milliseconds kLooksMayTake{2000}, kLooksMayTakeLocked{500};

using Lines = std::vector<std::string>;
using Addresses = std::vector<SocketAddress>;
using AddressesOfLines = std::map<std::string, Addresses>;

// How long something may be waited for: for a time, and only while the descriptor is not readable (-1: none).
struct Patience {
  Patience(milliseconds at_most, int stop_at) : end(steady_clock::now() + at_most), stop(stop_at) {}
  bool Lasts(milliseconds pause = milliseconds(0)) const {
    pollfd polled{.fd = stop, .events = POLLIN, .revents = 0};
    return poll(&polled, 1, static_cast<int>(pause.count())) <= 0 && steady_clock::now() < end;
  }

  const steady_clock::time_point end;
  const int stop;
};

Status Wrong(const std::string& path, const std::string& what) { return ProblemOfPlaceFile(StatusCode::kInvalidArgument, path, what); }

bool ShareAHost(const Addresses& a, const Addresses& b) {
  return std::any_of(a.begin(), a.end(), [&](const SocketAddress& one) {
    return std::any_of(b.begin(), b.end(), [&](const SocketAddress& other) { return one.host() == other.host(); });
  });
}

// Another host's @name, /path or 127.0.0.1 is not there on this one, whether its server lives or not.
bool MeansTheSameEverywhere(const Addresses& addresses) {
  return std::none_of(addresses.begin(), addresses.end(), [](const SocketAddress& one) {
    return one.host().empty() || IsOfOneHost({.host = one.host(), .port = std::to_string(one.port()), .path = ""});
  });
}

bool NamesOne(const std::vector<SocketPlace>& places, const std::set<std::string>& names) {
  return std::any_of(places.begin(), places.end(), [&](const SocketPlace& one) { return names.count(one.text()) != 0; });
}

// Those of other servers; stops at a name of the server's own, which it adds to `names`.
AddressesOfLines AddressesOfOthers(const std::vector<SocketPlace>& places, const SocketPlace& own, const Patience& patience, std::set<std::string>* names) {
  AddressesOfLines of_others;
  const Result<Addresses> of_own = Resolve(own);
  for (const SocketPlace& place : places) {
    if (!patience.Lasts()) break;
    const Result<Addresses> addresses = Resolve(place);
    if (!addresses.ok()) continue;
    const bool is_own = of_own.ok() && !place.is_local() && !own.is_local() && place.port == own.port && ShareAHost(addresses.value(), of_own.value());
    if (is_own) {
      names->insert(place.text());
      break;
    }
    of_others.emplace(place.text(), addresses.value());
  }
  return of_others;
}

AddressesOfLines Deserted(const AddressesOfLines& others, const Patience& patience) {
  AddressesOfLines deserted;
  for (const auto& [line, addresses] : others) {
    if (!patience.Lasts()) break;
    if (MeansTheSameEverywhere(addresses) && IsDeserted(addresses, kAnswerMayTake, patience.stop)) deserted.emplace(line, addresses);
  }
  return deserted;
}

enum class IfThereIsNone { kMake, kLeave };

// The file, locked; an empty descriptor: there is none. One that is made is empty: as such it is any server's.
Result<Descriptor> LockFile(const std::string& path, IfThereIsNone none, const Patience& patience) {
  do {
    struct stat there {}, ours {};
    const bool is_there = lstat(path.c_str(), &there) == 0;
    if (!is_there && errno != ENOENT) return Wrong(path, std::strerror(errno));
    if (!is_there && none == IfThereIsNone::kLeave) return Descriptor();
    if (is_there && S_ISLNK(there.st_mode)) return Wrong(path, "it is a link, which a server does not follow: name the file itself");
    if (is_there && !S_ISREG(there.st_mode)) return Wrong(path, S_ISDIR(there.st_mode) ? "it is a folder: write --rendezvous " + path : "it is no ordinary file");
    Descriptor file(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (is_there ? 0 : O_CREAT), 0600));
    if (!file && is_there && errno == ENOENT) continue;
    if (!file) return Wrong(path, std::string(is_there ? "this server cannot write it: " : "it cannot be made: ") + std::strerror(errno));
    // Any other error: this file system has no locks.
    if (flock(file.number(), LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) continue;
    // Who had it locked may have put another one in its place.
    if (fstat(file.number(), &ours) == 0 && lstat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) return file;
  } while (patience.Lasts(kLockAgain));
  return ProblemOfPlaceFile(StatusCode::kUnavailable, path, "other processes keep it locked");
}

// Appears whole, for those who might read the one before. Who has the lock is alone with one name beside the file, so that what a server that
// was killed has left there is used by the next one. Where there are no locks, others may write at once.
Status PutInPlace(const std::string& path, const std::string& text, const Descriptor& locked) {
  const bool is_alone = flock(locked.number(), LOCK_EX | LOCK_NB) == 0;
  std::string aside = path + (is_alone ? ".ramspan-new" : ".XXXXXX");
  if (is_alone) unlink(aside.c_str());
  const Descriptor file(is_alone ? open(aside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : mkostemp(aside.data(), O_CLOEXEC));
  if (!file) return Wrong(path, std::string("no file can be made beside it: ") + std::strerror(errno));
  struct stat before {};
  const bool mode_kept = fstat(locked.number(), &before) == 0 && fchmod(file.number(), before.st_mode & 0755) == 0;
  // Some file systems say only at fsync that they have no room.
  const bool whole = mode_kept && write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(file.number()) == 0;
  if (whole && rename(aside.c_str(), path.c_str()) == 0) return {};
  const std::string reason = std::strerror(errno);
  unlink(aside.c_str());
  return Wrong(path, "it cannot be written: " + reason);
}

// Replaces what is in the file by what `change` makes of it, while no other server changes it. A file that becomes empty goes.
Status Change(const std::string& path, IfThereIsNone none, const Patience& patience, const std::function<Result<std::string>(const std::string&)>& change) {
  const Result<Descriptor> locked = LockFile(path, none, patience);
  if (!locked.ok()) return locked.status();
  if (!locked.value()) return {};
  const Result<std::string> before = TextOfPlaceFile(path);
  const Result<std::string> after = before.ok() ? change(before.value()) : before;
  if (!after.ok()) return after.status();
  if (after.value() == before.value()) return {};
  if (after.value().empty()) return unlink(path.c_str()) == 0 ? Status() : Wrong(path, std::string("it cannot be removed: ") + std::strerror(errno));
  return PutInPlace(path, after.value(), locked.value());
}

// `deserted`: lines at whose place nobody listened.
Result<std::string> WithPlace(const std::string& path, const std::string& text, const std::string& own, const std::set<std::string>& names,
                              const AddressesOfLines& deserted, const Patience& patience) {
  const Result<std::vector<SocketPlace>> places = PlacesInText(path, text);
  if (!places.ok()) return Wrong(path, "it holds something else than places of memory servers: name another file, or remove it");
  if (NamesOne(places.value(), names)) return text;
  const std::optional<Lines> lines = LinesOfServers(text);
  if (!lines) return Wrong(path, "it was written by hand and does not name this server: write the line " + own + " into it, or name another file");
  std::string all;
  for (const std::string& line : *lines) {
    // Asked again: it may have been started meanwhile, and found its line there. Those who are not asked in time stay.
    const auto silent = deserted.find(line);
    const bool goes = silent != deserted.end() && patience.Lasts() && IsDeserted(silent->second, kAnswerMayTake, patience.stop);
    if (!goes) all += line + "\n";
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

}  // namespace

Result<std::unique_ptr<PlaceFilePost>> PlaceFilePost::Make(const std::string& path, const SocketPlace& place, milliseconds look_every) {
  auto post = std::unique_ptr<PlaceFilePost>(new PlaceFilePost(path, place));
  PlaceFilePost* const raw = post.get();
  if (Status added = raw->Announce(/*until=*/-1, kLockMayTakeAtTheStart); added.code() == StatusCode::kUnavailable) {
    LogWarning("%s; the memory server %s serves, and will name itself there", added.c_str(), place.text().c_str());
  } else if (!added.ok()) {
    return added;
  }
  Announcer::Work work{.first = nullptr, .again = [raw](int until) { return raw->Announce(until, kLockMayTake); }};
  if (!raw->is_there_) work.first = [again = work.again](int until) { static_cast<void>(again(until)); };
  Result<std::unique_ptr<Announcer>> announcer = Announcer::Start(std::move(work), look_every);
  if (!announcer.ok()) return announcer.status();  // the post takes its line away
  post->announcer_ = std::move(announcer).value();
  return post;
}

// Without the network, the lock and the right to write, unless something is to be done: a list made by hand may be another user's.
// What the network knows is asked before the file is locked, because names and silent hosts take time.
Status PlaceFilePost::Announce(int until, std::chrono::seconds lock_may_take) {
  AddressesOfLines deserted;
  Result<std::vector<SocketPlace>> there = ReadPlaceFile(path_);
  bool is_named = there.ok() && NamesOne(there.value(), names_);
  if (there.ok() && !is_named) {
    const AddressesOfLines others = AddressesOfOthers(there.value(), place_, Patience(kLooksMayTake, until), &names_);
    is_named = NamesOne(there.value(), names_);
    if (!is_named) deserted = Deserted(others, Patience(kLooksMayTake, until));
  }
  Status named;
  if (!is_named) {
    named = Change(path_, IfThereIsNone::kMake, Patience(lock_may_take, until), [&](const std::string& text) {
      return WithPlace(path_, text, place_.text(), names_, deserted, Patience(kLooksMayTakeLocked, until));
    });
  }
  is_there_ = is_there_ || named.ok();
  return named;
}

PlaceFilePost::~PlaceFilePost() {
  announcer_.reset();
  if (is_there_ && !WithinHeap([this] { return TakeAway(), true; }, false)) {
    LogWarning("file of memory servers %s: out of heap; it may still name this memory server, which ends", path_.c_str());
  }
}

void PlaceFilePost::TakeAway() {
  const auto without = [this](const std::string& text) { return Result<std::string>(WithoutPlace(text, place_.text())); };
  const Result<std::string> there = TextOfPlaceFile(path_);
  if (there.ok() && without(there.value()).value() == there.value()) return;  // nothing to lock, or to write
  const Status removed = Change(path_, IfThereIsNone::kLeave, Patience(kLockMayTakeAtTheEnd, -1), without);
  if (!removed.ok()) LogWarning("%s; it may still name the memory server %s, which ends", removed.c_str(), place_.text().c_str());
}

}  // namespace ramspan
