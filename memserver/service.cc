// ramspan-server (`ramspan server`): a memory server that stands by itself. It lends memory to whoever knows its secret, for as long as
// it runs, and outlives its clients.
#include <sys/resource.h>

#include <boost/program_options.hpp>
#include <cstdlib>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "common/command_line.h"
#include "common/descriptor.h"
#include "common/log.h"
#include "common/place_file_post.h"
#include "common/rendezvous.h"
#include "common/topology.h"
#include "common/units.h"
#include "memserver/ends_by_signals.h"
#include "memserver/ofi_endpoint.h"
#include "memserver/server_loop.h"

namespace ramspan {
namespace {

namespace po = boost::program_options;

constexpr int kThreadsMax = 64;  // each has an endpoint with buffers of its own, some 35 MB over tcp

struct ServiceOptions {
  std::string memory;
  OfiEndpointOptions endpoint;
  std::string key_file, rendezvous;
  bool help = false;
};

po::options_description Description(ServiceOptions& options) {
  po::options_description text("options");
  auto add = text.add_options();
  add("memory", po::value(&options.memory)->value_name("SIZE"), "what it lends, like 64GiB; taken from the system as it is leased");
  add("listen", po::value(&options.endpoint.listen)->value_name("HOST:PORT"),
      "where clients of other hosts find it: a name or address of one interface of this host, and a port (0: any free one). Without it "
      "only clients of this host are served");
  add("socket", po::value(&options.endpoint.socket)->value_name("PATH"), "a Unix socket where clients of this host find it");
  add("rendezvous", po::value(&options.rendezvous)->value_name("DIR|file:FILE"),
      "a folder that the clients' hosts see, too, closed to other users (0700; made if it does not exist): the server writes down there "
      "where it is, and clients find it by servers = dir:DIR. Or a file in which servers write their HOST:PORT, one a line: servers = file:FILE");
  add("key-file", po::value(&options.key_file)->value_name("FILE"),
      "the secret that clients have to know, readable by its owner alone; made if it does not exist. Default: RAMSPAN_SERVER_KEY_FILE, as "
      "clients have it, else DIR/key with --rendezvous DIR, else ~/.ramspan.key");
  add("threads", po::value(&options.endpoint.threads)->value_name("N"),
      "threads that move the bytes of clients of other hosts (1): each client is one thread's, so more help where several clients are busy "
      "at once and one core does not fill the network");
  add("provider", po::value(&options.endpoint.fabric.provider)->value_name("NAME"),
      "libfabric's provider, like verbs;ofi_rxm. Default: the first that can");
  add("help,h", po::bool_switch(&options.help), "this text");
  return text;
}

void PrintHelp(std::ostream& out) {
  ServiceOptions options;
  out << "usage: ramspan server --memory SIZE [--listen HOST:PORT] [--socket PATH] [options]\n\n"
         "Lends memory of this host to programs that use Ramspan, until SIGTERM, ^C, or the end of\n"
         "its terminal (nohup: it stays). Where a file system keeps it from ending, another SIGTERM or ^C, after a\n"
         "second, ends it at once; while the program is still being loaded, before it says anything, only SIGKILL does.\n"
         "They find it by\n"
         "  servers = HOST:PORT          (in ~/.ramspan.conf), or\n"
         "  RAMSPAN_SERVERS=HOST:PORT    (environment; the PATH of a Unix socket will do on this host)\n"
         "and have to know the same secret: on other hosts, a copy of the key file (serverKeyFile, RAMSPAN_SERVER_KEY_FILE).\n"
         "When it ends, what only it held is lost to programs of other hosts (`ramspan ctl drain` first: nothing is); they go on with the rest,\n"
         "and use it again when it is back.\n\n"
         "example:\n"
         "  ramspan server --memory 64GiB --listen node7:7117\n"
         "  RAMSPAN_SERVERS=node7:7117 RAMSPAN_MEMORY=4GiB ./app\n"
         "or, on any number of hosts, by a folder that all of them see:\n"
         "  ramspan server --memory 64GiB --listen $(hostname):0 --rendezvous /scratch/me/servers\n"
         "  RAMSPAN_SERVERS=dir:/scratch/me/servers RAMSPAN_MEMORY=4GiB ./app\n"
         "or by a file, with a line for each server:\n"
         "  ramspan server --memory 64GiB --listen $(hostname):0 --rendezvous file:$HOME/servers\n"
         "  RAMSPAN_SERVERS=file:$HOME/servers RAMSPAN_MEMORY=4GiB ./app          (or RAMSPAN_SERVERS=$(paste -sd, ~/servers))\n\n"
      << Description(options);
}

// Memory is taken as it is leased, so a server could promise what its host does not have, and would be killed when clients use it.
Result<uint64_t> PoolBytes(const std::string& text) {
  constexpr uint64_t kMin = uint64_t{1} << 20;
  const Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return InvalidArgument("--memory: " + bytes.status().message());
  if (bytes.value() < kMin || bytes.value() > kPoolBytesMax) {
    return InvalidArgument("--memory " + text + " is not between " + FormatBytes(kMin) + " and " + FormatBytes(kPoolBytesMax) +
                           (bytes.value() < kMin ? UnitsForgotten(text) : ""));
  }
  const uint64_t available = AvailableMemory();
  if (bytes.value() > available) {
    return ResourceExhausted("--memory " + text + " does not fit: this host has " + FormatBytes(available) +
                             " of memory available. Remedy: --memory " + std::to_string(available >> 20) + "MiB or less");
  }
  return bytes.value() / kLeaseGranule * kLeaseGranule;
}

Result<ServiceOptions> Parse(int argc, char** argv) {
  ServiceOptions options;
  std::vector<std::string> words;
  if (Status parsed = ParseCommandLine("ramspan server", {argv + 1, argv + argc}, Description(options), &words); !parsed.ok()) return parsed;
  if (!words.empty()) return InvalidArgument("\"" + words[0] + "\" is no option (see ramspan server --help)");
  if (options.help) return options;
  if (options.memory.empty()) return InvalidArgument("--memory SIZE says how much it lends, like --memory 64GiB");
  if (options.rendezvous == "file:") return InvalidArgument("--rendezvous file:FILE wants the name of a file");
  if (options.rendezvous == "dir:") return InvalidArgument("--rendezvous DIR wants the name of a folder");
  if (options.endpoint.threads < 1 || options.endpoint.threads > kThreadsMax) {
    return InvalidArgument("--threads goes from 1 to " + std::to_string(kThreadsMax));
  }
  // Before anything is made: a rendezvous folder, a key.
  for (const bool near : {false, true}) {
    const std::string& where = near ? options.endpoint.socket : options.endpoint.listen;
    if (where.empty()) continue;
    if (const Result<SocketPlace> place = OfiEndpoint::PlaceToListen(where, near); !place.ok()) return place.status();
  }
  const Result<uint64_t> bytes = PoolBytes(options.memory);
  if (!bytes.ok()) return bytes.status();
  options.endpoint.pool_bytes = bytes.value();
  if (const char* const file = std::getenv("RAMSPAN_SERVER_KEY_FILE"); options.key_file.empty() && file != nullptr) options.key_file = file;
  return options;
}

// Each client and each lease of a client of this host is a descriptor, and the usual limit is 1024. What may be had for nothing.
void RaiseFileLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// Where clients find the server, as long as this lives.
struct Posts {
  std::unique_ptr<RendezvousPost> in_folder;
  std::unique_ptr<PlaceFilePost> in_file;
};

// The file that --rendezvous names; empty: it names a folder, or nothing.
std::string RendezvousFile(const ServiceOptions& options) {
  constexpr std::string_view kMark = "file:";
  return options.rendezvous.rfind(kMark, 0) == 0 ? options.rendezvous.substr(kMark.size()) : "";
}

Status PostIn(std::optional<RendezvousFolder> folder, const std::string& file, const OfiEndpoint& endpoint, Posts* posts) {
  if (!folder && file.empty()) return {};
  const Result<SocketPlace> place = ParseSocketPlace(endpoint.place());
  if (!place.ok()) return place.status();
  const std::string where = folder ? folder->path() : file;
  if (folder) {
    RendezvousEntry entry = OwnEntry(endpoint.instance());
    entry.place = place.value();
    Result<std::unique_ptr<RendezvousPost>> made = RendezvousPost::Make(std::move(*folder), entry);
    if (!made.ok()) return made.status();
    posts->in_folder = std::move(made).value();
  } else {
    Result<std::unique_ptr<PlaceFilePost>> made = PlaceFilePost::Make(file, place.value());
    if (!made.ok()) return made.status();
    posts->in_file = std::move(made).value();
  }
  if (IsOfOneHost(place.value())) {
    LogWarning("memory server %s: clients of other hosts find it in %s and cannot reach it; --listen HOST:PORT names an address of this host that they can (where "
               "/etc/hosts calls this host 127.0.1.1, its own name is none)", endpoint.place().c_str(), where.c_str());
  }
  return {};
}

Status ServeAll(const ServiceOptions& options) {
  FillStandardStreams();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a lease or a key that is too large a file (ulimit -f) is refused by an errno
  const Result<EndsBySignals*> signals = EndsBySignals::Begin();
  if (!signals.ok()) return signals.status();
  RaiseFileLimit();
  std::optional<RendezvousFolder> folder;
  const std::string place_file = RendezvousFile(options);
  if (!options.rendezvous.empty() && place_file.empty()) {
    // As programs write it, too.
    const std::string path = options.rendezvous.rfind("dir:", 0) == 0 ? options.rendezvous.substr(4) : options.rendezvous;
    Result<RendezvousFolder> opened = RendezvousFolder::Open(path, /*make=*/true);
    if (!opened.ok()) return opened.status();
    folder.emplace(std::move(opened).value());
  }
  const Result<std::string> file = !options.key_file.empty() ? Result<std::string>(options.key_file) : folder ? Result<std::string>(folder->key_file()) : DefaultKeyFile();
  if (!file.ok()) return file.status();
  const Result<Secret> secret = Secret::FromFileOrNew(file.value());
  if (!secret.ok()) return secret.status();
  Result<std::unique_ptr<OfiEndpoint>> endpoint = OfiEndpoint::Open(options.endpoint, secret.value());
  if (!endpoint.ok()) return endpoint.status();
  const EndsBySignals::Of ends(*signals.value(), *endpoint.value());
  Posts posts;
  if (Status posted = PostIn(std::move(folder), place_file, *endpoint.value(), &posts); !posted.ok()) return posted;
  std::printf("ramspan server: lends %s at %s, provider %s, secret in %s\n", FormatBytes(options.endpoint.pool_bytes).c_str(),
              endpoint.value()->place().c_str(), endpoint.value()->provider(), file.value().c_str());
  std::fflush(stdout);
  return Serve(*endpoint.value()).status();
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) {
  const ramspan::Result<ramspan::ServiceOptions> options = ramspan::Parse(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "ramspan server: %s\n", options.status().message().c_str());
    return 2;
  }
  if (options.value().help) return ramspan::PrintHelp(std::cout), 0;
  const ramspan::Status served = ramspan::ServeAll(options.value());
  if (served.ok()) return 0;
  std::fprintf(stderr, "ramspan server: %s\n", served.message().c_str());
  return served.code() == ramspan::StatusCode::kInvalidArgument ? 2 : 1;
}
