// ramspan-ctl (`ramspan ctl`): looks at memory servers that stand by themselves, and ends them. It has to know their secret.
#include <boost/program_options.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "common/command_line.h"
#include "common/config.h"
#include "common/link_frame.h"
#include "common/place_file.h"
#include "common/rendezvous.h"
#include "common/secret.h"
#include "common/units.h"
#include "memserver/controller.h"

namespace ramspan {
namespace {

namespace po = boost::program_options;

constexpr int kUsageError = 2;
constexpr std::chrono::seconds kAnswerMax{10};

struct CtlOptions {
  std::string command, key_file, memory, job;
  std::vector<std::string> servers;
  bool wait = false;
  bool help = false;
};

struct CommandName {
  const char* name;
  ServiceOrder order;
};
constexpr CommandName kCommands[] = {
    {"list", ServiceOrder::kList}, {"drain", ServiceOrder::kDrain}, {"undrain", ServiceOrder::kUndrain},
    {"shrink", ServiceOrder::kShrink}, {"quota", ServiceOrder::kQuota}, {"stop", ServiceOrder::kStop}};

po::options_description Description(CtlOptions& options) {
  po::options_description text("options");
  auto add = text.add_options();
  add("key-file", po::value(&options.key_file)->value_name("FILE"), "the servers' secret. Default: the key serverKeyFile (RAMSPAN_SERVER_KEY_FILE, ~/.ramspan.conf), else DIR/key with dir:DIR, else ~/.ramspan.key");
  add("memory", po::value(&options.memory)->value_name("SIZE"), "shrink: what the server lends; quota: the most of one job (none: no limit; default, with --job: the quota of all others)");
  add("job", po::value(&options.job)->value_name("NAME"), "quota: of this job, as list calls it. Default: of each job without a quota of its own");
  add("wait", po::bool_switch(&options.wait), "drain: says how much is left, until the server has ended");
  add("help,h", po::bool_switch(&options.help), "this text");
  return text;
}

void PrintHelp(std::ostream& out) {
  CtlOptions options;
  out << "usage: ramspan ctl list|drain|undrain|shrink|quota|stop [SERVER...] [options]\n\n"
         "SERVER is HOST:PORT, the PATH of a Unix socket, dir:DIR for all servers of a rendezvous folder, or file:FILE, as in the key `servers`;\n"
         "several may be joined by commas, and have one key then. Without any: those of that key (RAMSPAN_SERVERS, ~/.ramspan.conf).\n\n"
         "  list   what each server lends, which clients hold how much of it, how fast they write and read there, and quotas\n"
         "  drain  the server lends nothing any more, its clients move what is there to other servers or files while they go on,\n"
         "         and when it holds nothing it ends. Nothing is lost: what has no other place stays where it is\n"
         "  undrain  a server that has not yet ended lends again\n"
         "  shrink the server lends less from now on (or more again, up to its --memory); clients that hold too much move it elsewhere\n"
         "  quota  the most that a job may hold there; jobs that hold more move it elsewhere\n"
         "  stop   ends the server at once. What lived only there is lost to clients of other hosts; all of them go on\n\n"
         "example:\n"
         "  ramspan ctl list node7:7117\n"
         "  ramspan ctl drain --wait node7:7117\n"
         "  ramspan ctl quota node7:7117 --memory 16GiB --job 'slurm 4711'\n\n"
      << Description(options) << "\nExit status: 0; 1 when a server did not answer, or the output cannot be written; 2 for a wrong line.\n";
}

Result<CtlOptions> Parse(int argc, char** argv) {
  CtlOptions options;
  std::vector<std::string> words;
  if (Status parsed = ParseCommandLine("ramspan ctl", {argv + 1, argv + argc}, Description(options), &words); !parsed.ok()) return parsed;
  if (options.help) return options;
  if (words.empty()) return InvalidArgument("say what to do: ramspan ctl list SERVER (see ramspan ctl --help)");
  options.command = words[0];
  if (std::none_of(std::begin(kCommands), std::end(kCommands), [&](const CommandName& one) { return options.command == one.name; })) {
    return InvalidArgument("there is no command \"" + options.command + "\": list, drain, undrain, shrink, quota or stop (see ramspan ctl --help)");
  }
  options.servers.assign(words.begin() + 1, words.end());
  const Result<Config> config = LoadConfig(ProcessConfigSources({}));
  if (!config.ok()) return config.status();
  if (options.servers.empty()) options.servers = {config.value().servers};
  if (options.servers[0].empty()) {
    return InvalidArgument("no server is named: ramspan ctl " + options.command + " HOST:PORT, or the key servers (RAMSPAN_SERVERS, ~/.ramspan.conf)");
  }
  if (options.wait && options.command != "drain") return InvalidArgument("--wait is for drain");
  if (options.key_file.empty()) options.key_file = config.value().server_key_file;
  return options;
}

constexpr uint64_t kLentMin = uint64_t{64} << 10;

Result<ServiceCommand> CommandOf(const CtlOptions& options) {
  ServiceCommand command{.order = ServiceOrder::kList, .bytes = 0, .job = FrameText(options.job)};
  for (const CommandName& one : kCommands) {
    if (options.command != one.name) continue;
    command.order = one.order;
    const bool takes_memory = one.order == ServiceOrder::kShrink || one.order == ServiceOrder::kQuota;
    if (takes_memory == options.memory.empty()) return InvalidArgument(takes_memory ? options.command + " wants --memory SIZE" : "--memory is for shrink and quota");
    if (!options.job.empty() && one.order != ServiceOrder::kQuota) return InvalidArgument("--job is for quota");
    command.bytes = UINT64_MAX;
    if (!takes_memory) return command;
    if (one.order == ServiceOrder::kQuota && options.memory == "default") {
      if (options.job.empty()) return InvalidArgument("--memory default takes a job's own quota from it: say which (--job NAME), or --memory none for all");
      command.order = ServiceOrder::kNoOwnQuota;
      return command;
    }
    if (one.order == ServiceOrder::kQuota && options.memory == "none") return command;
    const Result<uint64_t> bytes = ParseBytes(options.memory);
    if (!bytes.ok()) return InvalidArgument("--memory: " + bytes.status().message());
    if (bytes.value() > 0 && bytes.value() < kLentMin) return InvalidArgument("--memory " + options.memory + " is less than a server lends at a time (" + FormatBytes(kLentMin) + "); 0 for none" + UnitsForgotten(options.memory));
    command.bytes = bytes.value();
    return command;
  }
  return command;  // not reached: Parse has looked
}

// Empty where nothing moves.
std::string Speed(const ServiceUsage& usage) {
  if (usage.written_per_second == 0 && usage.read_per_second == 0) return "";
  return ", writes " + FormatBytes(usage.written_per_second) + "/s, reads " + FormatBytes(usage.read_per_second) + "/s";
}

std::string Quota(uint64_t bytes) { return bytes == UINT64_MAX ? "what is free" : FormatBytes(bytes); }

void Print(const std::string& place, const std::vector<ServiceReport>& reports) {
  const ServiceReport& server = reports.back();
  std::printf("%s lends %s, of which %u client%s %s%s%s\n", place.c_str(), FormatBytes(server.lent_bytes).c_str(), server.clients,
              server.clients == 1 ? " holds" : "s hold", FormatBytes(server.held_bytes).c_str(), server.draining ? "; it drains" : "",
              server.quota_bytes == UINT64_MAX ? "" : ("; each job may hold " + Quota(server.quota_bytes)).c_str());
  for (const ServiceReport& one : reports) {
    if (one.of == ServiceReport::Of::kQuota) std::printf("  %s may hold %s\n", one.job.c_str(), Quota(one.quota_bytes).c_str());
    if (one.of != ServiceReport::Of::kClient) continue;
    const std::string quota = one.quota_bytes == UINT64_MAX ? "" : " of at most " + FormatBytes(one.quota_bytes);
    std::printf("  %-12s%s %s%s%s\n", FormatBytes(one.held_bytes).c_str(), quota.c_str(), one.label.c_str(),
                one.job.empty() || one.job == one.label ? "" : (", job " + one.job).c_str(), Speed(one.usage).c_str());
  }
}

// The instance of the server that has taken the order.
Result<uint64_t> Give(const SocketPlace& place, const Secret& secret, const ServiceCommand& command) {
  const ServiceOrder order = command.order;
  const Result<ServerAnswer> answer = Ask(place, secret, command, kAnswerMax);
  if (!answer.ok()) return answer.status();
  const std::vector<ServiceReport>& reports = answer.value().reports;
  if (order == ServiceOrder::kList) Print(place.text(), reports);
  if (order == ServiceOrder::kStop) std::printf("%s ends\n", place.text().c_str());
  if (order == ServiceOrder::kDrain) std::printf("%s drains: %s to go\n", place.text().c_str(), FormatBytes(reports.back().held_bytes).c_str());
  if (order == ServiceOrder::kUndrain) std::printf("%s lends again\n", place.text().c_str());
  if (order == ServiceOrder::kShrink) std::printf("%s lends %s, of which %s are held\n", place.text().c_str(), FormatBytes(reports.back().lent_bytes).c_str(), FormatBytes(reports.back().held_bytes).c_str());
  if (order == ServiceOrder::kNoOwnQuota) std::printf("%s: %s may hold as much as each other job\n", place.text().c_str(), command.job.c_str());
  if (order == ServiceOrder::kQuota) {
    std::printf("%s: %s may hold %s\n", place.text().c_str(), command.job.empty() ? "each job" : command.job.c_str(),
                Quota(command.bytes).c_str());
  }
  return answer.value().instance;
}

// What was printed goes out now. The first error of all such calls, as errno says it; 0: none.
int FlushOutput() {
  static int first = 0;
  if (std::fflush(stdout) != 0 && first == 0) first = errno;
  return first;
}

void Tell(const std::string& line) {
  std::printf("%s\n", line.c_str());
  FlushOutput();
}

// Also those that are found in folders, after what dead servers have left there was swept.
Result<std::vector<SocketPlace>> PlacesOf(const std::string& text, std::string* key_file) {
  Result<ServerNames> names = ParseServerNames(text);
  if (!names.ok()) return names.status();
  std::vector<SocketPlace> places = std::move(names.value().places);
  for (const std::string& file : names.value().files) {
    const Result<std::vector<SocketPlace>> there = ReadPlaceFile(file);
    if (!there.ok()) return there.status();
    places.insert(places.end(), there.value().begin(), there.value().end());
    if (there.value().empty()) std::printf("%s: no server\n", file.c_str());
  }
  for (const std::string& path : names.value().folders) {
    const Result<RendezvousFolder> folder = RendezvousFolder::Open(path, /*make=*/false);
    if (!folder.ok()) return folder.status();
    if (const size_t swept = folder.value().Sweep(); swept > 0) std::printf("%s: %zu file%s of dead servers swept\n", path.c_str(), swept, swept == 1 ? "" : "s");
    std::vector<uint64_t> unclear;
    const Result<std::vector<RendezvousEntry>> entries = folder.value().Read(&unclear);
    if (!entries.ok()) return entries.status();
    if (!unclear.empty()) std::printf("%s: %zu file%s cannot be read or understood now\n", path.c_str(), unclear.size(), unclear.size() == 1 ? "" : "s");
    for (const RendezvousEntry& entry : entries.value()) places.push_back(entry.place);
    if (key_file->empty()) *key_file = folder.value().key_file();
    if (entries.value().empty()) std::printf("%s: no server\n", path.c_str());
  }
  return places;
}

// A server, and the keys of the arguments that name it: a folder may name one that is named beside it, with another key.
struct Target {
  SocketPlace place;
  std::vector<Secret> keys;
};

void AddTarget(const SocketPlace& place, const Secret& key, std::vector<Target>* targets) {
  const auto same_place = [&](const Target& one) { return one.place.text() == place.text(); };
  const auto same_key = [&](const Secret& one) { return std::ranges::equal(one.bytes(), key.bytes()); };
  auto target = std::find_if(targets->begin(), targets->end(), same_place);
  if (target == targets->end()) target = targets->insert(target, Target{place, {}});
  if (std::none_of(target->keys.begin(), target->keys.end(), same_key)) target->keys.push_back(key);
}

// The servers of one argument, which have one key, as those of a program have.
Status AddTargets(const std::string& servers, std::string key_file, std::vector<Target>* targets) {
  const Result<std::vector<SocketPlace>> places = PlacesOf(servers, &key_file);
  if (!places.ok()) return places.status();
  const Result<std::string> file = key_file.empty() ? DefaultKeyFile() : Result<std::string>(key_file);
  if (!file.ok()) return file.status();
  const Result<Secret> secret = Secret::FromFile(file.value());
  if (!secret.ok()) return secret.status();
  for (const SocketPlace& place : places.value()) AddTarget(place, secret.value(), targets);
  return {};
}

// Of a server that has taken the order with one of its keys.
struct Told {
  SocketPlace place;
  Secret key;
  uint64_t instance;
};

// With each key until one is right; the failure of the last one.
Result<Told> GiveWithOneOf(const Target& target, const ServiceCommand& command) {
  Status failure;
  for (const Secret& key : target.keys) {
    const Result<uint64_t> given = Give(target.place, key, command);
    if (given.ok()) return Told{target.place, key, given.value()};
    failure = given.status();
  }
  return failure;
}

Result<int> CommandAll(const CtlOptions& options) {
  const Result<ServiceCommand> command = CommandOf(options);
  if (!command.ok()) return command.status();
  std::vector<Target> targets;
  bool all = true;
  for (const std::string& servers : options.servers) {
    Status added = AddTargets(servers, options.key_file, &targets);
    if (added.ok()) continue;
    if (options.servers.size() == 1) return added;
    // The others hear of it all the same: who drains several hosts switches them off next.
    std::fprintf(stderr, "ramspan ctl: %s: %s\n", servers.c_str(), added.message().c_str());
    all = false;
  }
  const auto note = [&all](const SocketPlace& place, const Status& done) {
    FlushOutput();
    if (!done.ok()) std::fprintf(stderr, "ramspan ctl: memory server %s: %s\n", place.text().c_str(), done.message().c_str());
    all = all && done.ok();
  };
  // All are told before one is waited for: who drains lends nothing to those who leave another one.
  std::vector<Told> told;
  for (const Target& target : targets) {
    const Result<Told> given = GiveWithOneOf(target, command.value());
    note(target.place, given.status());
    if (given.ok()) told.push_back(given.value());
  }
  if (!options.wait) told.clear();
  for (const Told& one : told) note(one.place, AwaitEnd(one.place, one.key, {.instance = one.instance}, Tell));
  return all ? 0 : 1;
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) {
  const ramspan::Result<ramspan::CtlOptions> options = ramspan::Parse(argc, argv);
  if (options.ok() && options.value().help) return ramspan::PrintHelp(std::cout), 0;
  const ramspan::Result<int> done = options.ok() ? ramspan::CommandAll(options.value()) : ramspan::Result<int>(options.status());
  if (const int error = ramspan::FlushOutput(); error != 0) {
    std::fprintf(stderr, "ramspan ctl: its output cannot be written: %s\n", std::strerror(error));
    return 1;
  }
  if (done.ok()) return done.value();
  std::fprintf(stderr, "ramspan ctl: %s\n", done.status().message().c_str());
  return ramspan::kUsageError;
}
