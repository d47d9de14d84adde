// A file that says where memory servers are, one place a line ("node7:7117"; empty lines and those that begin with # do not count): a
// server writes its own there (`ramspan server --rendezvous file:/FILE`), or a user writes several. Clients look into it again and again
// (`servers = file:/FILE`), scripts read it as they like. Where several servers come and go, each of them takes a folder (rendezvous.h).
//
// Who can write there could send programs elsewhere, so a file of another user, or one that others may write, is refused. (Who is found
// still has to prove the secret.) Thread-safety: values. All calls are those of the file system, and block as long as it does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/socket_address.h"
#include "common/status.h"

namespace ramspan {

constexpr size_t kPlaceFileBytesMax = 65536;

// kUnavailable: it is not there, or cannot be read now. kInvalidArgument: what has to be changed, with the line.
Result<std::vector<SocketPlace>> ReadPlaceFile(const std::string& path);

// A server's line, as long as this lives.
class PlaceFilePost {
 public:
  // Appears whole, with mode 0600, in place of what a server has left there. kInvalidArgument: another server that is named there answers,
  // or there is what no server writes: a list that was made by hand, a link, a device.
  static Result<std::unique_ptr<PlaceFilePost>> Make(const std::string& path, const SocketPlace& place);
  // Takes the file away, if it still says this.
  ~PlaceFilePost();
  PlaceFilePost(const PlaceFilePost&) = delete;
  PlaceFilePost& operator=(const PlaceFilePost&) = delete;

 private:
  PlaceFilePost(std::string path, std::string line) : path_(std::move(path)), line_(std::move(line)) {}

  const std::string path_, line_;
};

}  // namespace ramspan
