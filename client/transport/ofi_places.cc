#include "client/transport/ofi_places.h"

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "common/place_file.h"

namespace ramspan {

Result<OfiPlaces::Names> OfiPlaces::Parse(const std::string& names) {
  Result<ServerNames> parsed = ParseServerNames(names);
  if (!parsed.ok()) return InvalidArgument("servers: " + parsed.status().message());
  return Names{names, std::move(parsed).value()};
}

void OfiPlaces::Use(Names names) noexcept {
  MutexLock lock(mutex_);
  names_ = std::move(names);
  news_ = true;
}

std::string OfiPlaces::names() const {
  MutexLock lock(mutex_);
  return names_.text;
}

bool OfiPlaces::has_folders() const {
  MutexLock lock(mutex_);
  return !names_.parsed.folders.empty() || !names_.parsed.files.empty();
}

bool OfiPlaces::is_news() const {
  MutexLock lock(mutex_);
  return news_;
}

// Once, until something else is wrong there or all is well. Empty: all is well.
void OfiPlaces::Say(const std::string& folder, const std::string& what) {
  if (!what.empty() && said_[folder] != what) LogWarning("%s", what.c_str());
  said_[folder] = what;
}

OfiPlaces::Found OfiPlaces::LookInto(const std::string& path) {
  const auto last = last_.find(path);
  const Found known = last == last_.end() ? Found() : last->second;
  std::vector<uint64_t> unclear;
  const Result<RendezvousFolder> folder = RendezvousFolder::Open(path, /*make=*/false);
  Result<std::vector<RendezvousEntry>> read = folder.ok() ? folder.value().Read(&unclear) : Result<std::vector<RendezvousEntry>>(folder.status());
  if (!read.ok()) {  // it may come later, with the first server
    Say(path, (known.empty() ? "no memory servers are found there now: " : "memory servers that were found there before stay in use: ") + read.status().message());
    return known;
  }
  Found found;
  for (const uint64_t instance : unclear) {
    if (const auto one = known.find(instance); one != known.end()) found.insert(*one);
  }
  std::vector<RendezvousEntry> entries = std::move(read).value();
  for (const RendezvousEntry& entry : entries) {
    if (known.contains(entry.instance)) found[entry.instance] = {.place = entry.place};
  }
  for (const auto& [instance, one] : known) {
    if (!found.contains(instance) && one.missed + 1 < kLooksMissed) found[instance] = {.place = one.place, .missed = one.missed + 1};
  }
  std::stable_sort(entries.begin(), entries.end(), [](const RendezvousEntry& a, const RendezvousEntry& b) { return a.touched > b.touched; });
  for (const RendezvousEntry& entry : entries) {
    if (found.size() < kInFolderMax) found.try_emplace(entry.instance, Named{.place = entry.place});
  }
  Say(path, entries.size() + unclear.size() <= kInFolderMax ? "" : "rendezvous folder " + path + " names more than " + std::to_string(kInFolderMax) +
      " memory servers, and this program uses no more of them: `ramspan ctl list dir:" + path + "` sweeps what dead ones left; else give programs folders of their own");
  return found;
}

// Whoever takes the file away, or empties it, has not said that the servers are not to be used any more: one that has ended is left anyway.
OfiPlaces::Found OfiPlaces::LookIntoFile(const std::string& name, const std::string& file) {
  const auto last = last_.find(name);
  const Found known = last == last_.end() ? Found() : last->second;
  const Result<std::string> text = TextOfPlaceFile(file);
  const Result<std::vector<SocketPlace>> read = text.ok() ? PlacesInText(file, text.value()) : Result<std::vector<SocketPlace>>(text.status());
  if (!read.ok() || read.value().empty()) {
    Say(name, (known.empty() ? "no memory servers are found there now: " : "memory servers that were found there before stay in use: ") +
                  (read.ok() ? "file of memory servers " + file + ": it is empty" : read.status().message()));
    return known;
  }
  Say(name, "");
  Found found;
  const auto add = [&found](const Named& one) {
    if (found.size() < kInFolderMax) found.emplace(found.size(), one);
  };
  for (const SocketPlace& place : read.value()) add({.place = place});
  if (!LinesOfServers(text.value())) return found;
  for (const auto& [line, one] : known) {
    const auto is_it = [&](const SocketPlace& place) { return place.text() == one.place.text(); };
    const bool is_missing = std::none_of(read.value().begin(), read.value().end(), is_it);
    if (is_missing && one.missed + 1 < kLooksMissed) add({.place = one.place, .missed = one.missed + 1});
  }
  return found;
}

std::vector<OfiPlaces::Place> OfiPlaces::Look() {
  ServerNames names;
  {
    MutexLock lock(mutex_);
    names = names_.parsed;
    news_ = false;
  }
  std::vector<Place> places;
  const auto add = [&](const SocketPlace& place, bool in_folder) {
    const bool known = std::any_of(places.begin(), places.end(), [&](const Place& one) { return one.place.text() == place.text(); });
    if (!known) places.push_back({place, in_folder});
  };
  for (const SocketPlace& place : names.places) add(place, false);
  std::map<std::string, Found> found;
  for (const std::string& folder : names.folders) found[folder] = LookInto(folder);
  for (const std::string& file : names.files) found["file:" + file] = LookIntoFile("file:" + file, file);
  for (const auto& [folder, there] : found) {
    for (const auto& [instance, one] : there) add(one.place, true);
  }
  last_ = std::move(found);
  return places;
}

}  // namespace ramspan
