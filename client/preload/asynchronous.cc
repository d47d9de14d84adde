// libramspan-pages: asynchronous files (aio.h). Threads of libc's move the data, by calls that nobody stands before: where pages must stay at home for that (beside.h) the data of files has moved when
// these calls return, whatever memory it is in, for what is appended comes in the order of calls; and the program is told as it asked for. Others (pipes, sockets), on which that would wait, are left to libc.
// Thread-safety, errors, cancellation (none), signals: as the calls that they replace. Blocking: for what moves.
#include <aio.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "client/preload/beside.h"
#include "common/cancel_disabled.h"
#include "common/errno_guard.h"
#include "common/write_signals_blocked.h"

namespace ramspan::preload {
namespace {

// aiocb64 has the same members at the same places.
static_assert(sizeof(aiocb) == sizeof(aiocb64) && offsetof(aiocb, aio_offset) == offsetof(aiocb64, aio_offset));

constexpr int kPriorityMax = 20;  // AIO_PRIO_DELTA_MAX: libc refuses others

bool MovesHere(const aiocb* one) {
  return pins_calls.load(std::memory_order_relaxed) && homes.bytes > 0 && one->aio_fildes >= 0 && one->aio_reqprio >= 0 && one->aio_reqprio <= kPriorityMax && KindOf(one->aio_fildes) == Kind::kFile;
}

// As aio_error and aio_return will say it.
void Answer(aiocb* one, ssize_t moved, int error) {
  one->__return_value = moved;
  __atomic_store_n(&one->__error_code, error, __ATOMIC_RELEASE);  // what was read is there for who sees this
}

void* RunNotice(void* of) {
  const sigevent notice = *static_cast<sigevent*>(of);
  free(of);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);  // as libc's
  notice.sigev_notify_function(notice.sigev_value);
  return nullptr;
}

void Notify(const sigevent& notice) {
  if (notice.sigev_notify == SIGEV_SIGNAL) {
    siginfo_t info = {};
    info.si_code = SI_ASYNCIO;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value = notice.sigev_value;
    syscall(SYS_rt_sigqueueinfo, getpid(), notice.sigev_signo, &info);
  } else if (notice.sigev_notify == SIGEV_THREAD) {
    auto* const copy = static_cast<sigevent*>(malloc(sizeof(sigevent)));
    if (copy == nullptr) return;
    *copy = notice;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    if (pthread_create(&thread, notice.sigev_notify_attributes != nullptr ? notice.sigev_notify_attributes : &attributes, RunNotice, copy) != 0) free(copy);
    pthread_attr_destroy(&attributes);
  }
}

// Not a cancellation point, and what is too large for a file is EFBIG, without a signal.
void MoveNow(aiocb* one, bool reads) {
  const CancelDisabled uncancelled;
  const ErrnoGuard guard;
  {
    const WriteSignalsBlocked blocked;
    void* const memory = const_cast<void*>(one->aio_buf);
    ssize_t moved;
    do {
      moved = reads ? pread(one->aio_fildes, memory, one->aio_nbytes, one->aio_offset) : pwrite(one->aio_fildes, memory, one->aio_nbytes, one->aio_offset);
    } while (moved < 0 && errno == EINTR);
    Answer(one, moved, moved < 0 ? errno : 0);
  }
  Notify(one->aio_sigevent);
}

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::MovesHere;
using ramspan::preload::MoveNow;

RS_LIBC(aio_read, int (*)(aiocb*))
RS_LIBC(aio_write, int (*)(aiocb*))
RS_LIBC(lio_listio, int (*)(int, aiocb* const*, int, sigevent*))

extern "C" {

RAMSPAN_API int aio_read(aiocb* one) noexcept {
  if (!MovesHere(one)) return real_aio_read(one);
  MoveNow(one, true);
  return 0;
}
RAMSPAN_API int aio_write(aiocb* one) noexcept {
  if (!MovesHere(one)) return real_aio_write(one);
  MoveNow(one, false);
  return 0;
}

// What has moved here is none of the list's for libc.
RAMSPAN_API int lio_listio(int mode, aiocb* const list[], int count, sigevent* notice) noexcept {
  const auto moves_here = [](const aiocb* one) { return one != nullptr && (one->aio_lio_opcode == LIO_READ || one->aio_lio_opcode == LIO_WRITE) && MovesHere(one); };
  if ((mode != LIO_WAIT && mode != LIO_NOWAIT) || count <= 0 || std::none_of(list, list + count, moves_here)) return real_lio_listio(mode, list, count, notice);
  auto** const others = static_cast<aiocb**>(malloc(static_cast<size_t>(count) * sizeof(aiocb*)));
  if (others == nullptr) return errno = EAGAIN, -1;
  bool failed = false;
  for (int i = 0; i < count; ++i) {
    others[i] = list[i];
    if (!moves_here(list[i])) continue;
    MoveNow(list[i], list[i]->aio_lio_opcode == LIO_READ);
    failed = failed || list[i]->__error_code != 0;
    others[i] = nullptr;
  }
  const int result = real_lio_listio(mode, others, count, notice);
  free(others);
  if (result == 0 && failed && mode == LIO_WAIT) return errno = EIO, -1;
  return result;
}

RAMSPAN_API int aio_read64(aiocb64*) noexcept __attribute__((alias("aio_read")));
RAMSPAN_API int aio_write64(aiocb64*) noexcept __attribute__((alias("aio_write")));
RAMSPAN_API int lio_listio64(int, aiocb64* const[], int, sigevent*) noexcept __attribute__((alias("lio_listio")));
}
