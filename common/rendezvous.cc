#include "common/rendezvous.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "common/process_life.h"

namespace ramspan {
namespace {

constexpr std::string_view kFolderMark = "dir:", kFileMark = "file:";
constexpr std::string_view kNameBegin = "server-";
constexpr size_t kInstanceDigits = 16;
constexpr std::string_view kHead = "ramspan-server 1";  // the version of what follows
constexpr size_t kSystemMax = 100;
constexpr int kAnswerMs = 2000;

std::string LastError() { return std::strerror(errno); }

std::string NameOf(uint64_t instance) {
  char text[32];
  std::snprintf(text, sizeof text, "server-%016" PRIx64, instance);
  return text;
}

bool IsEntryName(std::string_view name) {
  return name.size() == kNameBegin.size() + kInstanceDigits && name.substr(0, kNameBegin.size()) == kNameBegin &&
         std::all_of(name.begin() + kNameBegin.size(), name.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

template <class T>
bool ReadNumber(std::string_view text, int base, T* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return error == std::errc() && end == text.data() + text.size();
}

// The next line, which must begin with the word; false: it does not, or there is none.
bool TakeLine(std::string_view* text, std::string_view word, std::string_view* value) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return false;
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end + 1);
  if (line.substr(0, word.size()) != word) return false;
  *value = line.substr(word.size());
  return true;
}

// The start of this system and the container: what a pid means depends on both.
std::string ThisSystem() {
  char boot[64] = "";
  const Descriptor file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  const ssize_t length = file ? read(file.number(), boot, sizeof boot - 1) : 0;
  std::string text(boot, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return SystemName(text, PidNamespace());
}

bool IsReadable(int descriptor) {
  pollfd polled{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&polled, 1, 0) == 1;
}

std::string Stripped(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return std::string(text);
}

}  // namespace

bool Answers(const SocketPlace& place, int until) {
  const Result<std::vector<SocketAddress>> addresses = Resolve(place);
  if (!addresses.ok()) return false;
  for (const SocketAddress& address : addresses.value()) {
    const Result<Descriptor> socket = StartConnect(address);
    if (!socket.ok()) continue;
    std::array<pollfd, 2> polled{{{.fd = socket.value().number(), .events = POLLOUT, .revents = 0}, {.fd = until, .events = POLLIN, .revents = 0}}};
    if (poll(polled.data(), polled.size(), kAnswerMs) <= 0) continue;
    if (polled[1].revents != 0 || FinishConnect(socket.value()).ok()) return true;
  }
  return false;
}

Result<ServerNames> ParseServerNames(const std::string& text) {
  ServerNames names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string one = Stripped(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    if (const bool is_file = one.rfind(kFileMark, 0) == 0; is_file || one.rfind(kFolderMark, 0) == 0) {
      const std::string path = one.substr(is_file ? kFileMark.size() : kFolderMark.size());
      if (path.empty() || path[0] != '/') {
        return InvalidArgument("\"" + one + "\": " + (is_file ? "a file of memory servers is named from the root, like file:/scratch/server"
                                                              : "a folder of memory servers is named from the root, like dir:/scratch/servers"));
      }
      (is_file ? names.files : names.folders).push_back(path);
      continue;
    }
    Result<SocketPlace> place = ParseSocketPlace(one);
    if (!place.ok()) return InvalidArgument(place.status().message() + ", or dir:/FOLDER or file:/FILE of a rendezvous");
    names.places.push_back(std::move(place).value());
  }
  return names;
}

// ---- Entries ----

std::string SystemName(const std::string& boot_id, uint64_t pid_namespace) {
  // The first namespace of each system has the same number: without the start a process of another host would be taken for one that
  // has ended here.
  return boot_id.empty() ? "" : boot_id + "/" + std::to_string(pid_namespace);
}

std::string EncodeEntry(const RendezvousEntry& entry) {
  char instance[32];
  std::snprintf(instance, sizeof instance, "%016" PRIx64, entry.instance);
  return std::string(kHead) + "\nplace " + entry.place.text() + "\ninstance " + instance + "\nsystem " + entry.system + "\npid " +
         std::to_string(entry.pid) + "\n";
}

Result<RendezvousEntry> DecodeEntry(std::string_view text) {
  const auto wrong = [](const char* what) { return InvalidArgument(std::string("no entry of a memory server: ") + what); };
  if (text.size() > RendezvousFolder::kEntryBytesMax) return wrong("it is too long");
  if (std::any_of(text.begin(), text.end(), [](char c) { return (c < ' ' || c > '~') && c != '\n'; })) return wrong("strange characters");
  RendezvousEntry entry;
  std::string_view rest, place, instance, system, pid;
  if (!TakeLine(&text, kHead, &rest) || !rest.empty()) return wrong("another version");
  if (!TakeLine(&text, "place ", &place) || !TakeLine(&text, "instance ", &instance) || !TakeLine(&text, "system ", &system) ||
      !TakeLine(&text, "pid ", &pid) || !text.empty()) {
    return wrong("its lines are others");
  }
  Result<SocketPlace> parsed = ParseSocketPlace(std::string(place));
  if (!parsed.ok()) return wrong("its place is none");
  entry.place = std::move(parsed).value();
  if (instance.size() != kInstanceDigits || !ReadNumber(instance, 16, &entry.instance)) return wrong("its instance is no number");
  if (system.size() > kSystemMax) return wrong("its system has no such name");
  entry.system = std::string(system);
  if (!ReadNumber(pid, 10, &entry.pid) || entry.pid <= 0) return wrong("its pid is none");
  return entry;
}

RendezvousEntry OwnEntry(uint64_t instance) { return {.place = {}, .instance = instance, .system = ThisSystem(), .pid = getpid()}; }

// ---- The folder ----

Result<RendezvousFolder> RendezvousFolder::Open(const std::string& path, bool make) {
  const auto problem = [&](const std::string& what) { return InvalidArgument("rendezvous folder " + path + ": " + what); };
  if (make && mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return problem(LastError());
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return problem(LastError() + (errno == ENOENT    ? "; `ramspan server --rendezvous` makes it"
                                           : errno == ENOTDIR ? "; a file with a place a line is named file:" + path
                                                              : ""));
  struct stat status {};
  if (fstat(folder.number(), &status) != 0) return problem(LastError());
  if (status.st_uid != geteuid()) return problem("it belongs to another user");
  if ((status.st_mode & 077) != 0) return problem((status.st_mode & S_ISVTX) != 0 ? "it is for all users: name a folder of your own" : "others may use it: chmod 700 it, or name another folder of your own");
  return RendezvousFolder(path, std::move(folder));
}

// *too_many: there are more than these, in an order that means nothing.
Result<std::vector<std::string>> RendezvousFolder::Names(bool* too_many) const {
  const int again = openat(folder_.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = again < 0 ? nullptr : fdopendir(again);
  if (stream == nullptr) {
    const std::string reason = LastError();
    if (again >= 0) close(again);
    return Unavailable("rendezvous folder " + path_ + ": " + reason);
  }
  std::vector<std::string> names;
  errno = 0;
  *too_many = false;
  for (size_t n = 0;; ++n, errno = 0) {
    const dirent* one = readdir(stream);
    if (one == nullptr) break;
    *too_many = n >= kNamesMax;
    if (*too_many) break;
    if (IsEntryName(one->d_name)) names.emplace_back(one->d_name);
  }
  const int error = errno;
  closedir(stream);
  if (error != 0) return Unavailable("rendezvous folder " + path_ + ": " + std::strerror(error));
  std::sort(names.begin(), names.end());
  return names;
}

Result<RendezvousEntry> RendezvousFolder::ReadOne(const std::string& name) const {
  const Descriptor file(openat(folder_.number(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  // A link, a socket, or a file that nobody may read: it will not be an entry later either.
  if (!file && (errno == ELOOP || errno == ENXIO || errno == EACCES)) return InvalidArgument(LastError());
  struct stat status {};
  if (!file || fstat(file.number(), &status) != 0) return Unavailable(LastError());
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) return InvalidArgument("no file of ours");
  char text[kEntryBytesMax + 1];
  const ssize_t length = read(file.number(), text, sizeof text);
  if (length < 0) return Unavailable(LastError());
  Result<RendezvousEntry> entry = DecodeEntry({text, static_cast<size_t>(length)});
  if (!entry.ok()) return entry.status();
  if (NameOf(entry.value().instance) != name) return InvalidArgument("the file of another server");
  RendezvousEntry read_one = std::move(entry).value();
  read_one.touched = status.st_mtime;
  return read_one;
}

Result<std::vector<RendezvousEntry>> RendezvousFolder::Read(std::vector<uint64_t>* unclear) const {
  bool too_many = false;
  const Result<std::vector<std::string>> names = Names(&too_many);
  if (!names.ok()) return names.status();
  if (too_many) return Unavailable("rendezvous folder " + path_ + " holds more than " + std::to_string(kNamesMax) + " files: take away what is not the servers'");
  std::vector<RendezvousEntry> entries;
  for (const std::string& name : names.value()) {
    Result<RendezvousEntry> entry = ReadOne(name);
    if (entry.ok()) {
      entries.push_back(std::move(entry).value());
    } else if (unclear != nullptr && faccessat(folder_.number(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
      uint64_t instance = 0;
      if (ReadNumber(std::string_view(name).substr(kNameBegin.size()), 16, &instance)) unclear->push_back(instance);
    }
  }
  return entries;
}

bool RendezvousFolder::IsSilent(const std::string& name) const {
  // Hosts' clocks differ: the file system says what time it is there, by a file that is made now. All use one name, so that the next one takes away
  // what a process that was killed here has left; two at the same time do each other no harm.
  const std::string probe = ".now";
  struct stat now {}, then {};
  const Descriptor file(openat(folder_.number(), probe.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool known = file && futimens(file.number(), nullptr) == 0 && fstat(file.number(), &now) == 0;
  unlinkat(folder_.number(), probe.c_str(), 0);
  if (!known || fstatat(folder_.number(), name.c_str(), &then, AT_SYMLINK_NOFOLLOW) != 0) return false;
  return now.st_mtime - then.st_mtime > kSilentSeconds;
}

bool RendezvousFolder::IsDead(const std::string& name, const RendezvousEntry& entry, const std::string& system, int until) const {
  if (!system.empty() && entry.system == system && LifeOfProcess(static_cast<long>(entry.pid)) == ProcessLife::kGone) return true;
  return IsSilent(name) && !Answers(entry.place, until);
}

size_t RendezvousFolder::Sweep(int until, uint64_t own) const {
  bool too_many = false;  // then there is the more to sweep
  const Result<std::vector<std::string>> names = Names(&too_many);
  if (!names.ok()) return 0;
  const std::string system = ThisSystem();
  size_t swept = 0;
  for (const std::string& name : names.value()) {
    if (until >= 0 && IsReadable(until)) break;
    if (name == NameOf(own)) continue;
    const Result<RendezvousEntry> entry = ReadOne(name);
    const bool may_not_be_read = !entry.ok() && entry.status().code() != StatusCode::kInvalidArgument;
    if (may_not_be_read || (entry.ok() ? !IsDead(name, entry.value(), system, until) : !IsSilent(name))) continue;
    swept += unlinkat(folder_.number(), name.c_str(), 0) == 0;
  }
  return swept;
}

Status RendezvousFolder::Write(const RendezvousEntry& entry) const {
  const std::string name = NameOf(entry.instance), aside = "." + name, text = EncodeEntry(entry);
  if (Result<RendezvousEntry> readable = DecodeEntry(text); !readable.ok()) return readable.status();
  unlinkat(folder_.number(), aside.c_str(), 0);
  const Descriptor file(openat(folder_.number(), aside.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600));
  // Some file systems say only then that they have no room.
  const bool whole = file && write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(file.number()) == 0;
  if (whole && renameat(folder_.number(), aside.c_str(), folder_.number(), name.c_str()) == 0) return {};
  const std::string reason = LastError();
  unlinkat(folder_.number(), aside.c_str(), 0);
  return Unavailable("cannot write into the rendezvous folder " + path_ + ": " + reason);
}

Status RendezvousFolder::Touch(const RendezvousEntry& entry) const {
  if (utimensat(folder_.number(), NameOf(entry.instance).c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0) return {};
  return Write(entry);
}

bool RendezvousFolder::IsAtItsPath() const {
  struct stat ours {}, there {};
  return fstat(folder_.number(), &ours) == 0 && stat(path_.c_str(), &there) == 0 && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

void RendezvousFolder::Remove(const RendezvousEntry& entry) const { unlinkat(folder_.number(), NameOf(entry.instance).c_str(), 0); }

// ---- A server's entry ----

Result<std::unique_ptr<RendezvousPost>> RendezvousPost::Make(RendezvousFolder folder, const RendezvousEntry& entry, std::chrono::milliseconds touch_every) {
  auto post = std::unique_ptr<RendezvousPost>(new RendezvousPost(std::move(folder), entry));
  if (Status written = post->folder_.Write(entry); !written.ok()) return written;
  RendezvousPost* const raw = post.get();
  Result<std::unique_ptr<Announcer>> announcer = Announcer::Start(
      {.first = [raw](int until) { raw->folder_.Sweep(until, raw->entry_.instance); }, .again = [raw](int) { return raw->Touch(); }}, touch_every);
  if (!announcer.ok()) return announcer.status();  // the post takes its entry away
  post->announcer_ = std::move(announcer).value();
  return post;
}

RendezvousPost::~RendezvousPost() {
  announcer_.reset();
  folder_.Remove(entry_);
}

Status RendezvousPost::Touch() {
  // Somebody may have moved or removed the folder, and made it again: clients look where it was.
  if (!folder_.IsAtItsPath()) {
    Result<RendezvousFolder> another = RendezvousFolder::Open(folder_.path(), /*make=*/false);
    if (!another.ok()) return another.status();
    folder_.Remove(entry_);
    folder_ = std::move(another).value();
  }
  return folder_.Touch(entry_);
}

}  // namespace ramspan
