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
#include <new>
#include <type_traits>

#include "client/preload/homes.h"

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

// Beside the program's memory. Aligned as O_DIRECT wants it. Null where there is none, or 0 bytes are asked for. Calls that a handler of signals makes come by here while malloc's lock may
// be held: it is one of a few buffers that are always there, or a mapping.
class Beside {
 public:
  explicit Beside(size_t bytes);
  ~Beside();
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  char* begin() const { return begin_; }

 private:
  char* begin_ = nullptr;
  size_t mapped_ = 0;  // bytes; 0: one of those that are always there
};

// A T that does not leave while a call waits: on the caller's stack, or beside it where that is swapped by pages, too (a stack that the program gave its
// thread, a coroutine's). Made with all zeros. Where there is nothing beside it is on the stack all the same.
template <typename T>
class Own {
 public:
  Own() : beside_(NeedsPins(this) ? sizeof(T) : 0), at_(new (beside_.begin() != nullptr ? static_cast<void*>(beside_.begin()) : here_) T{}) {}
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;
  T* get() { return at_; }
  T& operator*() { return *at_; }
  T* operator->() { return at_; }

 private:
  static_assert(std::is_trivially_destructible_v<T>);
  alignas(T) unsigned char here_[sizeof(T)];
  const Beside beside_;
  T* const at_;
};

// A socket's address as the kernel answers it.
struct AddressBeside {
  sockaddr_storage address;
  socklen_t length;  // before the call: the room; behind it: of the address, which may be more
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
  void Answer(sockaddr* to, socklen_t room, socklen_t* to_length) const {
    memcpy(to, &address, std::min({room, length, static_cast<socklen_t>(sizeof(address))}));
    *to_length = length;
  }
};

inline constexpr size_t kPiece = size_t{1} << 20;  // of what is copied, but for messages

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

// What of a call's memory may be moved: what is behind the allocation is not the program's. Where pages of it have another protection (guard pages), only the kernel
// knows what it may use: it is brought, and the kernel does the rest (Straight).
struct Reach {
  size_t bytes = 0;  // 0: nothing, and the kernel says so
  bool is_protected = false;
};
inline Reach ReachOf(const void* begin, size_t bytes) {
  Reach reach;
  if (NeedsPins(begin) && bytes <= SSIZE_MAX) reach.bytes = detail::UsedPages(const_cast<void*>(begin), bytes, &reach.is_protected);
  return reach;
}
// Where a socket's address is answered. The program may say more room than there is: an address takes less. Null bytes of some room, or protected: only the kernel knows what it may use.
inline Reach ReachOfAddress(const sockaddr* address, socklen_t room) { return NeedsPins(address) ? ReachOf(address, room) : Reach{room, false}; }
// Whether all of it may be read and written by who stands before the call, and may leave meanwhile: it can go beside.
inline bool IsPlain(const void* begin, size_t bytes) {
  const Reach reach = ReachOf(begin, bytes);
  return bytes > 0 && reach.bytes == bytes && !reach.is_protected;
}
// What a call reads, or answers, while it waits: a copy, where the program's own may leave.
template <typename T>
class CopyOf {
 public:
  // What the program may not use only the kernel may refuse.
  explicit CopyOf(T* theirs) : theirs_(theirs), is_beside_(IsPlain(theirs, sizeof(T))) {
    if (is_beside_) *own_ = *theirs;
  }
  CopyOf(const CopyOf&) = delete;
  CopyOf& operator=(const CopyOf&) = delete;
  T* get() { return is_beside_ ? own_.get() : theirs_; }
  void Answer() {
    if constexpr (!std::is_const_v<T>) {
      if (is_beside_) *theirs_ = *own_;
    }
  }

 private:
  T* const theirs_;
  const bool is_beside_;
  Own<std::remove_const_t<T>> own_;
};

// The same of several buffers. Of what the kernel will refuse nothing is taken.
inline Reach ReachOf(const iovec* vectors, size_t count) {
  if (vectors == nullptr || count > IOV_MAX) return {};
  Reach all;
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    const iovec& one = vectors[i];
    if (one.iov_len > SSIZE_MAX - bytes) return {};
    bytes += one.iov_len;
    if (one.iov_len == 0 || !NeedsPins(one.iov_base)) continue;
    const Reach reach = ReachOf(one.iov_base, one.iov_len);
    all.is_protected |= reach.is_protected || reach.bytes < one.iov_len;
    all.bytes = bytes;
  }
  return all;
}

// A name that the program gives, at home. Its end may be beyond what may be read: the kernel says so.
class PinnedName {
 public:
  explicit PinnedName(const char* name) : pinned_(name, BytesOf(name)) {}

 private:
  static size_t BytesOf(const char* name) {
    const Reach reach = ReachOf(name, PATH_MAX);
    return reach.is_protected ? reach.bytes : std::min(reach.bytes, strnlen(name, reach.bytes) + 1);
  }
  const Pinned pinned_;
};

// All that is in homes of several buffers, as far as there is memory for it.
class PinnedVectors {
 public:
  PinnedVectors(const iovec* vectors, size_t count) : vectors_(vectors), count_(count) {
    for (; whole_ < count; ++whole_) {
      const iovec& one = vectors[whole_];
      if (one.iov_len == 0 || !NeedsPins(one.iov_base)) continue;
      part_ = detail::PinPagesForCall(one.iov_base, one.iov_len);
      if (part_ < one.iov_len) return;
    }
  }
  ~PinnedVectors() {
    for (size_t i = 0; i < std::min(whole_ + 1, count_); ++i) {
      const iovec& one = vectors_[i];
      const size_t bytes = i < whole_ ? one.iov_len : part_;
      if (bytes > 0 && NeedsPins(one.iov_base)) detail::UnpinPagesForCall(one.iov_base, bytes);
    }
  }
  PinnedVectors(const PinnedVectors&) = delete;
  PinnedVectors& operator=(const PinnedVectors&) = delete;

 private:
  const iovec* const vectors_;
  const size_t count_;
  size_t whole_ = 0, part_ = 0;  // of vectors_[whole_], bytes
};

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

// From or to the program's memory itself, which is at home as long as a call lasts. As Copied otherwise. Where memory is full it is copied; but what the kernel may
// use of protected pages it alone says: by EFAULT, or by moving less.
template <Way kWay, typename Byte, typename Move>
ssize_t Straight(Byte* begin, const Reach& reach, bool goes_on, const Move& move) {
  size_t done = 0, piece = 0;
  do {
    ssize_t moved = 0;
    {
      const Pinned pinned(begin + done, reach.bytes - done);
      piece = pinned.bytes();
      if (piece == 0 && reach.is_protected) piece = reach.bytes - done;
      if (piece > 0) moved = move(begin + done, piece, done);
    }
    if (piece == 0) {
      const iovec rest = {const_cast<char*>(begin) + done, reach.bytes - done};
      piece = reach.bytes - done;
      moved = Copied<kWay>(Vectors(&rest, 1), kPiece, goes_on, [&](char* at, size_t n, size_t further) { return move(at, n, done + further); });
    }
    if (moved < 0) return done > 0 ? static_cast<ssize_t>(done) : moved;
    done += static_cast<size_t>(moved);
    if (static_cast<size_t>(moved) != piece) break;
  } while (done < reach.bytes && goes_on);
  return static_cast<ssize_t>(done);
}

// One call for all, of which pages are protected: a message cannot be cut into pieces.
template <typename Byte, typename Move>
ssize_t WholeMessage(Byte* begin, size_t bytes, const Move& move) {
  auto* const here = static_cast<char*>(const_cast<void*>(static_cast<const void*>(begin)));
  const iovec one = {here, bytes};
  const PinnedVectors pinned(&one, 1);
  return move(here, bytes, 0);
}

[[noreturn]] void Overflow();  // what _FORTIFY_SOURCE says

}  // namespace ramspan::preload
