// loss_program CHUNKS CHUNK_BYTES: fills chunks, writes its process id to $RAMSPAN_TEST_READY/rank-0 and waits for the file `go` there. Where a
// file `servers` appears meanwhile, the servers that it names are used from then on; while there is a file `read`, all chunks are read again and again. Then it looks at each chunk twice, makes and checks as many new ones, and prints "kept K lost L wrong W new N". A chunk is lost when both
// looks throw DataLost.
#include <ramspan/managed_ptr.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <ramspan/errors.h>
#include <ramspan/runtime.h>

namespace {

using Chunks = std::vector<ramspan::managedPtr<uint64_t>>;

uint64_t Word(size_t chunk, size_t at, uint64_t seed) { return (seed << 56) ^ (chunk * 0x9e3779b97f4a7c15u) ^ (at * 0x2545f491u); }

void Fill(Chunks& chunks, size_t count, size_t words, uint64_t seed) {
  for (size_t c = 0; c < count; ++c) {
    chunks.emplace_back(words);
    ramspan::adhereTo<uint64_t> glue(chunks[c]);
    uint64_t* data = glue;
    for (size_t i = 0; i < words; ++i) data[i] = Word(c, i, seed);
  }
}

enum class Look { kGood, kWrong, kLost };

Look LookAt(Chunks& chunks, size_t c, size_t words, uint64_t seed) {
  try {
    const ramspan::adhereTo<uint64_t> glue(chunks[c]);
    const uint64_t* data = glue;
    for (size_t i = 0; i < words; ++i) {
      if (data[i] != Word(c, i, seed)) return Look::kWrong;
    }
    return Look::kGood;
  } catch (const ramspan::DataLost& error) {
    static bool said = false;
    if (!said) std::fprintf(stderr, "loss_program: %s\n", error.what());
    said = true;
    return Look::kLost;
  }
}

void ReadAll(Chunks& chunks, size_t words) {
  for (size_t c = 0; c < chunks.size(); ++c) LookAt(chunks, c, words, 1);
}

void UseOtherServers(const std::string& folder) {
  std::ifstream file(folder + "/servers");
  std::string names;
  if (!std::getline(file, names)) return;
  std::remove((folder + "/servers").c_str());
  const std::string before = *ramspan::EffectiveOptions().servers;
  try {
    ramspan::Reconfigure({.memory = uint64_t{1} << 45, .servers = names});  // so much memory is refused
  } catch (const ramspan::Error&) {
  }
  if (*ramspan::EffectiveOptions().servers != before) std::printf("a Reconfigure that was refused has changed the servers\n");
  ramspan::Reconfigure({.servers = names});
}

}  // namespace

int main(int, char** argv) {
  const size_t count = std::strtoull(argv[1], nullptr, 10), words = std::strtoull(argv[2], nullptr, 10) / sizeof(uint64_t);
  const std::string folder = std::getenv("RAMSPAN_TEST_READY");
  try {
    Chunks first, second;
    Fill(first, count, words, 1);
    std::ofstream(folder + "/new") << getpid() << '\n';
    std::rename((folder + "/new").c_str(), (folder + "/rank-0").c_str());
    while (access((folder + "/go").c_str(), F_OK) != 0) {
      UseOtherServers(folder);
      if (access((folder + "/read").c_str(), F_OK) == 0) ReadAll(first, words);
      usleep(2000);
    }
    size_t kept = 0, lost = 0, wrong = 0, fresh = 0;
    for (size_t c = 0; c < count; ++c) {
      const Look look = LookAt(first, c, words, 1), again = LookAt(first, c, words, 1);
      if (look != again || look == Look::kWrong) ++wrong;
      else ++(look == Look::kGood ? kept : lost);
    }
    Fill(second, count, words, 2);
    for (size_t c = 0; c < count; ++c) fresh += LookAt(second, c, words, 2) == Look::kGood;
    std::printf("kept %zu lost %zu wrong %zu new %zu\n", kept, lost, wrong, fresh);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loss_program: %s\n", error.what());
    return 1;
  }
  return 0;
}
