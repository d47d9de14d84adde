// Rendezvous: a folder, mostly on a file system that all hosts see, in which memory servers write down where they are, one small
// file each, and where clients look for them: `ramspan server --rendezvous DIR` and `servers = dir:DIR`.
//
// The folder belongs to one user and is closed to all others (0700), or it is refused. What is found there is not believed: a
// file has a known version, a bounded length, one form and the same owner, or it is passed over; and who is found still has to
// prove the secret (common/handshake.h). A file appears under its name whole (written aside, then renamed). A server touches it
// every 10 s and takes it away at its end; what a server that was killed has left is swept by the next server, or by `ramspan ctl`.
//
// Thread-safety: values and folders: any thread. All calls are those of the file system, and block as long as it does.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/announcer.h"
#include "common/descriptor.h"
#include "common/socket_address.h"
#include "common/status.h"

namespace ramspan {

// What the key `servers` and `ramspan ctl` name: places, and where more are found: folders ("dir:/path") and files ("file:/path", place_file.h).
struct ServerNames {
  std::vector<SocketPlace> places;
  std::vector<std::string> folders, files;
};
// Comma-separated, at least one. kInvalidArgument: what to write.
Result<ServerNames> ParseServerNames(const std::string& text);

// Whether somebody takes connections there; a process that is stopped has a kernel that does. Waits 2 s at most for each address. Nobody is
// called silent who had no time to answer, because the descriptor `until` became readable (-1: none).
bool Answers(const SocketPlace& place, int until);

struct RendezvousEntry {
  SocketPlace place;
  uint64_t instance = 0;  // of the server's process, as in its introduction
  // The process. A pid means something only within one start of one system (and one container there), whose name `system` is.
  std::string system;
  int64_t pid = 0;
  int64_t touched = 0;  // of one that was read, not in the file itself: when the server said last that it is there, by the file system's clock
};
std::string EncodeEntry(const RendezvousEntry& entry);
// How one start of a system is called; empty where it has no name that others cannot have, too.
std::string SystemName(const std::string& boot_id, uint64_t pid_namespace);
Result<RendezvousEntry> DecodeEntry(std::string_view text);
// Of this process, without a place.
RendezvousEntry OwnEntry(uint64_t instance);

class RendezvousFolder {
 public:
  static constexpr size_t kEntryBytesMax = 512;
  static constexpr size_t kNamesMax = 4096;  // that are looked at: somebody may have put other things there
  static constexpr int kTouchSeconds = 10, kSilentSeconds = 60;

  // kInvalidArgument: not there (`make`: it is made), no folder, or one that others may look into or own.
  static Result<RendezvousFolder> Open(const std::string& path, bool make);

  // All entries that are valid, by instance. `unclear` gets the instances whose files are there and cannot be read, or understood: nothing is
  // known of those servers now. kUnavailable: the folder could not be read to its end, or holds more than kNamesMax files.
  Result<std::vector<RendezvousEntry>> Read(std::vector<uint64_t>* unclear = nullptr) const;
  // Takes away the files of servers that are dead: the process was one of this system and has ended, or nobody has touched the file
  // for kSilentSeconds (of the file system's own clock) and nobody answers at the place, or the file cannot be understood. May take 2 s
  // for each of those; ends before, with what it has done, when the descriptor `until` is readable (-1: none).
  // Returns how many. `own`: the instance of a server that sweeps and is not to be judged; instances are never 0.
  size_t Sweep(int until = -1, uint64_t own = 0) const;
  // Where the servers of this folder share their secret, when nobody names another file.
  std::string key_file() const { return path_ + "/key"; }
  const std::string& path() const { return path_; }
  // Whether the path still leads to this folder: somebody may have moved or removed it.
  bool IsAtItsPath() const;

  Status Write(const RendezvousEntry& entry) const;
  // Says that the server is there: its file is as old as this call. Writes it again if somebody took it away.
  Status Touch(const RendezvousEntry& entry) const;
  void Remove(const RendezvousEntry& entry) const;

 private:
  RendezvousFolder(std::string path, Descriptor folder) : path_(std::move(path)), folder_(std::move(folder)) {}
  Result<std::vector<std::string>> Names(bool* too_many) const;
  Result<RendezvousEntry> ReadOne(const std::string& name) const;
  bool IsDead(const std::string& name, const RendezvousEntry& entry, const std::string& system, int until) const;
  bool IsSilent(const std::string& name) const;

  std::string path_;
  Descriptor folder_;
};

// A server's entry, as long as this lives: touched now and then, and written again where it has gone. That thread first sweeps: a server whose
// clients find it must serve, not wait for hosts that are off.
class RendezvousPost {
 public:
  static Result<std::unique_ptr<RendezvousPost>> Make(RendezvousFolder folder, const RendezvousEntry& entry,
                                                      std::chrono::milliseconds touch_every = std::chrono::seconds(RendezvousFolder::kTouchSeconds));
  ~RendezvousPost();
  RendezvousPost(const RendezvousPost&) = delete;
  RendezvousPost& operator=(const RendezvousPost&) = delete;

 private:
  RendezvousPost(RendezvousFolder folder, const RendezvousEntry& entry) : folder_(std::move(folder)), entry_(entry) {}
  Status Touch();

  RendezvousFolder folder_;  // the announcer's thread's, while there is one
  const RendezvousEntry entry_;
  std::unique_ptr<Announcer> announcer_;
};

}  // namespace ramspan
