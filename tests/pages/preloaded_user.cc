// Scenarios of `ramspan run --pages` for a program that uses Ramspan by itself, too (scenarios.sh): what is Ramspan's there, and what its own. usage: preloaded_user SCENARIO
#include <fcntl.h>
#include <signal.h>
#include <ramspan/managed_ptr.h>
#include <ramspan/mapped_file.h>

#include <cstring>
#include <string>

#include "tests/pages/preloaded.h"

namespace {

int OpenFiles() {
  int open = 0;
  for (int fd = 0; fd < 1024; ++fd) open += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return open;
}

// Their descriptors are Ramspan's, of which a program cannot close any, and the last to know them is the program's object: each one stayed open.
void MappedFiles() {
  char name[] = "mapped-XXXXXX";
  const int file = mkstemp(name);
  CHECK(file >= 0 && ftruncate(file, 1 << 20) == 0 && close(file) == 0);
  char* const memory = Filled(8 * kMiB);
  const int before = OpenFiles();
  for (int i = 0; i < 50; ++i) {
    const ramspan::mappedFile<char> mapped(name);
    CHECK(mapped.size() == 1 << 20);
  }
  CHECK(OpenFiles() == before);
  CHECK(IsFilled(memory, 0, 8 * kMiB) && unlink(name) == 0);
}

int UsesMuch() {
  char* const memory = Filled(12 * kMiB);
  return IsFilled(memory, 0, 12 * kMiB) ? 0 : 1;
}
pid_t FirstOfFork() { return fork(); }
pid_t FirstOfUnknown() { return _Fork(); }

// Of a parent that has objects, but no pages yet: a large malloc ended them by SIGSEGV. And they may close all that is their parent's.
void FirstPagesInChildren() {
  ramspan::managedPtr<char> object(64 << 10);
  { ramspan::adhereTo<char> glue(object); static_cast<char*>(glue)[0] = 1; }
  for (pid_t (*const make)() : {FirstOfFork, FirstOfUnknown}) {
    const pid_t child = make();
    if (child == 0) {
      if (UsesMuch() != 0) _exit(1);
      for (int fd = 3; fd < 1024; ++fd) {
        if (close(fd) != 0 && fcntl(fd, F_GETFD) >= 0) _exit(2);
      }
      _exit(UsesMuch());
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(UsesMuch() == 0);
}

// A program closes all that it does not know, and opens a file: RAMSPAN_TRACE wrote its records into that, at the end at the latest.
void Traced() {
  char* const memory = Filled(8 * kMiB);
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  const int own = open("own", O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(own >= 0 && own < 700);
  for (int i = 0; i < 8; ++i) Sweep();
  CHECK(IsFilled(memory, 0, 8 * kMiB));
}

// By a system call, which no library hears of. By SIGBUS all that came later was zeros, and nobody was told.
void ClosesAllUnasked() {
  char* const memory = Filled(12 * kMiB);
  CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
  for (int i = 0; i < 3; ++i) CHECK(IsFilled(memory, 0, 12 * kMiB));
}

}  // namespace

int main(int count, char** arguments) {
  const std::string scenario = count == 2 ? arguments[1] : "";
  if (scenario == "mapped_files") MappedFiles();
  else if (scenario == "first_pages_in_children") FirstPagesInChildren();
  else if (scenario == "traced") Traced();
  else if (scenario == "closes_all_unasked") ClosesAllUnasked();
  else return 2;
  std::puts("good");
  return 0;
}
