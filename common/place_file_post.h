// PlaceFilePost: a memory server's line in a file of places (place_file.h), as long as this lives: `ramspan server --rendezvous file:/FILE`.
// Any number of servers may share a file, on any hosts that see it; each changes it while it holds the file's lock, and puts another file in its
// place, so that who reads sees all of the old one or all of the new one. Where the file system has no locks a line may get lost, and comes back
// within kLookEvery, as after somebody has deleted the file.
//
// What is in the file may be a user's work. So a file is changed only if it holds nothing but places, in the form in which servers write them.
// Of those, lines at whose place nobody listens any more (a server was killed) go when a server is added; a list with a comment stays as it is.
// A place that means something on one host only (/path, @name, 127.x, localhost, ::1) cannot be judged by other hosts, and a line does not say
// whose it is: its own server alone takes such a line away, and that of a killed one stays until somebody deletes it. Servers of two hosts at
// one such place share the line: when one ends, the other writes it again within kLookEvery.
//
// Thread-safety: made and ended by one thread. All calls are those of the file system and of sockets, and block as long as these do.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "common/announcer.h"
#include "common/socket_address.h"
#include "common/status.h"

namespace ramspan {

class PlaceFilePost {
 public:
  static constexpr std::chrono::seconds kLookEvery{10};

  // The file names the place from now on, or, with a warning, as soon as it can be read and others have it locked no more; one that is made has
  // mode 0600. Waits 2 s at most for the lock, and as long for names and silent hosts. Nothing is changed where it does already, maybe by another name of this
  // host: then it may be a link, or read-only.
  // REQUIRES: somebody listens at the place. kInvalidArgument: there is something else, or a list made by hand without this place, or it
  // cannot be written. kUnavailable, kResourceExhausted: as Announcer::Start.
  static Result<std::unique_ptr<PlaceFilePost>> Make(const std::string& path, const SocketPlace& place, std::chrono::milliseconds look_every = kLookEvery);
  // Takes the line away, if servers alone have written the file, and the file with the last one. Waits 2 s at most for the lock, and for one
  // name that is looked up: a line that was not taken away is logged.
  ~PlaceFilePost();
  PlaceFilePost(const PlaceFilePost&) = delete;
  PlaceFilePost& operator=(const PlaceFilePost&) = delete;

 private:
  PlaceFilePost(std::string path, SocketPlace place) : path_(std::move(path)), place_(std::move(place)), names_{place_.text()} {}
  Status Announce(int until, std::chrono::seconds lock_may_take);
  void TakeAway();

  const std::string path_;
  const SocketPlace place_;
  std::set<std::string> names_;  // of the place, in the file: its own, and those that were found there. Make's, then the announcer's thread's
  bool is_there_ = false;        // the file has named it. As names_, and the end's
  std::unique_ptr<Announcer> announcer_;
};

}  // namespace ramspan
