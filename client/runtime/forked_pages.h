// Memory that is swapped by pages, in a forked child: the addresses are the parent's, what was there comes as a copy when it is touched first (ForkCopy), and nothing of it is swapped.
// Thread-safety: any thread, but for Start.
#pragma once

#include <signal.h>

#include <cstddef>

namespace ramspan {
class PageSpace;
}

namespace ramspan::forked_pages {

// In the parent, once, with the page mode.
void Start(PageSpace* space);
// fork's handlers. Once for all calls; before Start where others' handlers, which are registered later, may use such memory.
void RegisterHandlers();
// Whether it is an address of such memory, in parent and child.
bool IsHome(const void* address);

// In a child.
PageSpace* Space();  // as it was at the fork: of it only what needs no engine
void Drop(void* begin, size_t bytes);      // gives memory of the copy back; the addresses stay Ramspan's
void Discard(char* begin, size_t bytes);   // zeros from now on
void Free(void* begin);                    // what AllocatePages gave to the parent
// As sigaction(SIGSEGV), for the program.
void ExchangeHandler(const struct sigaction* action, struct sigaction* before);

}  // namespace ramspan::forked_pages
