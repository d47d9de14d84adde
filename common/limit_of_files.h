// What a limit of open files has to do with an error, for error messages: libraries say "Input/output error" where they found no descriptor.
// Thread-safety: any thread.
#pragma once

#include <string>

namespace ramspan {

// What to add to the words of the error (an errno): how many files this process may have open, and what to do, where that may be the
// reason; else nothing. Leaves errno alone.
std::string LimitOfFiles(int error);

}  // namespace ramspan
