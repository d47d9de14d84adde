#include "common/secret.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/descriptor.h"

namespace ramspan {
namespace {

constexpr size_t kTextBytesMin = 16;
constexpr size_t kTextBytesMax = 4096;

void Start() {
  // Once a process; any thread may be first.
  static const bool started = sodium_init() >= 0;
  RS_CHECK(started, "libsodium %s", "finds no random numbers");
}

bool IsSpace(std::byte c) { return c == std::byte{' '} || c == std::byte{'\n'} || c == std::byte{'\r'} || c == std::byte{'\t'}; }

Status Problem(const std::string& path, const std::string& what) { return InvalidArgument("key file " + path + ": " + what); }

}  // namespace

Secret::~Secret() { sodium_memzero(bytes_.data(), bytes_.size()); }

Result<Secret> Secret::From(std::span<const std::byte> text) {
  Start();
  while (!text.empty() && IsSpace(text.back())) text = text.first(text.size() - 1);
  if (text.size() < kTextBytesMin) {
    return InvalidArgument("a secret of " + std::to_string(text.size()) + " bytes can be guessed; make one of 16 or more, for "
                           "example by `openssl rand -hex 32`");
  }
  Secret secret;
  crypto_generichash(reinterpret_cast<unsigned char*>(secret.bytes_.data()), kBytes,
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
  return secret;
}

Result<Secret> Secret::FromFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file) {
    const char* const maker = errno == ENOENT ? "; the first `ramspan server` makes it: start one, or copy the file from where one runs" : "";
    return Problem(path, std::string(std::strerror(errno)) + maker + "; clients and servers need the same file (serverKeyFile, --key-file)");
  }
  struct stat status {};
  if (fstat(file.number(), &status) != 0) return Problem(path, std::strerror(errno));
  if (S_ISREG(status.st_mode) && (status.st_mode & 077) != 0) return Problem(path, "others may read or write it: chmod 600 it, and make a new secret");
  if (S_ISREG(status.st_mode) && status.st_uid != geteuid() && status.st_uid != 0) return Problem(path, "it belongs to another user");
  std::vector<std::byte> text(kTextBytesMax);
  size_t length = 0;
  for (;;) {
    const ssize_t n = read(file.number(), text.data() + length, text.size() - length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Problem(path, std::strerror(errno));
    length += static_cast<size_t>(n);
    if (n == 0 || length == text.size()) break;
  }
  Result<Secret> secret = From(std::span(text).first(length));
  sodium_memzero(text.data(), text.size());
  if (!secret.ok()) return Problem(path, secret.status().message());
  return secret;
}

Result<Secret> Secret::FromFileOrNew(const std::string& path) {
  Start();
  {
    // Made under another name and linked into place, so that who reads it at the same time finds all of it or nothing.
    // That name is random: several hosts may have the folder, and a process id is one host's.
    std::string fresh = path + ".XXXXXX";
    const Descriptor file(mkostemp(fresh.data(), O_CLOEXEC));
    const int error = errno;
    if (!file && access(path.c_str(), F_OK) != 0) return Problem(path, std::string("it cannot be made: ") + std::strerror(error));
    if (access(path.c_str(), F_OK) != 0 && file) {
      unsigned char raw[kBytes];
      char text[2 * kBytes + 1];
      randombytes_buf(raw, sizeof raw);
      sodium_bin2hex(text, sizeof text, raw, sizeof raw);
      text[2 * kBytes] = '\n';
      errno = ENOSPC;  // what a short write means
      const bool whole = write(file.number(), text, sizeof text) == static_cast<ssize_t>(sizeof text) && fsync(file.number()) == 0;
      const int why = errno;
      sodium_memzero(raw, sizeof raw);
      sodium_memzero(text, sizeof text);
      if (!whole) {
        unlink(fresh.c_str());
        return Problem(path, std::string("it cannot be written: ") + std::strerror(why));
      }
      if ( link(fresh.c_str(), path.c_str()) != 0 && errno != EEXIST) {
        unlink(fresh.c_str());
        return Problem(path, std::strerror(errno));
      }
    }
    if (file) unlink(fresh.c_str());
  }
  return FromFile(path);
}

Result<std::string> DefaultKeyFile() {
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return InvalidArgument("HOME is not set; name a key file (serverKeyFile, --key-file)");
  return std::string(home) + "/.ramspan.key";
}

}  // namespace ramspan
