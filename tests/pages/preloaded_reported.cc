// Scenarios of `ramspan run --pages` that came of reports (preloaded.cc): what a child of vfork does with its parent's memory, messages, handlers that need much stack or do not return, other folders.
#include <aio.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <initializer_list>

#include "tests/pages/preloaded.h"

namespace {

template <typename Run>
void InVfork(const Run& run) {
  const pid_t pid = vfork();
  if (pid == 0) {
    run();
    execl("/bin/true", "true", static_cast<char*>(nullptr));
    _exit(1);
  }
  int status = 0;
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

sigjmp_buf g_back;
void UseMuchStack(int) {
  volatile char much[kMiB];
  for (size_t i = sizeof(much); i > 0; i -= 1024) much[i - 1] = 1;
  siglongjmp(g_back, 1);
}

void LeaveThread(int) { pthread_exit(&g_back); }
void* LeaveWhenUnblocked(void* argument) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0 && pthread_kill(pthread_self(), SIGUSR1) == 0);
  argument == nullptr ? pthread_sigmask(SIG_UNBLOCK, &set, nullptr) : sigprocmask(SIG_UNBLOCK, &set, nullptr);
  return nullptr;
}
int g_semaphores = -1;
void* WaitForSemaphore(void* time) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
  sembuf one = {0, -1, 0};
  time == nullptr ? semop(g_semaphores, &one, 1) : semtimedop(g_semaphores, &one, 1, static_cast<const timespec*>(time));
  return nullptr;
}

}  // namespace

// The page mode began in the child: its descriptors and threads were the child's, and what noted them the parent's, whose memory was neither limited nor its children's any more.
void StartsInVfork() {
  InVfork([] {
    char* const memory = New(kMiB);
    memory[0] = 1;
    free(memory);
  });
  char* const memory = Filled(12 * kMiB);
  CHECK(InChild([memory] { return IsFilled(memory, 0, 12 * kMiB) ? 0 : 1; }) == 0);
  char* const moved = static_cast<char*>(realloc(memory, 24 * kMiB));
  CHECK(moved != nullptr && IsFilled(moved, 0, 12 * kMiB));
}

// Swap grew there: the descriptor of a new file was the child's, and what was written to it gone when the child had started its program.
void GrowsInVfork() {
  constexpr size_t kBytes = 100 * kMiB;
  static char* memory;
  memory = New(kBytes);
  memory[0] = 1;
  InVfork([] {
    for (size_t i = 0; i < kBytes; i += 4096) memory[i] = static_cast<char>((i >> 12) * 3 + 1);
  });
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kBytes; i += 4096) CHECK(memory[i]++ == static_cast<char>((i >> 12) * 3 + 1 + static_cast<size_t>(round)));
  }
}

// The kernel takes a message out of the queue before it finds that the memory is not there.
void MessageQueues() {
  char* const memory = Filled(12 * kMiB);
  mq_attr attributes = {};
  attributes.mq_maxmsg = 4;
  attributes.mq_msgsize = 4096;
  const mqd_t queue = mq_open("/ramspan-reported", O_CREAT | O_RDWR | O_NONBLOCK, 0600, &attributes);
  if (queue == static_cast<mqd_t>(-1) && (errno == ENOSYS || errno == EACCES)) return;
  CHECK(queue != static_cast<mqd_t>(-1));
  for (size_t i = 0; i < 12; ++i) std::memcpy(memory + i * kMiB + 777, &attributes, sizeof(attributes));
  Sweep();
  for (size_t i = 0; i < 12; ++i) {  // the kernel found no attributes
    const mqd_t again = mq_open("/ramspan-reported", O_CREAT | O_RDWR, 0600, reinterpret_cast<mq_attr*>(memory + i * kMiB + 777));
    CHECK(again != static_cast<mqd_t>(-1) && mq_close(again) == 0);
  }
  CHECK(mq_unlink("/ramspan-reported") == 0);
  for (size_t i = 0; i < 8; ++i) {
    char* const from = memory + i * kMiB + 12345;
    auto* const priority = reinterpret_cast<unsigned*>(memory + 10 * kMiB);
    auto* const until = reinterpret_cast<timespec*>(memory + 11 * kMiB);
    auto* const now = reinterpret_cast<mq_attr*>(memory + 11 * kMiB + 65536);
    *until = {time(nullptr) + 60, 0};
    char sent[4096];
    memcpy(sent, from, sizeof(sent));
    Sweep();
    CHECK((i % 2 == 0 ? mq_send(queue, from, 4096, 3) : mq_timedsend(queue, from, 4096, 3, until)) == 0);
    memset(from, 0, 4096);
    Sweep();
    CHECK(mq_getattr(queue, now) == 0 && now->mq_curmsgs == 1);
    Sweep();
    CHECK((i % 2 == 0 ? mq_receive(queue, from, 4096, priority) : mq_timedreceive(queue, from, 4096, priority, until)) == 4096);
    CHECK(memcmp(from, sent, 4096) == 0 && *priority == 3);
    CHECK(mq_receive(queue, from, 4096, nullptr) == -1 && errno == EAGAIN);
    CHECK(mq_receive(queue, from, 100, nullptr) == -1 && errno == EMSGSIZE);
  }
  // The program may say more room than there is, of which the queue needs little.
  char* const small = New(256 * 1024);
  memset(small, 1, 256 * 1024);
  CHECK(mq_send(queue, small, 4096, 0) == 0);
  Sweep();
  CHECK(mq_receive(queue, small, 200 * kMiB, nullptr) == 4096 && small[4095] == 1);
  CHECK(mq_close(queue) == 0);
  strcpy(memory, "a name");
  Sweep();
  CHECK(prctl(PR_SET_NAME, memory) == 0);
  Sweep();
  CHECK(prctl(PR_GET_NAME, memory + kMiB) == 0 && strcmp(memory + kMiB, "a name") == 0);
  Sweep();
  CHECK(pthread_getname_np(pthread_self(), memory, 16) == 0 && strcmp(memory, "a name") == 0);
}

// Their stack was of 256 KiB, without a guard: what a handler wrote beyond that went into others' memory.
void DeepHandlers() {
  char* const memory = Filled(12 * kMiB);
  for (const int number : {SIGBUS, SIGSEGV}) {
    struct sigaction action = {};
    action.sa_handler = UseMuchStack;
    CHECK(sigaction(number, &action, nullptr) == 0);
    static int times;  // not on the stack: the handler comes back by a jump
    for (times = 0; times < 3; ++times) {
      if (sigsetjmp(g_back, 1) == 0) raise(number);
    }
  }
  CHECK(IsFilled(memory, 0, 12 * kMiB));
}

// Wrappers that promise to throw nothing ended the process.
void ExitsInHandlers() {
  char* const memory = Filled(12 * kMiB);
  struct sigaction action = {};
  action.sa_handler = LeaveThread;
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
  for (void* const argument : {static_cast<void*>(nullptr), static_cast<void*>(memory)}) {
    pthread_t thread;
    void* left = nullptr;
    CHECK(pthread_create(&thread, nullptr, LeaveWhenUnblocked, argument) == 0 && pthread_join(thread, &left) == 0 && left == &g_back);
  }
  g_semaphores = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT);
  timespec minute = {60, 0};
  for (void* const argument : {static_cast<void*>(nullptr), static_cast<void*>(&minute)}) {
    if (g_semaphores == -1) break;
    pthread_t thread;
    void* left = nullptr;
    CHECK(pthread_create(&thread, nullptr, WaitForSemaphore, argument) == 0);
    usleep(50000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &left) == 0 && left == PTHREAD_CANCELED);
  }
  if (g_semaphores != -1) semctl(g_semaphores, 0, IPC_RMID);
  CHECK(IsFilled(memory, 0, 12 * kMiB));
}

// Swap files that were made later were looked for where their folder's path led by then.
void OtherFolders() {
  char folder[] = "other-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  char* const first = Filled(12 * kMiB);
  char* const here = getcwd(nullptr, 0);
  CHECK(chdir(folder) == 0);
  const bool is_root = chroot(".") == 0;
  char* const memory = Filled(150 * kMiB);
  CHECK(IsFilled(memory, 0, 150 * kMiB) && IsFilled(first, 0, 12 * kMiB));
  CHECK(is_root || (chdir(here) == 0 && rmdir(folder) == 0));
}

// What is cut off a stream is stored nowhere; other bytes were copied to where it would have been.
void CutStreams() {
  char* const memory = Filled(12 * kMiB);
  const int listening = socket(AF_INET, SOCK_STREAM, 0), sending = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  CHECK(bind(listening, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(listening, 1) == 0 && getsockname(listening, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  CHECK(connect(sending, reinterpret_cast<sockaddr*>(&address), length) == 0);
  const int receiving = accept(listening, nullptr, nullptr);
  const char text[900] = {};
  CHECK(receiving >= 0 && write(sending, text, sizeof(text)) == sizeof(text));
  char peeked[900];
  CHECK(recv(receiving, peeked, sizeof(peeked), MSG_PEEK | MSG_WAITALL) == sizeof(peeked));
  Sweep();
  CHECK(recv(receiving, memory, 300, MSG_TRUNC) == 300);
  iovec piece = {memory + 300, 300};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  Sweep();
  CHECK(recvmsg(receiving, &message, MSG_TRUNC) == 300);
  CHECK(IsFilled(memory, 0, 12 * kMiB));
  CHECK(recv(receiving, memory, 300, 0) == 300 && memory[0] == 0 && memory[299] == 0);
}

// A child's libc writes them itself, behind what brings pages.
void BuffersInChildren() {
  FILE* const file = tmpfile();
  char* const buffer = New(kMiB);
  CHECK(file != nullptr && setvbuf(file, buffer, _IOFBF, kMiB) == 0);
  for (int i = 0; i < 30000; ++i) std::fprintf(file, "line %06d\n", i);
  Sweep();
  CHECK(InChild([file] { return std::fprintf(file, "child\n") == 6 && fflush(file) == 0 ? 0 : 1; }) == 0);
}

namespace {
volatile sig_atomic_t told_by_signal = 0;
sem_t told_by_thread;
}  // namespace

// Threads of libc's move the data, by calls of its own: EFAULT on what had left, or what a device read was lost with a page that left just then.
void AsynchronousFiles() {
  constexpr size_t kBytes = 4 * kMiB;
  char name[] = "asynchronous-XXXXXX";
  const int file = mkstemp(name);
  CHECK(file >= 0 && unlink(name) == 0 && sem_init(&told_by_thread, 0, 0) == 0);
  char* const memory = static_cast<char*>(aligned_alloc(4096, kBytes));
  for (size_t i = 0; i < kBytes; ++i) memory[i] = static_cast<char>(i * 31 >> 3);
  aiocb one = {};
  one.aio_fildes = file;
  one.aio_buf = memory;
  one.aio_nbytes = kBytes;
  one.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
  one.aio_sigevent.sigev_signo = SIGUSR2;
  one.aio_sigevent.sigev_value.sival_int = 7;
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) { told_by_signal = info->si_code == SI_ASYNCIO ? info->si_value.sival_int : -1; };
  CHECK(sigaction(SIGUSR2, &action, nullptr) == 0);
  const auto ends = [](aiocb* of) {
    const aiocb* const list[] = {of};
    while (aio_error(of) == EINPROGRESS) aio_suspend(list, 1, nullptr);
    return aio_error(of) == 0 ? aio_return(of) : -aio_error(of);
  };
  Sweep();
  CHECK(aio_write(&one) == 0 && ends(&one) == kBytes);
  while (told_by_signal == 0) usleep(1000);
  CHECK(told_by_signal == 7);
  memset(memory, 0, kBytes);
  Sweep();
  one.aio_sigevent.sigev_notify = SIGEV_THREAD;
  one.aio_sigevent.sigev_notify_attributes = nullptr;
  one.aio_sigevent.sigev_notify_function = [](sigval) { sem_post(&told_by_thread); };
  CHECK(aio_read(&one) == 0 && ends(&one) == kBytes && sem_wait(&told_by_thread) == 0);
  CHECK(IsFilled(memory, 0, kBytes));

  // A list: of both kinds, one of which fails.
  one.aio_sigevent.sigev_notify = SIGEV_NONE;
  char small[64] = {};
  aiocb beside = one, wrong = one;
  beside.aio_buf = small;
  beside.aio_nbytes = sizeof(small);
  beside.aio_lio_opcode = one.aio_lio_opcode = LIO_READ;
  wrong.aio_lio_opcode = LIO_WRITE;
  wrong.aio_fildes = open("/dev/null", O_RDONLY);
  aiocb* const list[] = {&one, nullptr, &beside, &wrong};
  memset(memory, 0, kBytes);
  Sweep();
  CHECK(lio_listio(LIO_WAIT, list, 3, nullptr) == 0 && ends(&one) == kBytes && ends(&beside) == sizeof(small) && IsFilled(memory, 0, kBytes) && IsFilled(small, 0, sizeof(small)));
  wrong.aio_fildes = open("/proc/self/exe", O_RDONLY);
  CHECK(lio_listio(LIO_WAIT, list, 4, nullptr) == -1 && errno == EIO && ends(&one) == kBytes && ends(&wrong) == -EBADF);
  // What is appended comes in the order of calls, from whatever memory.
  char other_name[] = "appended-XXXXXX";
  const int appended = mkostemp(other_name, O_APPEND);
  CHECK(appended >= 0 && unlink(other_name) == 0);
  aiocb parts[100] = {};
  for (int i = 0; i < 100; ++i) {
    parts[i].aio_fildes = appended;
    parts[i].aio_buf = i % 2 == 0 ? small : memory + i * 4096;
    parts[i].aio_nbytes = sizeof(small);
    CHECK(aio_write(&parts[i]) == 0);
  }
  for (int i = 0; i < 100; ++i) {
    char part[sizeof(small)];
    CHECK(ends(&parts[i]) == sizeof(small) && pread(appended, part, sizeof(part), static_cast<off_t>(i * sizeof(part))) == sizeof(part));
    CHECK(IsFilled(part, i % 2 == 0 ? 0 : static_cast<size_t>(i) * 4096, sizeof(part)));
  }
  // Neither a file's limit nor a cancellation ends what libc's would go on with.
  rlimit before;
  CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit few = {8 * kMiB, before.rlim_max};
  CHECK(setrlimit(RLIMIT_FSIZE, &few) == 0);
  one.aio_offset = 16 * kMiB;
  CHECK(aio_write(&one) == 0 && ends(&one) == -EFBIG);
  CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);  // swap may grow
  one.aio_offset = 0;
  one.aio_reqprio = 1000;
  CHECK(aio_read(&one) == -1 && errno == EINVAL);
  one.aio_reqprio = 0;
  pthread_t cancelled;
  CHECK(pthread_create(&cancelled, nullptr, [](void* of) -> void* {
    pthread_cancel(pthread_self());
    aio_read(static_cast<aiocb*>(of));
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    return of;
  }, &one) == 0);
  void* returned = nullptr;
  CHECK(pthread_join(cancelled, &returned) == 0 && returned == &one && ends(&one) == kBytes && IsFilled(memory, 0, kBytes));
  // A pipe's reader waits, and this goes on.
  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0);
  one.aio_fildes = pipe_ends[0];
  one.aio_nbytes = 100;
  memory[99] = 1;
  CHECK(aio_read(&one) == 0 && write(pipe_ends[1], small, sizeof(small)) == sizeof(small) && ends(&one) == sizeof(small));
}

// The thread that moves data took the dynamic linker's lock for its first write, and waited for a constructor that waited for it.
void LoadedLibrary() {
  char path[4096] = "";
  CHECK(readlink("/proc/self/exe", path, sizeof(path) - 32) > 0);
  strcpy(strrchr(path, '/'), "/loaded_library.so");
  alarm(60);
  void* const library = dlopen(path, RTLD_NOW);
  CHECK(library != nullptr && dlclose(library) == 0);
}

// A mapping that was too small to be taken was never swapped, however large mremap made it: 64 MiB stayed in memory under a limit of 8.
void GrownMappings() {
  const auto resident = [] {
    FILE* const status = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long kib = 0;
    while (status != nullptr && fgets(line, sizeof(line), status) != nullptr && sscanf(line, "RssAnon: %lu kB", &kib) != 1) {
    }
    fclose(status);
    return kib << 10;
  };
  const auto grown = [](char* p, size_t before, size_t bytes, int flags = MREMAP_MAYMOVE) { return static_cast<char*>(mremap(p, before, bytes, flags)); };
  const size_t begin = resident();
  char* p = Map(kMiB / 2);
  for (size_t bytes = 0, next = kMiB / 2; next <= 64 * kMiB; next *= 2) {
    if (bytes > 0) p = grown(p, bytes, next);
    CHECK(p != MAP_FAILED && (bytes == 0 || IsFilled(p, 0, bytes)));
    for (size_t i = bytes; i < next; ++i) p[i] = static_cast<char>(i * 31 >> 3);
    bytes = next;
  }
  CHECK(IsFilled(p, 0, 64 * kMiB) && resident() < begin + 24 * kMiB && munmap(p, 64 * kMiB) == 0);
  // A part of a mapping; what stays of it stays as it is.
  char* const whole = Map(kMiB);
  whole[0] = 1, whole[kMiB / 2] = 2, whole[kMiB - 1] = 3;
  p = grown(whole + kMiB / 2, kMiB / 2, 4 * kMiB);
  CHECK(p != MAP_FAILED && p[0] == 2 && p[kMiB / 2 - 1] == 3 && p[kMiB] == 0 && whole[0] == 1 && madvise(whole + kMiB / 2, kMiB / 2, MADV_NORMAL) == -1 && errno == ENOMEM);
  // What is not plain memory: a shared one, one of a file, without rights; and what must not move.
  auto* const shared = static_cast<char*>(mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  shared[0] = 4;
  char* const more = grown(shared, 65536, 2 * kMiB);
  CHECK(more != MAP_FAILED && more[0] == 4 && InChild([more] { return more[0] = 5, 0; }) == 0 && more[0] == 5);
  char* const read = grown(Map(65536, PROT_READ), 65536, 2 * kMiB);
  CHECK(read != MAP_FAILED && read[kMiB] == 0 && InChild([read] { return *static_cast<volatile char*>(read) = 1, 0; }) == -SIGSEGV);
  char* const between = Map(3 * 65536);
  CHECK(munmap(between + 65536, 65536) == 0 && grown(between, 2 * 65536, 2 * kMiB) == MAP_FAILED && errno == EFAULT);
  CHECK(mmap(between + 65536, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == between + 65536 && grown(between, 65536, 2 * kMiB, 0) == MAP_FAILED && errno == ENOMEM);
}
