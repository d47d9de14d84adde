// With what a program was linked, read from its file. Stateless; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ramspan {

// The DT_NEEDED names of a 64-bit ELF file of this machine's byte order; nothing when the file is none (a script) or cannot be
// read. What the libraries need in their turn is not followed.
std::optional<std::vector<std::string>> LibrariesNeeded(const std::string& program);

enum class MpiUse : uint8_t {
  kNone,
  kPlain,    // an MPI library is among them
  kRamspan,  // <ramspan/mpi.h>'s is: the program knows of ranks that are servers
  kOpenMpi,  // Open MPI, whose ranks only its own mpirun can start
};
MpiUse MpiUseOfLibraries(const std::vector<std::string>& libraries);
// Nothing: it cannot be told.
std::optional<MpiUse> MpiUseOf(const std::string& program);

// Whether nothing can be preloaded into it: no dynamic linker starts it. Nothing: it is no such file.
std::optional<bool> IsStatic(const std::string& program);
// Whether it names Ramspan's library, or holds it. (One of its libraries may use it all the same.) Nothing: it cannot be told.
std::optional<bool> UsesRamspan(const std::string& program);

}  // namespace ramspan
