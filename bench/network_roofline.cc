#include "bench/network_roofline.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "bench/process.h"
#include "bench/together.h"

namespace ramspan::bench {
namespace {

double MedianOf(const std::vector<RawRates>& all, double RawRates::* member) {
  std::vector<double> values;
  for (const RawRates& one : all) values.push_back(one.*member);
  return Median(std::move(values));
}

// Of what each client brings, and the mean of how long a read took those who have `measured`.
RawRates Sums(const RawRates& mine, int measured) {
  Together& together = Together::Get();
  return {.read_gb_s = together.Sum(mine.read_gb_s), .write_gb_s = together.Sum(mine.write_gb_s), .both_gb_s = together.Sum(mine.both_gb_s),
          .read_and_work_gb_s = together.Sum(mine.read_and_work_gb_s), .both_and_work_gb_s = together.Sum(mine.both_and_work_gb_s), .read_us = together.Sum(mine.read_us) / measured, .random_ops_s = together.Sum(mine.random_ops_s)};
}

}  // namespace

bool NetworkRoofline::IsThere() { return std::getenv(kRawScript) != nullptr; }

int NetworkRoofline::TakeDepth() {
  const Json remote = LibraryStats()["tiers"].value("remote", Json::object());
  const double in_flight = remote.value("in_flight_sum", 0.0), transfers = remote.value("ops_in", 0.0) + remote.value("ops_out", 0.0);
  const double sum = in_flight - in_flight_before_, count = transfers - transfers_before_;
  in_flight_before_ = in_flight;
  transfers_before_ = transfers;
  return std::max(2, static_cast<int>(std::lround(sum / std::max(1.0, count))));
}

void NetworkRoofline::Measure() {
  std::string text;
  depth_ = TakeDepth();
  Together& together = Together::Get();
  together.Wait();
  const bool of_all = std::getenv(kRawOfAll) != nullptr;
  if (of_all && together.number() != 0) return measured_.push_back(Sums({}, 1));
  const int status = RunForOutput({std::getenv(kRawScript), std::to_string(depth_)}, &text);
  Json found;
  std::istringstream lines(text);
  for (std::string line; found.empty() && std::getline(lines, line);) {
    found = Json::parse(line, nullptr, false);
    if (found.is_discarded() || !found.is_object()) found.clear();
  }
  if (status != 0 || found.empty()) throw std::runtime_error("the raw figures of the network could not be measured: " + text);
  const RawRates mine = {.read_gb_s = found["read_gb_s"], .write_gb_s = found["write_gb_s"], .both_gb_s = found["both_gb_s"], .read_and_work_gb_s = found["read_and_work_gb_s"],
                         .both_and_work_gb_s = found["both_and_work_gb_s"], .read_us = found["read_us"],
                         .random_ops_s = found["random_ops_s"]};
  measured_.push_back(Sums(mine, of_all ? 1 : together.clients()));
}

RawRates NetworkRoofline::Medians() const {
  return {.read_gb_s = MedianOf(measured_, &RawRates::read_gb_s), .write_gb_s = MedianOf(measured_, &RawRates::write_gb_s),
          .both_gb_s = MedianOf(measured_, &RawRates::both_gb_s), .read_and_work_gb_s = MedianOf(measured_, &RawRates::read_and_work_gb_s),
          .both_and_work_gb_s = MedianOf(measured_, &RawRates::both_and_work_gb_s), .read_us = MedianOf(measured_, &RawRates::read_us),
          .random_ops_s = MedianOf(measured_, &RawRates::random_ops_s)};
}

double NetworkRoofline::Seconds(const RawRates& rates, double bytes_in, double bytes_out) {
  const double both_ways = std::min(bytes_in, bytes_out);
  return 1e-9 * (2 * both_ways / rates.both_gb_s + (bytes_in - both_ways) / rates.read_gb_s + (bytes_out - both_ways) / rates.write_gb_s);
}

std::string NetworkText(const BenchOptions& o) {
  return o.transport + " over " + (o.hosts == 2 ? "two network namespaces" : "tcp loopback") + (o.wire_gbit_s > 0 ? " and a wire of " + Fixed(o.wire_gbit_s, 1) + " Gbit/s" : "") + ", " + std::to_string(o.servers) +
         (o.servers == 1 ? " server" : " servers") + (o.clients > 1 ? ", " + std::to_string(o.clients) + " clients, each with as much" : "");
}

void AddRawRates(const RawRates& rates, int depth, Json* result, std::vector<Row>* rows) {
  result->update({{"raw_read_gb_s", rates.read_gb_s}, {"raw_write_gb_s", rates.write_gb_s}, {"raw_both_gb_s", rates.both_gb_s}, {"raw_read_and_work_gb_s", rates.read_and_work_gb_s}, {"raw_both_and_work_gb_s", rates.both_and_work_gb_s},
                  {"raw_read_us", rates.read_us}, {"raw_random_ops_s", rates.random_ops_s}, {"raw_depth", depth}});
  rows->push_back({"raw network", Fixed(rates.both_gb_s, 2) + " GB/s", "both directions at once, " + std::to_string(depth) + " under way as in this run; read " + Fixed(rates.read_gb_s, 2) + ", write " +
                   Fixed(rates.write_gb_s, 2) + " GB/s; one read " + Fixed(rates.read_us, 1) + " us"});
}

}  // namespace ramspan::bench
