// OfiPlaces: where a client looks for its memory servers: places that are named, and those that servers have written into folders
// (common/rendezvous.h) or files (common/place_file.h). All of them may change while the program runs.
//
// Thread-safety: Use and names from any thread; the rest by one thread at a time, the transport's that seeks. The mutex is not held while files are
// read. Ownership: of values only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/rendezvous.h"

namespace ramspan {

class OfiPlaces {
 public:
  struct Names {
    std::string text;  // as it was written
    ServerNames parsed;
  };
  // kInvalidArgument: what to write.
  static Result<Names> Parse(const std::string& names);
  // The names are used from the next Look on.
  void Use(Names names) noexcept;
  std::string names() const;
  bool has_folders() const;  // or files: where others may be named at any time
  // Whether other names are used since the last Look.
  bool is_news() const;

  struct Place {
    SocketPlace place;
    bool in_folder = false;  // or file: nobody has named it, and a server may have left it behind
  };
  // All places, each once. A folder that cannot be read now still has what it had, and so has a file there. What servers have written, and is
  // missing, is still there for a while; what somebody takes out of a list of his own is not.
  std::vector<Place> Look();

  // Of one folder. Those that are in use stay so, then come those that were touched last: dead servers may have left many.
  static constexpr size_t kInFolderMax = 256;
  // Looks in a row after which a server that is not there any more is not named any more. Servers write again what somebody has taken away, each
  // within 10 s (kTouchSeconds, PlaceFilePost::kLookEvery); this is twice as long, at 3 s from look to look. In looks, because a job may be suspended.
  static constexpr unsigned kLooksMissed = 7;

 private:
  struct Named {
    SocketPlace place;
    unsigned missed = 0;  // looks in a row
  };
  using Found = std::map<uint64_t, Named>;  // by the server's instance; in a file, by the line
  Found LookInto(const std::string& folder);
  Found LookIntoFile(const std::string& name, const std::string& file);
  void Say(const std::string& folder, const std::string& what);

  mutable Mutex mutex_{LockRank::kTransport};
  Names names_ RS_GUARDED_BY(mutex_);
  bool news_ RS_GUARDED_BY(mutex_) = false;

  std::map<std::string, Found> last_;  // by folder, or "file:" and file; of those in use
  std::map<std::string, std::string> said_;  // by folder; what is wrong there now
};

}  // namespace ramspan
