// libramspan-pages, sixth part: stdio. libc reads and writes large pieces straight from the program's memory, and hands a stream's buffer to the kernel at any time. As calls.cc.
// Thread-safety, cancellation, signals: as the calls that they replace.
#include <cstdio>

#include "client/preload/beside.h"

namespace ramspan::preload {
namespace {

// fread and fwrite: libc reads and writes large pieces straight from the program's memory.
template <Way kWay, typename Byte, typename Move>
size_t Stream(Byte* begin, size_t size, size_t count, const Move& move) {
  size_t all = 0;
  if (!NeedsPins(begin) || __builtin_mul_overflow(size, count, &all) || all == 0) return move(begin, size, count);
  const iovec one = {const_cast<char*>(begin), all};
  const ssize_t done = Copied<kWay>(Vectors(&one, 1), kPiece, true, [&](char* at, size_t n, size_t) { return static_cast<ssize_t>(move(at, 1, n)); });
  return done < 0 ? 0 : static_cast<size_t>(done) / size;
}

// In pieces, as one.
class StreamLock {
 public:
  explicit StreamLock(FILE* file) : file_(file) { flockfile(file); }
  ~StreamLock() { funlockfile(file_); }
  StreamLock(const StreamLock&) = delete;
  StreamLock& operator=(const StreamLock&) = delete;

 private:
  FILE* const file_;
};

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::NeedsPins;
using ramspan::preload::Overflow;
using ramspan::preload::Stream;
using ramspan::preload::StreamLock;
using ramspan::preload::Way;

RS_LIBC(fread, size_t (*)(void*, size_t, size_t, FILE*))
RS_LIBC(fwrite, size_t (*)(const void*, size_t, size_t, FILE*))
RS_LIBC(fread_unlocked, size_t (*)(void*, size_t, size_t, FILE*))
RS_LIBC(fwrite_unlocked, size_t (*)(const void*, size_t, size_t, FILE*))
RS_LIBC(fputs, int (*)(const char*, FILE*))
RS_LIBC(fputs_unlocked, int (*)(const char*, FILE*))
RS_LIBC(puts, int (*)(const char*))
RS_LIBC(setvbuf, int (*)(FILE*, char*, int, size_t))

extern "C" {

RAMSPAN_API size_t fread(void* to, size_t size, size_t count, FILE* file) {
  if (!NeedsPins(to)) return real_fread(to, size, count, file);
  const StreamLock lock(file);
  return Stream<Way::kIn>(static_cast<char*>(to), size, count, [&](char* at, size_t s, size_t n) { return real_fread(at, s, n, file); });
}
RAMSPAN_API size_t fwrite(const void* from, size_t size, size_t count, FILE* file) {
  if (!NeedsPins(from)) return real_fwrite(from, size, count, file);
  const StreamLock lock(file);
  return Stream<Way::kOut>(static_cast<const char*>(from), size, count, [&](const char* at, size_t s, size_t n) { return real_fwrite(at, s, n, file); });
}
RAMSPAN_API size_t fread_unlocked(void* to, size_t size, size_t count, FILE* file) {
  return Stream<Way::kIn>(static_cast<char*>(to), size, count, [&](char* at, size_t s, size_t n) { return real_fread_unlocked(at, s, n, file); });
}
RAMSPAN_API size_t fwrite_unlocked(const void* from, size_t size, size_t count, FILE* file) {
  return Stream<Way::kOut>(static_cast<const char*>(from), size, count, [&](const char* at, size_t s, size_t n) { return real_fwrite_unlocked(at, s, n, file); });
}
RAMSPAN_API int fputs(const char* text, FILE* file) {
  if (!NeedsPins(text)) return real_fputs(text, file);
  const size_t bytes = strlen(text);
  return fwrite(text, 1, bytes, file) == bytes ? 1 : EOF;
}
RAMSPAN_API int fputs_unlocked(const char* text, FILE* file) {
  if (!NeedsPins(text)) return real_fputs_unlocked(text, file);
  const size_t bytes = strlen(text);
  return fwrite_unlocked(text, 1, bytes, file) == bytes ? 1 : EOF;
}
RAMSPAN_API int puts(const char* text) {
  if (!NeedsPins(text)) return real_puts(text);
  const StreamLock lock(stdout);
  return fputs(text, stdout) == EOF || putc_unlocked('\n', stdout) == EOF ? EOF : 1;
}
// A stream hands its buffer to the kernel at any time: it takes one of libc's.
RAMSPAN_API int setvbuf(FILE* file, char* buffer, int mode, size_t bytes) noexcept { return real_setvbuf(file, ramspan::preload::IsHome(buffer) ? nullptr : buffer, mode, bytes); }
RAMSPAN_API void setbuffer(FILE* file, char* buffer, size_t bytes) noexcept { static_cast<void>(setvbuf(file, buffer, buffer != nullptr ? _IOFBF : _IONBF, bytes)); }
RAMSPAN_API void setbuf(FILE* file, char* buffer) noexcept { setbuffer(file, buffer, BUFSIZ); }

// ---- What _FORTIFY_SOURCE makes of them ----

RAMSPAN_API size_t __fread_chk(void* to, size_t room, size_t size, size_t count, FILE* file) {
  size_t all = 0;
  if (__builtin_mul_overflow(size, count, &all) || all > room) Overflow();
  return fread(to, size, count, file);
}
RAMSPAN_API size_t __fread_unlocked_chk(void* to, size_t room, size_t size, size_t count, FILE* file) {
  size_t all = 0;
  if (__builtin_mul_overflow(size, count, &all) || all > room) Overflow();
  return fread_unlocked(to, size, count, file);
}

}  // extern "C"
