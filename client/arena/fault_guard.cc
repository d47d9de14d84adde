#include "client/arena/fault_guard.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace ramspan {
namespace {

std::atomic<uintptr_t> range_begin{0}, range_end{0};
struct sigaction before;

// Only what a signal handler may do.
void Explain(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (address >= range_begin.load() && address < range_end.load()) {
    char text[] = "ramspan debug: the program used address 0x0000000000000000, where an object was that has left memory: a "
                  "pointer or reference that came from an adhereTo, a block, a span or a view is valid only as long as that (a view's, until it has come to two other blocks). The faulting line is in "
                  "the core file, or in a debugger (gdb --args PROGRAM ARGS)\n";
    char* digit = text + sizeof("ramspan debug: the program used address 0x0000000000000000") - 2;
    for (uintptr_t rest = address; rest != 0; rest >>= 4) *digit-- = "0123456789abcdef"[rest & 15];
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {
    }
  }
  sigaction(SIGSEGV, &before, nullptr);  // the instruction is executed again, and faults again
  if (info->si_code <= 0) raise(SIGSEGV);  // it was no instruction, but a kill
}

}  // namespace

void ExplainFaults(const void* base, size_t bytes) {
  const bool installed = range_end.load() != 0;
  range_begin = reinterpret_cast<uintptr_t>(base);
  range_end = range_begin + bytes;
  if (installed) return;
  struct sigaction action = {};
  action.sa_sigaction = Explain;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before);
}

}  // namespace ramspan
