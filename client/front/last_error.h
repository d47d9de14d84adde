// What a program says that an error of Ramspan's ends without a word: an exception that leaves an OpenMP region or meets a joinable std::thread on its
// way calls std::terminate "without an active exception", and two threads that come there at once cut off each other's message.
// Thread-safety: any thread.
#pragma once

namespace ramspan {

// The calling thread is about to throw it. Copies the beginning; needs no heap.
void NoteThrown(const char* words) noexcept;

// From now on std::terminate lets the first thread that calls it finish its message, and says what this thread has thrown last where the handler
// before, which is called next, would not. Once a process.
void SayErrorsAtTerminate();

}  // namespace ramspan
