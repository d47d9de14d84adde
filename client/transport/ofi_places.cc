#include "client/transport/ofi_places.h"

#include <algorithm>
#include <utility>

#include "common/log.h"

namespace ramspan {

Status OfiPlaces::Use(const std::string& names) {
  Result<ServerNames> parsed = ParseServerNames(names);
  if (!parsed.ok()) return InvalidArgument("servers: " + parsed.status().message());
  MutexLock lock(mutex_);
  text_ = names;
  names_ = std::move(parsed).value();
  news_ = true;
  return {};
}

std::string OfiPlaces::names() const {
  MutexLock lock(mutex_);
  return text_;
}

bool OfiPlaces::has_folders() const {
  MutexLock lock(mutex_);
  return !names_.folders.empty();
}

bool OfiPlaces::is_news() const {
  MutexLock lock(mutex_);
  return news_;
}

std::vector<SocketPlace> OfiPlaces::LookInto(const std::string& path) {
  const auto known = last_.find(path);
  const Result<RendezvousFolder> folder = RendezvousFolder::Open(path, /*make=*/false);
  const Result<std::vector<RendezvousEntry>> entries = folder.ok() ? folder.value().Read() : Result<std::vector<RendezvousEntry>>(folder.status());
  if (!entries.ok()) {
    // Said once: the folder may come later, with the first server.
    if (known == last_.end()) LogWarning("no memory servers are found there now: %s", entries.status().message().c_str());
    return known == last_.end() ? std::vector<SocketPlace>() : known->second;
  }
  std::vector<SocketPlace> places;
  for (const RendezvousEntry& entry : entries.value()) places.push_back(entry.place);
  return places;
}

std::vector<OfiPlaces::Place> OfiPlaces::Look() {
  ServerNames names;
  {
    MutexLock lock(mutex_);
    names = names_;
    news_ = false;
  }
  std::vector<Place> places;
  const auto add = [&](const SocketPlace& place, bool in_folder) {
    const bool known = std::any_of(places.begin(), places.end(), [&](const Place& one) { return one.place.text() == place.text(); });
    if (!known) places.push_back({place, in_folder});
  };
  for (const SocketPlace& place : names.places) add(place, false);
  std::map<std::string, std::vector<SocketPlace>> found;
  for (const std::string& folder : names.folders) found[folder] = LookInto(folder);
  for (const auto& [folder, there] : found) {
    for (const SocketPlace& place : there) add(place, true);
  }
  last_ = std::move(found);
  return places;
}

}  // namespace ramspan
