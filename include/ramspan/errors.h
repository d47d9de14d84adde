// The exceptions of the public API. Each derives from std::runtime_error, and its message names what the user can do.
#pragma once

#include <stdexcept>
#include <string>

namespace ramspan {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// More is pinned (or one object is larger) than the memory limit allows, or all threads wait for memory that only
// they themselves pin.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// Every swap tier is full: servers, files. The object that was being made or fetched is not; nothing else is lost.
class OutOfSwap : public Error {
 public:
  using Error::Error;
};

// The bytes of this object are gone (a server died, a checksum did not match). Thrown at each use of the object.
class DataLost : public Error {
 public:
  using Error::Error;
};

// A swap tier could not be reached after retries; the object is still safe in swap and may be tried again.
class SwapUnavailable : public Error {
 public:
  using Error::Error;
};

// A configuration that cannot work: unknown key, bad number, impossible value, wrong order of calls.
class ConfigError : public Error {
 public:
  using Error::Error;
};

}  // namespace ramspan
