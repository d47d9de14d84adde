#include "bench/raw.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "bench/passes.h"
#include "common/checksum.h"

namespace ramspan::bench {
namespace {

// Of each loop: long enough for a median on a shared machine when it is repeated between the sweeps of the library. Who measures little
// data wants to know whether it works.
double SecondsFor(const RawOptions& options) { return options.window >= (size_t{256} << 20) ? 0.25 : 0.05; }

double SecondsNow() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Loops {
 public:
  Loops(RawNetwork* network, const RawOptions& options) : network_(*network), options_(options), seconds_(SecondsFor(options)) {}

  // Bytes a second, in order. `writes` of each two transfers are writes, the first ones; both directions, or one.
  enum class Work { kNone, kOfAProgram };
  double Stream(int writes, Work work = Work::kNone) {
    uint64_t started = 0, ended = 0, worked = 0;
    int reads = 0;
    const double begin = SecondsNow();
    while (SecondsNow() - begin < seconds_) {
      while (started - ended < static_cast<uint64_t>(options_.depth)) {
        const bool is_write = static_cast<int>(started % 2) < writes;
        if (is_write && work == Work::kOfAProgram) sink_ += Checksum(network_.frames() + FrameOf(started), options_.chunk);
        Start(is_write, started);
        ++started;
      }
      ended += static_cast<uint64_t>(network_.Wait(&reads));
      for (; work == Work::kOfAProgram && worked < static_cast<uint64_t>(reads); ++worked) WorkOn(writes == 0 ? worked : 2 * worked + 1, writes > 0);
    }
    const double seconds = SecondsNow() - begin;
    const auto bytes = static_cast<double>(ended * options_.chunk);
    while (ended < started) ended += static_cast<uint64_t>(network_.Wait(&reads));
    return bytes / seconds;
  }

  double MedianReadSeconds() {
    std::vector<double> seconds;
    const double begin = SecondsNow();
    while (SecondsNow() - begin < seconds_) {
      const double one = SecondsNow();
      Start(false, random_());
      int reads = 0;
      network_.Wait(&reads);
      seconds.push_back(SecondsNow() - one);
    }
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2), seconds.end());
    return seconds[seconds.size() / 2];
  }

  // The chunk that leaves is on its way while the one that comes is read, and longer where the depth allows more than these two.
  double RandomPerSecond() {
    uint64_t done = 0;
    int under_way = 0;
    const int others_max = std::max(0, options_.depth - 2);
    const double begin = SecondsNow();
    while (SecondsNow() - begin < seconds_) {
      Start(true, random_());
      Start(false, random_());
      under_way += 2;
      for (int reads = 0; reads == 0 || under_way > others_max;) under_way -= network_.Wait(&reads);
      ++done;
    }
    const double seconds = SecondsNow() - begin;
    for (int reads = 0; under_way > 0;) under_way -= network_.Wait(&reads);
    return static_cast<double>(done) / seconds;
  }

 private:
  size_t FrameOf(uint64_t number) const { return number % (options_.frames / options_.chunk) * options_.chunk; }

  void WorkOn(uint64_t number, bool changes) {
    std::byte* const frame = network_.frames() + FrameOf(number);
    auto* const elements = reinterpret_cast<uint64_t*>(frame);
    sink_ += Checksum(frame, options_.chunk);
    if (changes) {
      AddOne(elements, options_.chunk / sizeof(uint64_t));
    } else {
      sink_ += Sum(elements, options_.chunk / sizeof(uint64_t));
    }
  }

  void Start(bool is_write, uint64_t number) {
    const size_t frame = FrameOf(number);
    const auto server = static_cast<uint32_t>(number % network_.servers());
    const size_t place = number / network_.servers() % (options_.window / options_.chunk) * options_.chunk;
    network_.Start(is_write, server, frame, place);
  }

  RawNetwork& network_;
  const RawOptions options_;
  const double seconds_;
  std::mt19937_64 random_{20240229};
  uint64_t sink_ = 0;
};

}  // namespace

RawRates MeasureRaw(RawNetwork* network, const RawOptions& options) {
  Loops loops(network, options);
  loops.MedianReadSeconds();  // connects, and warms up
  RawRates rates;
  rates.read_gb_s = loops.Stream(0) / 1e9;
  rates.write_gb_s = loops.Stream(2) / 1e9;
  rates.both_gb_s = loops.Stream(1) / 1e9;
  rates.read_and_work_gb_s = loops.Stream(0, Loops::Work::kOfAProgram) / 1e9;
  rates.both_and_work_gb_s = loops.Stream(1, Loops::Work::kOfAProgram) / 1e9;
  rates.read_us = loops.MedianReadSeconds() * 1e6;
  rates.random_ops_s = loops.RandomPerSecond();
  return rates;
}

void PrintRaw(const RawRates& rates) {
  std::printf("{\"read_gb_s\": %.4f, \"write_gb_s\": %.4f, \"both_gb_s\": %.4f, \"read_and_work_gb_s\": %.4f, \"both_and_work_gb_s\": %.4f, \"read_us\": %.3f, \"random_ops_s\": %.1f}\n",
              rates.read_gb_s, rates.write_gb_s, rates.both_gb_s, rates.read_and_work_gb_s, rates.both_and_work_gb_s, rates.read_us, rates.random_ops_s);
  std::fflush(stdout);
}

}  // namespace ramspan::bench
