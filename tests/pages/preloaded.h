// What scenarios of `ramspan run --pages` share (preloaded.cc).
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

inline constexpr size_t kMiB = size_t{1} << 20;

inline void Check(bool good, int line, const char* what) {
  if (good) return;
  std::printf("line %d: %s (errno %d)\n", line, what, errno);
  std::exit(1);
}
#define CHECK(condition) Check(condition, __LINE__, #condition)

inline char* New(size_t bytes) { return static_cast<char*>(malloc(bytes)); }
inline char* Map(size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  return static_cast<char*>(mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

// More than the limit, so that all else leaves.
inline void Sweep() {
  static char* much;
  if (much == nullptr) much = New(32 * kMiB);
  for (size_t i = 0; i < 32 * kMiB; i += 512) much[i] += 1;
}
inline char* Filled(size_t bytes) {
  char* const begin = New(bytes);
  for (size_t i = 0; i < bytes; ++i) begin[i] = static_cast<char>(i * 31 >> 3);
  Sweep();
  return begin;
}
inline bool IsFilled(const char* begin, size_t first, size_t bytes) {
  for (size_t i = first; i < first + bytes; ++i) {
    if (begin[i - first] != static_cast<char>(i * 31 >> 3)) return false;
  }
  return true;
}

// What `run` of a forked child returns; -N: it was ended by signal N.
template <typename Run>
int InChild(const Run& run) {
  const pid_t pid = fork();
  if (pid == 0) _exit(run());
  int status = 0;
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void TouchesForAMinute();  // of preloaded_soak.cc
// Of preloaded_reported.cc.
void AsynchronousFiles();
void LoadedLibrary();
void GrownMappings();
void StartsInVfork();
void GrowsInVfork();
void MessageQueues();
void DeepHandlers();
void ExitsInHandlers();
void OtherFolders();
void CutStreams();
void BuffersInChildren();
// Of preloaded_stacks.cc.
void WaitsOnStacks();
void LateMessages();
void ChildHandlerMasks();
void Lengths();
void LocksBesideAllocations();
void Spawns();
void Restarts();
void ForksBesideStacks();
void ForksBesideStacksInPages();
void SmallAnswers();
void FaultsInMalloc();

// Of preloaded_beside.cc.
void SendAll(int fd, size_t bytes);                         // to a stream; all are 'a'
void SendDescriptor(int fd, int descriptor, size_t bytes);  // as one message of so many bytes
void ControlData();
void MoreNames();
void RoomsThatEnd();

// Of preloaded_programs.cc.
void FirstBuffer();
void Environments();
void SignalsOfVfork();
void SignalsOfUnknownChildren();
void WordsOfClone();
void BadPointers();
void Terminals();

// Of preloaded_rights.cc.
void GuardPages();
void Locks();
void Rights();
void RightsBesideReaders();
void RightsInChildren();
void LocksAndRights();
void LocksOfKernel();
void RightsOfCalls();
void LocksOfStacks();
// Of preloaded_soak.cc.
void Soak();
// Of preloaded_held.cc.
void CallsOnStacks();
void ChildrenWithoutStandardError();
void ForksOfCancelled();
void SplitsBesideDiscards();
void ZerosThatChildrenRead();
void ExitsOnStacks();
void GivenBackInPieces();
void ForksBesideDevices();
void LocksBesideDescriptors();
void LocksBeforeTheyAreTouched();
