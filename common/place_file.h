// A file that says where memory servers are, one place a line: "node7:7117", and after a blank perhaps "# what it is"; empty lines and those that
// begin with # do not count. Servers write themselves down there (place_file_post.h), or a user does. Clients look into it again and again
// (`servers = file:/FILE`), scripts read it as they like.
//
// Who can write there could send programs elsewhere, so a file of another user, or one that others may write, is refused. (Who is found
// still has to prove the secret.) Thread-safety: values. All calls are those of the file system, and block as long as it does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/socket_address.h"
#include "common/status.h"

namespace ramspan {

constexpr size_t kPlaceFileBytesMax = 65536;

// kUnavailable: it is not there, or cannot be read now. kInvalidArgument: what has to be changed, with the line.
Result<std::vector<SocketPlace>> ReadPlaceFile(const std::string& path);

// Its parts, and how their errors begin. The path itself may be a link.
Result<std::string> TextOfPlaceFile(const std::string& path);
Result<std::vector<SocketPlace>> PlacesInText(const std::string& path, const std::string& text);
// Its lines, if it is nothing but places, in the form in which servers write them. Nothing: somebody else has written it.
std::optional<std::vector<std::string>> LinesOfServers(const std::string& text);
Status ProblemOfPlaceFile(StatusCode code, const std::string& path, const std::string& what);

}  // namespace ramspan
