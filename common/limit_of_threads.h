// Why there can be no further thread, for error messages: the system says "Resource temporarily unavailable" for each of the limits.
// Thread-safety: any thread.
#pragma once

#include <string>

namespace ramspan {

// Which limit keeps this process from having another thread now, and what to do: "raise `ulimit -v` ...".
std::string LimitOfThreads();

}  // namespace ramspan
