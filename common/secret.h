// Secret: what the processes of one user's jobs and memory servers know, and nobody else; a client and a server prove to
// each other that they have it before anything else is said (handshake.h). Wiped from memory at its end.
//
// Value type; any thread may read.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "common/status.h"

namespace ramspan {

class Secret {
 public:
  static constexpr size_t kBytes = 32;

  // Of a key file's contents, of any length from 16 bytes on (what `openssl rand -hex 32` writes will do; white space at the end
  // does not count). kInvalidArgument: shorter, so that it could be guessed.
  static Result<Secret> From(std::span<const std::byte> text);
  // kInvalidArgument: no such file, or others than its owner may read or write it. A path may also name a descriptor that was
  // inherited (/dev/fd/N), which is read to its end.
  static Result<Secret> FromFile(const std::string& path);
  // The same, but a file that does not exist is made, with a new secret and for its owner alone.
  static Result<Secret> FromFileOrNew(const std::string& path);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  std::span<const std::byte, kBytes> bytes() const { return bytes_; }

 private:
  Secret() = default;
  std::array<std::byte, kBytes> bytes_{};
};

// ~/.ramspan.key: what clients and servers of one user take when nobody names a file. kInvalidArgument: there is no home.
Result<std::string> DefaultKeyFile();

}  // namespace ramspan
