// What the system says about another process of this host. Pure look at /proc; any thread.
#pragma once

#include <cstdint>

namespace ramspan {

// kStopped: by a signal or a debugger; it may be continued. kGone: ended; a zombie counts as gone, although kill(pid, 0)
// still finds it. kUnknown: /proc does not tell.
enum class ProcessLife { kRuns, kStopped, kGone, kUnknown };

// 0 is the number of a process that cannot be seen from here: kUnknown.
ProcessLife LifeOfProcess(long pid);

// Processes that say the same here mean the same process by a number. Containers on one host may have different ones.
uint64_t PidNamespace();

}  // namespace ramspan
