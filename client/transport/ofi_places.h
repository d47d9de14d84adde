// OfiPlaces: where a client looks for its memory servers: places that are named, and those that servers have written into folders
// (common/rendezvous.h). Both may change while the program runs.
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
  // kInvalidArgument: what to write. The names are used from the next Look on.
  Status Use(const std::string& names);
  std::string names() const;
  bool has_folders() const;
  // Whether other names are used since the last Look.
  bool is_news() const;

  struct Place {
    SocketPlace place;
    bool in_folder = false;  // nobody has named it: a server may have left it behind
  };
  // All places, each once. A folder that cannot be read now still has what it had.
  std::vector<Place> Look();

 private:
  std::vector<SocketPlace> LookInto(const std::string& folder);

  mutable Mutex mutex_{LockRank::kTransport};
  std::string text_ RS_GUARDED_BY(mutex_);
  ServerNames names_ RS_GUARDED_BY(mutex_);
  bool news_ RS_GUARDED_BY(mutex_) = false;

  std::map<std::string, std::vector<SocketPlace>> last_;  // by folder; of folders in use
};

}  // namespace ramspan
