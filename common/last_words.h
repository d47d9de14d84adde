// What a process says when it has to end although nobody knows in which state its threads, its locks and its standard error
// are. Any thread.
#pragma once

#include <chrono>

namespace ramspan {

// Whether standard error takes a line within `wait` without blocking the caller. A pipe that nobody empties (a pager, a
// reader that is stopped) does not.
bool StderrTakesALine(std::chrono::milliseconds wait);

// Writes `text` (a line of less than 4096 bytes) to standard error if that takes it within a second, gives what the program
// has printed another second to follow, and ends the process with status 1. Runs no exit handlers.
[[noreturn]] void EndProcessSaying(const char* text);

}  // namespace ramspan
