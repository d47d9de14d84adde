// ramspan-ctl (`ramspan ctl`): looks at memory servers that stand by themselves, and ends them. It has to know their secret.
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "common/meeting.h"
#include "common/secret.h"
#include "common/units.h"

namespace ramspan {
namespace {

namespace po = boost::program_options;

constexpr int kUsageError = 2;
constexpr std::chrono::seconds kAnswerMax{10};
constexpr std::chrono::seconds kLookEvery{1};
constexpr int kLooksWithoutProgress = 10;  // then the user is told what may be the reason, once

struct CtlOptions {
  std::string command, key_file;
  std::vector<std::string> servers;
  bool wait = false;
  bool help = false;
};

struct CommandName {
  const char* name;
  ServiceOrder order;
};
constexpr CommandName kCommands[] = {
    {"list", ServiceOrder::kList}, {"drain", ServiceOrder::kDrain}, {"undrain", ServiceOrder::kUndrain}, {"stop", ServiceOrder::kStop}};

po::options_description Description(CtlOptions& options) {
  po::options_description text("options");
  auto add = text.add_options();
  add("key-file", po::value(&options.key_file)->value_name("FILE"), "the servers' secret. Default: RAMSPAN_SERVER_KEY_FILE, else ~/.ramspan.key");
  add("wait", po::bool_switch(&options.wait), "drain: says how much is left, until the server has ended");
  add("help,h", po::bool_switch(&options.help), "this text");
  return text;
}

void PrintHelp(std::ostream& out) {
  CtlOptions options;
  out << "usage: ramspan ctl list|drain|undrain|stop [SERVER...] [options]\n\n"
         "SERVER is HOST:PORT or the PATH of a Unix socket, as in the key `servers`; several may be joined by commas. Without any:\n"
         "those of RAMSPAN_SERVERS.\n\n"
         "  list   what each server lends, and which clients hold how much of it\n"
         "  drain  the server lends nothing any more, its clients move what is there to other servers or files while they go on,\n"
         "         and when it holds nothing it ends. Nothing is lost: what has no other place stays where it is\n"
         "  undrain  a server that has not yet ended lends again\n"
         "  stop   ends the server at once. What lived only there is lost to clients of other hosts; all of them go on\n\n"
         "example:\n"
         "  ramspan ctl list node7:7117\n"
         "  ramspan ctl drain --wait node7:7117\n\n"
      << Description(options) << "\nExit status: 0; 1 when a server did not answer; 2 for a wrong line.\n";
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<CtlOptions> Parse(int argc, char** argv) {
  CtlOptions options;
  std::vector<std::string> words;
  try {
    po::variables_map values;
    const po::options_description known = Description(options);
    po::options_description all;
    all.add(known).add_options()("word", po::value(&words));
    po::positional_options_description positions;
    positions.add("word", -1);
    po::store(po::command_line_parser(argc, argv).options(all).positional(positions).style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return InvalidArgument(std::string(error.what()) + " (see ramspan ctl --help)");
  }
  if (options.help) return options;
  if (words.empty()) return InvalidArgument("say what to do: ramspan ctl list SERVER (see ramspan ctl --help)");
  options.command = words[0];
  options.servers.assign(words.begin() + 1, words.end());
  if (options.servers.empty()) options.servers = {Environment("RAMSPAN_SERVERS")};
  if (options.servers[0].empty()) return InvalidArgument("no server is named: ramspan ctl " + options.command + " HOST:PORT");
  if (options.wait && options.command != "drain") return InvalidArgument("--wait is for drain");
  if (options.key_file.empty()) options.key_file = Environment("RAMSPAN_SERVER_KEY_FILE");
  return options;
}

Result<ServiceOrder> OrderNamed(const std::string& name) {
  for (const CommandName& command : kCommands) {
    if (name == command.name) return command.order;
  }
  return InvalidArgument("there is no command \"" + name + "\": list, drain, undrain or stop (see ramspan ctl --help)");
}

void Print(const std::string& place, const std::vector<ServiceReport>& reports) {
  const ServiceReport& server = reports.back();
  std::printf("%s lends %s, of which %u client%s %s%s\n", place.c_str(), FormatBytes(server.lent_bytes).c_str(), server.clients,
              server.clients == 1 ? " holds" : "s hold", FormatBytes(server.held_bytes).c_str(), server.draining ? "; it drains" : "");
  for (const ServiceReport& one : reports) {
    if (!one.is_server) std::printf("  %-12s %s\n", FormatBytes(one.held_bytes).c_str(), one.label.c_str());
  }
}

// What it answers; its own report is the last.
Result<std::vector<ServiceReport>> Ask(const SocketPlace& place, const Secret& secret, ServiceOrder order) {
  Result<Meeting> met = Meeting::With(place, secret, kAnswerMax, Handshake::Role::kController);
  if (!met.ok()) return met.status();
  Meeting meeting = std::move(met).value();
  if (!meeting.link->Send({.kind = Frame::Kind::kOrder, .order = order})) return meeting.link->why_closed();
  std::vector<ServiceReport> reports;
  while (reports.empty() || !reports.back().is_server) {
    Frame frame;
    if (Status received = meeting.Receive(&frame, kAnswerMax); !received.ok()) return received;
    if (frame.kind != Frame::Kind::kReport) return FailedPrecondition("it answers with something else");
    reports.push_back(frame.report);
  }
  return reports;
}

Status Give(const SocketPlace& place, const Secret& secret, ServiceOrder order) {
  const Result<std::vector<ServiceReport>> answer = Ask(place, secret, order);
  if (!answer.ok()) return answer.status();
  const std::vector<ServiceReport>& reports = answer.value();
  if (order == ServiceOrder::kList) Print(place.text(), reports);
  if (order == ServiceOrder::kStop) std::printf("%s ends\n", place.text().c_str());
  if (order == ServiceOrder::kDrain) std::printf("%s drains: %s to go\n", place.text().c_str(), FormatBytes(reports.back().held_bytes).c_str());
  if (order == ServiceOrder::kUndrain) std::printf("%s lends again\n", place.text().c_str());
  return {};
}

// kFailedPrecondition: it lends again.
Status AwaitEnd(const SocketPlace& place, const Secret& secret) {
  const std::string name = place.text();
  uint64_t left = UINT64_MAX;
  for (int looks = 0;; std::this_thread::sleep_for(kLookEvery)) {
    const Result<std::vector<ServiceReport>> answer = Ask(place, secret, ServiceOrder::kList);
    if (!answer.ok()) {
      std::printf("%s has ended\n", name.c_str());
      return {};
    }
    const ServiceReport& server = answer.value().back();
    if (!server.draining) return FailedPrecondition("it drains no more: somebody told it to lend again");
    looks = server.held_bytes < left ? 0 : looks + 1;
    if (looks == 0) std::printf("%s drains: %s to go\n", name.c_str(), FormatBytes(server.held_bytes).c_str());
    if (looks == kLooksWithoutProgress) {
      std::printf("%s: nothing has moved for %d s. Its clients have no other place: start another server, let them swap to files "
                  "(swap = auto) or make room there; or `ramspan ctl undrain`\n", name.c_str(), kLooksWithoutProgress);
    }
    std::fflush(stdout);
    left = server.held_bytes;
  }
}

Result<int> CommandAll(const CtlOptions& options) {
  const Result<ServiceOrder> order = OrderNamed(options.command);
  if (!order.ok()) return order.status();
  std::string names;
  for (const std::string& one : options.servers) names += (names.empty() ? "" : ",") + one;
  const Result<std::vector<SocketPlace>> places = ParseSocketPlaces(names);
  if (!places.ok()) return places.status();
  const Result<std::string> file = options.key_file.empty() ? DefaultKeyFile() : Result<std::string>(options.key_file);
  if (!file.ok()) return file.status();
  const Result<Secret> secret = Secret::FromFile(file.value());
  if (!secret.ok()) return secret.status();
  int status = 0;
  for (const SocketPlace& place : places.value()) {
    Status done = Give(place, secret.value(), order.value());
    std::fflush(stdout);
    if (done.ok() && options.wait) done = AwaitEnd(place, secret.value());
    if (done.ok()) continue;
    std::fprintf(stderr, "ramspan ctl: memory server %s: %s\n", place.text().c_str(), done.message().c_str());
    status = 1;
  }
  return status;
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) {
  const ramspan::Result<ramspan::CtlOptions> options = ramspan::Parse(argc, argv);
  if (options.ok() && options.value().help) return ramspan::PrintHelp(std::cout), 0;
  const ramspan::Result<int> done = options.ok() ? ramspan::CommandAll(options.value()) : ramspan::Result<int>(options.status());
  if (done.ok()) return done.value();
  std::fprintf(stderr, "ramspan ctl: %s\n", done.status().message().c_str());
  return ramspan::kUsageError;
}
