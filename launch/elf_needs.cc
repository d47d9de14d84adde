#include "launch/elf_needs.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "launch/process.h"

namespace ramspan {
namespace {

// Nothing in a file is believed: these bound what is read of a broken one.
constexpr size_t kHeadersMax = 1024, kEntriesMax = 65536, kNameMax = 256;

template <typename T>
bool ReadAt(int fd, uint64_t offset, T* out) {
  return pread(fd, out, sizeof *out, static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof *out);
}

struct Segments {
  std::vector<Elf64_Phdr> all;
  // Where in the file an address of the loaded program lies.
  std::optional<uint64_t> FileOffset(uint64_t address) const {
    for (const Elf64_Phdr& one : all) {
      if (one.p_type == PT_LOAD && address >= one.p_vaddr && address - one.p_vaddr < one.p_filesz) return address - one.p_vaddr + one.p_offset;
    }
    return std::nullopt;
  }
};

std::optional<Segments> ReadSegments(int fd) {
  Elf64_Ehdr header;
  if (!ReadAt(fd, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  const unsigned char here = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != here) return std::nullopt;
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kHeadersMax) return std::nullopt;
  Segments segments;
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr one;
    if (!ReadAt(fd, header.e_phoff + i * sizeof one, &one)) return std::nullopt;
    segments.all.push_back(one);
  }
  return segments;
}

std::string NameAt(int fd, uint64_t offset) {
  char text[kNameMax] = "";
  const ssize_t length = pread(fd, text, sizeof text - 1, static_cast<off_t>(offset));
  return length > 0 ? std::string(text) : "";
}

// As the library has it that reads this variable.
constexpr char kMark[] = "RAMSPAN_MEMORY";
constexpr off_t kSearchedMax = 256 << 20;

std::optional<bool> Holds(int fd, std::string_view text) {
  struct stat file {};
  if (fstat(fd, &file) != 0 || file.st_size <= 0 || file.st_size > kSearchedMax) return std::nullopt;
  const auto bytes = static_cast<size_t>(file.st_size);
  void* const begin = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (begin == MAP_FAILED) return std::nullopt;
  const bool found = memmem(begin, bytes, text.data(), text.size()) != nullptr;
  munmap(begin, bytes);
  return found;
}

// Its libmpi.so is of version 20 (Open MPI 2) or 40 (3 to 5). 12 is MPICH's, Intel MPI's and MVAPICH's, and was Open MPI 1's.
bool IsOpenMpi(const std::string& name) {
  if (name.rfind("libopen-rte", 0) == 0 || name.rfind("libopen-pal", 0) == 0) return true;
  const size_t version = name.find(".so.");
  return (name.rfind("libmpi.", 0) == 0 || name.rfind("libmpi_", 0) == 0) && version != std::string::npos && std::atoi(name.c_str() + version + 4) >= 20;
}

}  // namespace

std::optional<std::vector<std::string>> LibrariesNeeded(const std::string& program) {
  const UniqueFd file(open(program.c_str(), O_RDONLY | O_CLOEXEC));
  const std::optional<Segments> segments = file ? ReadSegments(file.get()) : std::nullopt;
  if (!segments) return std::nullopt;
  std::vector<uint64_t> offsets;
  uint64_t names = 0;
  for (const Elf64_Phdr& one : segments->all) {
    if (one.p_type != PT_DYNAMIC) continue;
    const size_t entries = std::min<uint64_t>(one.p_filesz / sizeof(Elf64_Dyn), kEntriesMax);
    for (size_t i = 0; i < entries; ++i) {
      Elf64_Dyn entry;
      if (!ReadAt(file.get(), one.p_offset + i * sizeof entry, &entry) || entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED) offsets.push_back(entry.d_un.d_val);
      if (entry.d_tag == DT_STRTAB) names = segments->FileOffset(entry.d_un.d_ptr).value_or(0);
    }
  }
  std::vector<std::string> libraries;
  for (const uint64_t offset : offsets) libraries.push_back(NameAt(file.get(), names + offset));
  return libraries;
}

std::optional<bool> IsStatic(const std::string& program) {
  const UniqueFd file(open(program.c_str(), O_RDONLY | O_CLOEXEC));
  const std::optional<Segments> segments = file ? ReadSegments(file.get()) : std::nullopt;
  if (!segments) return std::nullopt;
  return std::none_of(segments->all.begin(), segments->all.end(), [](const Elf64_Phdr& one) { return one.p_type == PT_INTERP; });
}

std::optional<bool> UsesRamspan(const std::string& program) {
  const auto libraries = LibrariesNeeded(program);
  if (!libraries) return std::nullopt;
  for (const std::string& name : *libraries) {
    if (name.rfind("libramspan", 0) == 0 || name.rfind("librambrain", 0) == 0) return true;
  }
  const UniqueFd file(open(program.c_str(), O_RDONLY | O_CLOEXEC));
  return file ? Holds(file.get(), kMark) : std::nullopt;
}

MpiUse MpiUseOfLibraries(const std::vector<std::string>& libraries) {
  MpiUse use = MpiUse::kNone;
  for (const std::string& name : libraries) {
    if (name.rfind("libramspan-mpi", 0) == 0) return MpiUse::kRamspan;
    if (IsOpenMpi(name)) use = MpiUse::kOpenMpi;
    if (use == MpiUse::kNone && name.rfind("libmpi", 0) == 0 && name.rfind("libmpir.", 0) != 0) use = MpiUse::kPlain;  // MPIR is for long numbers
  }
  return use;
}

std::optional<MpiUse> MpiUseOf(const std::string& program) {
  const auto libraries = LibrariesNeeded(program);
  return libraries ? std::optional(MpiUseOfLibraries(*libraries)) : std::nullopt;
}

}  // namespace ramspan
