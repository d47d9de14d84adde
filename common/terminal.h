// A question to whoever sits at the terminal of this process.
// Thread-safety: any thread; two questions at once are mixed up on the screen.
#pragma once

#include <string>

namespace ramspan {

// Prints `message [y/N]` on the terminal and waits for an answer, 60 s at most. False: no, silence, no terminal, or a
// background job (reading there would stop the process).
bool AskOnTerminal(const std::string& message);

}  // namespace ramspan
