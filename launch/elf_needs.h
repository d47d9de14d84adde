// Which shared libraries a program was linked with, read from its file. Stateless; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ramspan {

// The DT_NEEDED names of a 64-bit ELF file of this machine's byte order; nothing when the file is none (a script) or cannot be
// read. What the libraries need in their turn is not followed.
std::optional<std::vector<std::string>> LibrariesNeeded(const std::string& program);

// Whether an MPI library is among them. Nothing: it cannot be told.
std::optional<bool> IsLinkedWithMpi(const std::string& program);

}  // namespace ramspan
