// What the parts of libramspan-pages that stand before libc's calls share: memory of the program's that stays at home during a call, and buffers of libc's beside it, through
// which goes what may wait for others.
// Thread-safety: none of its own; each object belongs to one call. Blocking: pages are brought. Errors: errno, as the calls.
#pragma once

#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "client/preload/homes.h"

extern "C" {
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace ramspan::preload {

// Of `begin`, as many bytes as are at home while this lives. 0: none, because memory is full.
class Pinned {
 public:
  Pinned(const void* begin, size_t bytes) : begin_(begin), bytes_(NeedsPins(begin) ? detail::PinPagesForCall(const_cast<void*>(begin), bytes) : 0) {}
  ~Pinned() {
    if (bytes_ > 0) detail::UnpinPagesForCall(begin_, bytes_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  size_t bytes() const { return bytes_; }

 private:
  const void* const begin_;
  const size_t bytes_;
};

// The same of a name that the program gives.
class PinnedName {
 public:
  explicit PinnedName(const char* name) : pinned_(name, NeedsPins(name) ? strlen(name) + 1 : 0) {}

 private:
  const Pinned pinned_;
};

// Beside the program's memory. Aligned as O_DIRECT wants it. Null where libc has none.
class Beside {
 public:
  explicit Beside(size_t bytes) : begin_(static_cast<char*>(__libc_memalign(4096, std::max<size_t>(bytes, 1)))) {}
  ~Beside() {
    const int error = errno;
    __libc_free(begin_);
    errno = error;
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  char* begin() const { return begin_; }

 private:
  char* const begin_;
};

inline constexpr size_t kPiece = size_t{1} << 20;      // of what is copied, but for messages

enum class Kind { kFile, kDevice, kOther };  // of a descriptor: a device may give a record with each call
inline Kind KindOf(int fd) {
  struct stat is;
  const int error = errno;
  const bool known = fstat(fd, &is) == 0;
  errno = error;
  if (!known) return Kind::kOther;
  return S_ISREG(is.st_mode) || S_ISBLK(is.st_mode) ? Kind::kFile : S_ISCHR(is.st_mode) ? Kind::kDevice : Kind::kOther;
}

// Whether what is sent or received at once is one thing.
inline bool IsOfMessages(int fd) {
  const int error = errno;
  int type = SOCK_STREAM;
  socklen_t length = sizeof(type);
  const bool of_messages = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type != SOCK_STREAM;
  errno = error;
  return of_messages;
}

// Several buffers, as one after the other.
class Vectors {
 public:
  Vectors(const iovec* vectors, size_t count) : vectors_(vectors), count_(count) {
    for (size_t i = 0; i < count; ++i) bytes_ += std::min(vectors[i].iov_len, SSIZE_MAX - bytes_);
  }
  size_t bytes() const { return bytes_; }
  // The next `bytes` of them.
  void CopyTo(char* to, size_t bytes) {
    Step(bytes, [&to](char* here, size_t n) {
      memcpy(to, here, n);
      to += n;
    });
  }
  void CopyFrom(const char* from, size_t bytes) {
    Step(bytes, [&from](char* here, size_t n) {
      memcpy(here, from, n);
      from += n;
    });
  }

 private:
  template <typename Do>
  void Step(size_t bytes, const Do& part) {
    while (bytes > 0 && at_ < count_) {
      const size_t n = std::min(bytes, vectors_[at_].iov_len - offset_);
      if (n > 0) part(static_cast<char*>(vectors_[at_].iov_base) + offset_, n);
      bytes -= n;
      offset_ += n;
      if (offset_ == vectors_[at_].iov_len) ++at_, offset_ = 0;
    }
  }
  const iovec* const vectors_;
  const size_t count_;
  size_t bytes_ = 0, at_ = 0, offset_ = 0;
};

// Of what the kernel will refuse nothing is taken.
inline bool NeedPins(const iovec* vectors, size_t count) {
  if (vectors == nullptr || count > IOV_MAX) return false;
  bool need = false;
  size_t all = 0;
  for (size_t i = 0; i < count; ++i) {
    const iovec& one = vectors[i];
    if (one.iov_len > SSIZE_MAX - all) return false;
    all += one.iov_len;
    if (one.iov_len == 0 || !NeedsPins(one.iov_base)) continue;
    if (detail::UsedPages(one.iov_base, one.iov_len) < one.iov_len) return false;
    need = true;
  }
  return need;
}

// Of `bytes` from `begin` on, what may be moved: what is behind the allocation is not the program's. 0: nothing, and the kernel says so.
inline size_t Movable(void* begin, size_t bytes) { return NeedsPins(begin) && bytes <= SSIZE_MAX ? detail::UsedPages(begin, bytes) : 0; }

enum class Way { kIn, kOut };
// move(begin, bytes, done): one call of libc's for a piece, `done` bytes behind the beginning. `goes_on`: as long as pieces are moved whole.
template <Way kWay, typename Move>
ssize_t Copied(Vectors vectors, size_t piece_most, bool goes_on, const Move& move) {
  const size_t bytes = vectors.bytes(), most = std::min(bytes, piece_most);
  const Beside beside(most);
  if (beside.begin() == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  size_t done = 0;
  do {
    const size_t piece = std::min(most, bytes - done);
    if constexpr (kWay == Way::kOut) vectors.CopyTo(beside.begin(), piece);
    const ssize_t moved = move(beside.begin(), piece, done);
    if (moved < 0) return done > 0 ? static_cast<ssize_t>(done) : moved;
    if constexpr (kWay == Way::kIn) vectors.CopyFrom(beside.begin(), std::min(static_cast<size_t>(moved), piece));  // more: a message that was cut (MSG_TRUNC)
    done += static_cast<size_t>(moved);
    if (static_cast<size_t>(moved) != piece) break;
  } while (done < bytes && goes_on);
  return static_cast<ssize_t>(done);
}

[[noreturn]] void Overflow();  // what _FORTIFY_SOURCE says (calls.cc)

}  // namespace ramspan::preload
