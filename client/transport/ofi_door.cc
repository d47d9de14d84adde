#include "client/transport/ofi_door.h"

#include <dlfcn.h>
#include <signal.h>

#include <array>

namespace ramspan {
namespace {

// Beside the library that this function is in: installed, and in the build folder.
std::string ModulePath() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&OpenOfi), &info) == 0 || info.dli_fname == nullptr) return "libramspan-ofi.so";
  const std::string library = info.dli_fname;
  return library.substr(0, library.rfind('/') + 1) + "ramspan/libramspan-ofi.so";
}

// Some of the libraries that libfabric's providers bring along (libinfinipath) take SIGINT, SIGTERM, SIGSEGV and others for
// themselves as soon as they are loaded, and end the program with status 1. What the program has set comes back.
class SignalsKept {
 public:
  SignalsKept() {
    for (int i = 1; i < kSignals; ++i) known_[static_cast<size_t>(i)] = sigaction(i, nullptr, &before_[static_cast<size_t>(i)]) == 0;
  }
  ~SignalsKept() {
    for (int i = 1; i < kSignals; ++i) {
      struct sigaction now {};
      const struct sigaction& before = before_[static_cast<size_t>(i)];
      // The handler alone: a program that sets another one at this moment in another thread keeps it in most cases.
      if (!known_[static_cast<size_t>(i)] || sigaction(i, nullptr, &now) != 0 || now.sa_sigaction == before.sa_sigaction) continue;
      sigaction(i, &before, nullptr);
    }
  }
  SignalsKept(const SignalsKept&) = delete;
  SignalsKept& operator=(const SignalsKept&) = delete;

 private:
  static constexpr int kSignals = 32;  // beyond are real-time signals, which no library takes at its start
  std::array<struct sigaction, kSignals> before_{};
  std::array<bool, kSignals> known_{};
};

}  // namespace

Result<std::unique_ptr<ServerTransport>> OpenOfi(const OfiDoorOptions& options) {
  const std::string path = ModulePath();
  const SignalsKept signals;
  // For ever: its threads and what it has registered for the end of the process live on.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* door = module == nullptr ? nullptr : dlsym(module, kOfiDoorName);
  if (door == nullptr) {
    const char* reason = dlerror();
    return FailedPrecondition("servers are configured, but the libfabric transport cannot be loaded: " +
                              std::string(reason == nullptr ? path : reason) + "; install it with libfabric and libsodium, or leave `servers` out");
  }
  Status why;
  ServerTransport* transport = reinterpret_cast<OfiDoor>(door)(&options, RAMSPAN_VERSION, &why);
  if (transport == nullptr) return why;
  return std::unique_ptr<ServerTransport>(transport);
}

}  // namespace ramspan
