// Hosts: several hosts made of this machine, for what has to be measured between hosts (tests have tests/cluster/world.h, which says why).
// Each is a network namespace with a host name of its own, so that sockets of one do not reach the other's but through the network between
// them; files, memory and processes are shared (file systems that are mounted later are not). Two hosts are joined by one cable (a veth
// pair), more by a switch (a bridge).
//
// Nothing of it has a name in the system: a process for each host holds its namespaces and ends with its maker, however that
// ends, so nothing is left behind.
//
// Thread-safety: none; a process with one thread makes them. Ownership: of the holding processes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace ramspan::bench {

class Hosts {
 public:
  static constexpr int kMax = 16;

  // Nothing, and the reason with its remedy, where this user may not make namespaces. Who is not root becomes root of a user
  // namespace by this call. REQUIRES: 2 <= count <= kMax; this process has one thread.
  static std::optional<Hosts> Make(int count, std::string* why_not);
  ~Hosts();
  Hosts(Hosts&& other) noexcept : holders_(std::move(other.holders_)) { other.holders_.clear(); }
  Hosts& operator=(Hosts&& other) noexcept {
    holders_.swap(other.holders_);
    return *this;
  }

  // Numeric. It is the host's name, too, so that every program can resolve it without a file of names.
  static std::string Address(int host) { return "10.211.0." + std::to_string(host + 1); }
  // The words that make the command behind them run on this host.
  std::vector<std::string> Enter(int host) const;
  // Lets through no more than so many Gbit/s from each host from now on, as a network card would. False: this kernel or machine has no
  // `tc` with a token bucket filter.
  bool LimitWires(double gbit_s) const;
  // Takes the host's cable out and puts it in again. False: it could not be done.
  bool SetLink(int host, bool up) const;

 private:
  Hosts() = default;
  bool StartHolder(const std::string& name, std::string* why_not);
  bool JoinTwo() const;
  bool JoinBySwitch(int count) const;
  bool Configure(int host) const;
  bool WaitForLink(int host) const;
  bool Ip(size_t holder, const std::string& words) const { return Configured(holder, "ip", words); }
  bool Configured(size_t holder, const std::string& program, const std::string& words) const;

  std::vector<pid_t> holders_;  // by host; one more for a switch
};

}  // namespace ramspan::bench
