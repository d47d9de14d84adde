// libramspan-pages: messages and semaphores, of System V and of POSIX, whose calls may wait for others. What they read and answer is beside meanwhile. As arguments.cc.
// Thread-safety, cancellation, signals: as the calls that they replace.
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstring>

#include "client/preload/beside.h"

namespace {

using ramspan::preload::Beside;
using ramspan::preload::CopyOf;
using ramspan::preload::IsPlain;
using ramspan::preload::NeedsPins;
using ramspan::preload::Own;
using ramspan::preload::PinnedName;
using ramspan::preload::PinnedVectors;
using ramspan::preload::Reach;
using ramspan::preload::ReachOf;

}  // namespace

// ---- System V ----

RS_LIBC(msgsnd, int (*)(int, const void*, size_t, int))
RS_LIBC(msgrcv, ssize_t (*)(int, void*, size_t, long, int))
RS_LIBC(semop, int (*)(int, sembuf*, size_t))
RS_LIBC(semtimedop, int (*)(int, sembuf*, size_t, const timespec*))
RS_LIBC(semctl, int (*)(int, int, int, void*))
namespace {
// wait(operations): the call.
template <typename Wait>
int OnSemaphores(sembuf* operations, size_t count, const Wait& wait) {
  if (count > UINT16_MAX || !IsPlain(operations, count * sizeof(sembuf))) return wait(operations);
  const Beside beside(count * sizeof(sembuf));
  if (beside.begin() == nullptr) return errno = ENOMEM, -1;
  return wait(static_cast<sembuf*>(memcpy(beside.begin(), operations, count * sizeof(sembuf))));
}
// GETALL and SETALL, beside: they may be too many for what can be at home at once. Who may not ask how many there are may have as many as there can be.
int OfAllSemaphores(int set, int number, int what, unsigned short* values) {
  constexpr size_t kMost = 32000;  // SEMMSL
  Own<semid_ds> about;
  const int error = errno;
  const bool is_known = real_semctl(set, 0, IPC_STAT, about.get()) == 0;
  errno = error;
  const size_t bytes = (is_known ? about->sem_nsems : kMost) * sizeof(*values);
  const Reach reach = ReachOf(values, bytes);
  if (reach.is_protected || (is_known && reach.bytes < bytes)) {  // only the kernel knows what it may use
    const iovec piece = {values, reach.bytes};
    const PinnedVectors pinned(&piece, 1);
    return real_semctl(set, number, what, values);
  }
  const Beside beside(bytes);
  if (beside.begin() == nullptr) return errno = ENOMEM, -1;
  memcpy(beside.begin(), values, reach.bytes);
  const int result = real_semctl(set, number, what, beside.begin());
  if (result == 0 && what == GETALL) memcpy(values, beside.begin(), reach.bytes);
  return result;
}
}  // namespace
extern "C" {
RAMSPAN_API int msgsnd(int queue, const void* message, size_t bytes, int flags) {
  const size_t all = sizeof(long) + bytes;
  if (all < bytes || !IsPlain(message, all)) return real_msgsnd(queue, message, bytes, flags);
  const Beside beside(all);
  if (beside.begin() == nullptr) return errno = ENOMEM, -1;
  return real_msgsnd(queue, memcpy(beside.begin(), message, all), bytes, flags);
}
// The program may say more room than there is, or than others have memory for: what does not fit stays in the queue. Messages are of 8 KiB at most where nobody has raised kernel.msgmax: only
// for one that does not fit into that much beside, all of the room is there.
RAMSPAN_API ssize_t msgrcv(int queue, void* message, size_t bytes, long type, int flags) {
  constexpr size_t kUsualMost = size_t{64} << 10;
  const Reach reach = ReachOf(message, std::min<size_t>(bytes, SSIZE_MAX - sizeof(long)) + sizeof(long));
  if (bytes > SSIZE_MAX || reach.is_protected || reach.bytes < sizeof(long)) return real_msgrcv(queue, message, bytes, type, flags);
  for (size_t room = std::min(reach.bytes, kUsualMost);; room = reach.bytes) {
    const bool is_all = room == reach.bytes;
    const Beside beside(room);
    if (beside.begin() == nullptr) return errno = ENOMEM, -1;
    const ssize_t got = real_msgrcv(queue, beside.begin(), room - sizeof(long), type, is_all ? flags : flags & ~MSG_NOERROR);
    if (got >= 0) memcpy(message, beside.begin(), sizeof(long) + static_cast<size_t>(got));
    if (got >= 0 || errno != E2BIG || is_all) return got;
  }
}
// Threads may be cancelled there, by an exception, although libc's headers say that there is none.
RAMSPAN_API int OperateOn(int set, sembuf* operations, size_t count) __asm__("semop");
int OperateOn(int set, sembuf* operations, size_t count) {
  return OnSemaphores(operations, count, [&](sembuf* own) { return real_semop(set, own, count); });
}
RAMSPAN_API int OperateOnFor(int set, sembuf* operations, size_t count, const timespec* time) __asm__("semtimedop");
int OperateOnFor(int set, sembuf* operations, size_t count, const timespec* time) {
  CopyOf<const timespec> most(time);
  return OnSemaphores(operations, count, [&](sembuf* own) { return real_semtimedop(set, own, count, most.get()); });
}
// As ioctl: how much it uses is its own affair. But for the values of all semaphores of a set it is a few words.
RAMSPAN_API int semctl(int set, int number, int what, ...) noexcept {
  va_list rest;
  va_start(rest, what);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if ((what == GETALL || what == SETALL) && NeedsPins(argument)) return OfAllSemaphores(set, number, what, static_cast<unsigned short*>(argument));
  const iovec piece = {argument, IsPlain(argument, 1) ? size_t{4096} : 0};
  const PinnedVectors pinned(&piece, 1);
  return real_semctl(set, number, what, argument);
}
}  // extern "C"

RS_LIBC(shmctl, int (*)(int, int, shmid_ds*))
RS_LIBC(msgctl, int (*)(int, int, msqid_ds*))
extern "C" {
RAMSPAN_API int shmctl(int segment, int what, shmid_ds* about) noexcept {
  const iovec piece = {about, about == nullptr ? 0 : sizeof(*about)};
  const PinnedVectors pinned(&piece, 1);
  return real_shmctl(segment, what, about);
}
RAMSPAN_API int msgctl(int queue, int what, msqid_ds* about) noexcept {
  const iovec piece = {about, about == nullptr ? 0 : sizeof(*about)};
  const PinnedVectors pinned(&piece, 1);
  return real_msgctl(queue, what, about);
}
}  // extern "C"

// ---- POSIX ----

RS_LIBC(mq_open, mqd_t (*)(const char*, int, mode_t, const mq_attr*))
RS_LIBC(mq_send, int (*)(mqd_t, const char*, size_t, unsigned))
RS_LIBC(mq_timedsend, int (*)(mqd_t, const char*, size_t, unsigned, const timespec*))
RS_LIBC(mq_receive, ssize_t (*)(mqd_t, char*, size_t, unsigned*))
RS_LIBC(mq_timedreceive, ssize_t (*)(mqd_t, char*, size_t, unsigned*, const timespec*))
RS_LIBC(mq_getattr, int (*)(mqd_t, mq_attr*))
RS_LIBC(mq_setattr, int (*)(mqd_t, const mq_attr*, mq_attr*))
namespace {
constexpr size_t kLongestMessage = size_t{16} << 20;  // HARD_MSGSIZEMAX of the kernel's ipc/mqueue.c: more room than that is needed by none

// What of it the program may use is at home for the call: all that a message has may be there, though the program says that there is more.
template <typename Call>
ssize_t WithAtHome(const void* message, size_t bytes, const Call& call) {
  const iovec piece = {const_cast<void*>(message), ReachOf(message, bytes).bytes};
  const PinnedVectors pinned(&piece, 1);
  return call();
}
size_t LongestOf(mqd_t queue) {
  const int error = errno;
  mq_attr attributes = {};
  const bool is_known = real_mq_getattr(queue, &attributes) == 0;
  errno = error;
  return is_known ? static_cast<size_t>(attributes.mq_msgsize) : kLongestMessage;
}
template <typename Call>
int SendBeside(const char* message, size_t bytes, const Call& send) {
  if (bytes > kLongestMessage || !IsPlain(message, bytes)) return static_cast<int>(WithAtHome(message, std::min(bytes, kLongestMessage), [&] { return send(message); }));
  const Beside beside(bytes);
  if (beside.begin() == nullptr) return errno = ENOMEM, -1;
  return send(static_cast<const char*>(memcpy(beside.begin(), message, bytes)));
}
// The kernel has taken a message out of its queue when it finds that it cannot be stored: it would be gone.
template <typename Call>
ssize_t ReceiveBeside(mqd_t queue, char* message, size_t bytes, unsigned* priority, const Call& receive) {
  CopyOf<unsigned> own(priority);
  const size_t room = NeedsPins(message) ? std::min(bytes, LongestOf(queue)) : bytes;
  ssize_t got;
  if (IsPlain(message, room)) {
    const Beside beside(room);
    if (beside.begin() == nullptr) return errno = ENOMEM, -1;
    got = receive(beside.begin(), room, own.get());
    if (got > 0) memcpy(message, beside.begin(), static_cast<size_t>(got));
  } else {
    got = WithAtHome(message, room, [&] { return receive(message, bytes, own.get()); });
  }
  if (got >= 0) own.Answer();
  return got;
}
}  // namespace
extern "C" {
RAMSPAN_API mqd_t mq_open(const char* name, int flags, ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  const mq_attr* const attributes = va_arg(rest, const mq_attr*);
  va_end(rest);
  const bool makes = (flags & O_CREAT) != 0;
  const PinnedName pinned(name);
  CopyOf<const mq_attr> wanted(makes ? attributes : nullptr);
  return real_mq_open(name, flags, makes ? mode : 0, wanted.get());
}
RAMSPAN_API mqd_t __mq_open_2(const char* name, int flags) noexcept { return mq_open(name, flags); }
RAMSPAN_API int mq_send(mqd_t queue, const char* message, size_t bytes, unsigned priority) {
  return SendBeside(message, bytes, [&](const char* from) { return real_mq_send(queue, from, bytes, priority); });
}
RAMSPAN_API int mq_timedsend(mqd_t queue, const char* message, size_t bytes, unsigned priority, const timespec* time) {
  CopyOf<const timespec> until(time);
  return SendBeside(message, bytes, [&](const char* from) { return real_mq_timedsend(queue, from, bytes, priority, until.get()); });
}
RAMSPAN_API ssize_t mq_receive(mqd_t queue, char* message, size_t bytes, unsigned* priority) {
  return ReceiveBeside(queue, message, bytes, priority, [&](char* to, size_t room, unsigned* p) { return real_mq_receive(queue, to, room, p); });
}
RAMSPAN_API ssize_t mq_timedreceive(mqd_t queue, char* message, size_t bytes, unsigned* priority, const timespec* time) {
  CopyOf<const timespec> until(time);
  return ReceiveBeside(queue, message, bytes, priority, [&](char* to, size_t room, unsigned* p) { return real_mq_timedreceive(queue, to, room, p, until.get()); });
}
RAMSPAN_API int mq_getattr(mqd_t queue, mq_attr* to) noexcept {
  CopyOf<mq_attr> own(to);
  const int result = real_mq_getattr(queue, own.get());
  if (result == 0) own.Answer();
  return result;
}
RAMSPAN_API int mq_setattr(mqd_t queue, const mq_attr* from, mq_attr* before) noexcept {
  CopyOf<const mq_attr> now(from);
  CopyOf<mq_attr> own(before);
  const int result = real_mq_setattr(queue, now.get(), own.get());
  if (result == 0) own.Answer();
  return result;
}
}  // extern "C"
