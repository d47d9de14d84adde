// What the system says about another process of this host. Pure look at /proc; any thread.
#pragma once

namespace ramspan {

// kStopped: by a signal or a debugger; it may be continued. kGone: ended; a zombie counts as gone, although kill(pid, 0)
// still finds it. kUnknown: /proc does not tell.
enum class ProcessLife { kRuns, kStopped, kGone, kUnknown };

ProcessLife LifeOfProcess(long pid);

}  // namespace ramspan
