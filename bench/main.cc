// ramspan-bench: measures this machine and the library, each case beside its roofline. `ramspan bench` runs it.
// A case that wants memory servers starts itself again under mpiexec, so one plain command measures the main case.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "bench/apps/apps.h"
#include "bench/late_libraries.h"
#include "bench/network_job.h"
#include "bench/options.h"
#include "bench/pages.h"
#include "bench/process.h"
#include "bench/rambrain.h"
#include "bench/together.h"
#include "common/units.h"

namespace ramspan::bench {
namespace {

namespace po = boost::program_options;

constexpr char kUsage[] =
    "usage: ramspan bench CASE [options]     (or: ramspan-bench CASE [options])\n\n"
    "  pin       an adhereTo on data in memory, against the raw pointer, in ns of thread CPU time\n"
    "  stream    sweeps over data larger than the limit, in GB/s and as a share of the roofline\n"
    "  random    read-modify-write of chunks in random order, read-ahead on and off\n"
    "  memory    bytes of metadata a chunk\n"
    "  compute   the program's own loops beside swapping, in ns of thread CPU time an element, against a plain array\n"
    "  small     objects of a few bytes: making, destroying and swapping a million of them\n"
    "  vector    a managedVector beside a std::vector in memory: loops, lookups, push_back, sort; under limits below its data beside the tier's raw speed\n"
    "  policy    [TRACE...]: policies against LRU and MIN (Belady) on patterns of access, or on a program's own (RAMSPAN_TRACE)\n"
    "  contention  many threads in one engine: misses, what they hold of locks, pins beside them, many chunks, many servers\n"
    "  apps      whole applications (matrix multiplication, FFT, stencils, ...) against themselves in core, over the memory limit\n"
    "  buddy     filling allocators from several threads: a lock a level, the library's, new, mimalloc, jemalloc\n"
    "  rambrain  the experiments of Rambrain's papers, each with its target; --plots DIR draws their figures\n"
    "  pages     memory that is swapped by pages: faults beside the raw transfer and a managedPtr's miss, sweeps, one run for each size of blocks\n"
    "  swap-targets  the same program and limit on Ramspan's tiers and on what else a user could take: the kernel's swap, mmap, STXXL, memory\n\n"
    "Each case measures its roofline (the same work by hand) in the same run. What the figures mean: docs/benchmarks.md\n\n"
    "  ramspan bench stream                                 remote memory: one memory server on this node\n"
    "  ramspan bench stream --mode read --limit 512MiB\n"
    "  ramspan bench stream --tier file --direct --dir /scratch\n"
    "  ramspan bench stream --threads 2 --busy 2            what a machine without a core to spare makes of it\n"
    "  ramspan bench stream --transport ofi --hosts 2       servers outside of the job, on another host, beside the raw network\n"
    "  ramspan bench vector --tier file --direct --lmr 50,25\n"
    "  ramspan bench policy --pattern sweep,zipf --limits 25,50\n"
    "  ramspan bench policy trace --limits 10,20            what policies would have moved for a program that ran with RAMSPAN_TRACE=trace\n"
    "  ramspan bench contention --experiment misses         1 to 64 threads that miss at once, and their locks\n"
    "  ramspan bench buddy --threads 1,2,8 --plots figures  the experiment of the report on the parallel buddy allocator\n"
    "  ramspan bench rambrain --plots figures               all experiments, some 3 minutes, swap files\n"
    "  ramspan bench rambrain --experiment decay --servers 1 --data 1GiB --limit 128MiB\n";

// The range of the library's memory limit, which would blame its own key (memory) for what --limit said.
constexpr uint64_t kLimitMin = uint64_t{1} << 20, kLimitMax = uint64_t{1} << 46;

struct Texts {
  std::string data, chunk, limit, server_memory, preemptive, threads, sizes;
};

uint64_t Bytes(const char* option, const std::string& text) {
  Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) throw po::error(std::string("--") + option + ": " + bytes.status().message());
  return bytes.value();
}

// Sums and small multiples of these do not wrap.
uint64_t BytesInRange(const char* option, const std::string& text) {
  const uint64_t bytes = Bytes(option, text);
  if (bytes > kLimitMax) throw po::error(std::string("--") + option + ": at most " + FormatBytes(kLimitMax));
  return bytes;
}

// At least 1: in BenchOptions 0 stands for a count that was not given. Read with its sign, because Boost makes of -1 the largest unsigned number.
template <typename T>
auto Count(const char* option, T* count) {
  using Signed = std::make_signed_t<T>;
  return po::value<Signed>()->value_name("N")->notifier([option, count](Signed n) {
    if (n < 1) throw po::error(std::string("--") + option + ": at least 1");
    *count = static_cast<T>(n);
  });
}

// What the user sees, and below it what a run of all experiments says to the processes that it starts.
po::options_description DescribeRambrain(BenchOptions* o) {
  po::options_description some("options of rambrain");
  auto add = some.add_options();
  add("experiment", po::value(&o->experiment)->value_name("NAME|all"), ExperimentsHelp().c_str());
  add("plots", po::value(&o->plots)->value_name("DIR"), "rambrain, policy, buddy: data, gnuplot scripts and SVG figures go there");
  add("quick", po::bool_switch(&o->quick), "some 15 s in all; says whether it works, not how fast it is");
  return some;
}

po::options_description DescribePolicy(BenchOptions* o) {
  po::options_description some("options of policy");
  auto add = some.add_options();
  add("pattern", po::value(&o->patterns)->value_name("NAME,..."), "what a program does; docs/benchmarks.md lists them (all, but with a TRACE none)");
  add("policy", po::value(&o->policies)->value_name("NAME,..."), "values of the key memoryManager (all)");
  add("limits", po::value(&o->limits)->value_name("N,..."), "memory limits, in percent of the data (5,10,25,50,75,90)");
  add("bare", po::bool_switch(&o->bare), "without read-ahead and without the mover's reserve: who leaves, and nothing else");
  add("steady", po::bool_switch(&o->steady), "count the second half of each pattern only, when the policy has seen the first one");
  return some;
}

po::options_description DescribeSwapTargets(BenchOptions* o) {
  po::options_description some("options of swap-targets, and --lmr of vector (also --data 256MiB, --chunk 64KiB, --dir, --threads N: 1, 2, 4 ... N, --quick, --plots)");
  auto add = some.add_options();
  add("contestants", po::value(&o->contestants)->value_name("NAME,..."),
      "memory, shared, mpi, ofi, files-direct, files-buffered, tiers, pages-shared, pages-direct, kernel-file, kernel-zram, mmap, stxxl (all); as root it switches swap on for those of the kernel, and off again");
  add("access", po::value(&o->accesses)->value_name("NAME,..."), "sequential, random, read-mostly, mixed (all)");
  add("lmr", po::value(&o->lmr)->value_name("N,..."), "memory limits, in percent of the data (10,25,50,75,90,100; vector 50,25)");
  add("from", po::value(&o->traces)->value_name("FILE"), "run nothing: table, targets and figures of what --json has printed; several times for several files");
  return some;
}

po::options_description DescribeBuddy(BenchOptions* o, Texts* texts) {
  po::options_description some("options of buddy");
  auto add = some.add_options();
  add("sizes", po::value(&texts->sizes)->value_name("SIZE,..."), "of the allocators (8MiB,32MiB,128MiB); --threads may be several numbers, too (1,2,8)");
  add("touch", po::bool_switch(&o->touch), "write to each page of what was allocated");
  return some;
}

// Numbers of threads or sizes between commas.
template <typename T, typename Read>
std::vector<T> List(const std::string& text, const Read& read) {
  std::vector<T> all;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) all.push_back(static_cast<T>(read(word)));
  return all;
}

int ThreadCount(const std::string& text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > 1024) throw po::error("--threads: 1 to 1024");
  return n;
}

void CompleteBuddy(BenchOptions* o, const Texts& texts) {
  if (texts.chunk.empty()) o->chunk = 4 << 10;
  o->thread_counts = List<unsigned>(texts.threads.empty() ? "1,2,8" : texts.threads, ThreadCount);
  o->sizes = List<uint64_t>(texts.sizes.empty() ? "8MiB,32MiB,128MiB" : texts.sizes, [](const std::string& size) { return BytesInRange("sizes", size); });
  std::sort(o->sizes.begin(), o->sizes.end());
  // The library's limit is at least 1 MiB; a unit's number has 31 bits; a chunk of 16 units has to fit 32.
  if (o->sizes.empty() || o->sizes.front() < kLimitMin || o->sizes.back() / o->chunk > INT32_MAX) throw po::error("--sizes: 1MiB to 2^31 times --chunk");
  if (o->chunk > uint64_t{64} << 20 || o->sizes.front() < 16 * o->chunk) throw po::error("--sizes: at least 16 times --chunk, which is at most 64MiB");
}

po::options_description DescribeInternal(BenchOptions* o) {
  po::options_description some;
  some.add_options()("only", po::value(&o->only))("in-cgroup", po::value(&o->in_cgroup))("raw", po::value(&o->raw))("trace", po::value(&o->traces));
  return some;
}

po::options_description Describe(BenchOptions* o, Texts* texts, bool* no_checksum) {
  po::options_description all("options");
  auto add = all.add_options();
  add("help,h", "this text");
  add("json", po::bool_switch(&o->json), "JSON, one object a line, with the whole configuration");
  add("data", po::value(&texts->data)->value_name("SIZE"), "bytes of data (stream, random: 1GiB; rambrain, pages 256MiB; vector 128MiB; compute 64MiB)");
  add("chunk", po::value(&texts->chunk)->value_name("SIZE"),
      "bytes of a chunk (pages: of a block, adaptive, each of 4KiB to 256KiB, and 2MiB; stream 1MiB, random, rambrain, compute, vector 64KiB, memory, buddy 4KiB) or a small object (8B)");
  add("limit", po::value(&texts->limit)->value_name("SIZE"), "memory limit (a quarter of the data; memory 64MiB; vector has --lmr)");
  add("mode", po::value(&o->mode)->value_name("rmw|read"), "stream: read-modify-write, or read only");
  add("threads", po::value(&texts->threads)->value_name("N"), "stream: OpenMP threads, each with its own part of the data (1); compute, vector: of its parallel loops (all cores)");
  add("busy", po::value(&o->busy)->value_name("N"),
      "stream: each sweep a second time with N processes beside it that only compute; what that costs (0)");
  add("work", po::value(&o->work_us)->value_name("US"),
      "stream: computes so many us on each chunk; how many chunks are there when their pull comes (0)");
  add("sweeps", Count("sweeps", &o->repetitions), "sweeps or repetitions: the median is shown (5; pin 9)");
  add("ops", Count("ops", &o->operations), "operations of one repetition (random 8192, pin 2000000, vector 1000000 lookups, beyond memory a 128th of them)");
  add("chunks", Count("chunks", &o->chunks), "memory, small, contention: how many (100000, 1000000, 10000000)");
  add("tier", po::value(&o->tier)->value_name("auto|file"), "where chunks go: memory servers first, or files");
  add("direct", po::bool_switch(&o->direct), "files: O_DIRECT");
  add("dir", po::value(&o->directory)->value_name("DIR"), "directory of swap files ($TMPDIR, else /tmp)");
  add("no-checksum", po::bool_switch(no_checksum), "do not verify what comes back");
  add("preemptive", po::value(&texts->preemptive)->value_name("on|off"), "read-ahead (on; random: one run with each)");
  add("transport", po::value(&o->transport)->value_name("shared|mpi|ofi"),
      "stream, random: how servers are reached. shared: by load and store, on this node (the default). mpi: ranks of the job, by one-sided MPI over tcp; "
      "ofi: servers outside of it, by libfabric; both beside the raw network, measured in the same run");
  add("hosts", po::value(&o->hosts)->value_name("1|2"),
      "with --transport mpi or ofi: 2 puts the servers on another host, made of namespaces (root, or user namespaces); 1: through the loopback interface (1)");
  add("wire", po::value(&o->wire_gbit_s)->value_name("GBIT/S"),
      "with --hosts 2: what the cable between them lets through in each direction, as a network card would; without it the cores that copy are the limit");
  add("server-threads", Count("server-threads", &o->server_threads), "with --transport ofi: `ramspan server --threads N` (1)");
  add("clients", po::value(&o->clients)->value_name("N"), "with --transport mpi or ofi: so many processes at the same time, each with its own data; rates are their sums (1)");
  add("servers", po::value(&o->servers)->value_name("N"), "memory servers to start (1; 0 with --tier file and for rambrain)");
  add("server-memory", po::value(&texts->server_memory)->value_name("SIZE"), "of each (what the data needs)");
  return all;
}

void CompleteVector(BenchOptions* o, const po::variables_map& given) {
  if (given.count("limit") != 0) throw po::error("--limit: the limits of vector are --lmr");
  if (o->data < uint64_t{8} << 20 || o->data > uint64_t{16} << 30) throw po::error("--data: 8MiB to 16GiB");
  if (o->chunk > uint64_t{1} << 20) throw po::error("--chunk: at most 1MiB");
  o->limit = 5 * o->data + (uint64_t{64} << 20);  // the views of one thread hold a quarter: all of the data
  if (given.count("lmr") == 0) o->lmr = "50,25";
  if (o->repetitions == 0 && o->quick) o->repetitions = 3;
  if (o->operations == 0) o->operations = o->quick ? 100'000 : 1'000'000;
  o->threads = static_cast<int>(std::max(2u, std::thread::hardware_concurrency()));
}

// What depends on the case, and what cannot work.
void Complete(BenchOptions* o, const Texts& texts, const po::variables_map& given) {
  const bool small = o->name == "small", rambrain = o->name == "rambrain", compute = o->name == "compute";
  const bool buddy = o->name == "buddy", targets = o->name == "swap-targets", vector = o->name == "vector";
  const bool pages = o->name == "pages";
  const bool swaps = o->name == "stream" || o->name == "random" || rambrain || small || compute || targets || vector || pages;
  if (o->name == "random" || rambrain || compute || targets || vector || pages) o->chunk = 64 << 10;
  if (pages) o->data = uint64_t{o->quick ? 64u : 256u} << 20;
  if (vector) o->data = uint64_t{o->quick ? 16u : 128u} << 20;
  if (compute) o->data = uint64_t{64} << 20;
  if (rambrain) o->data = uint64_t{o->quick ? 64u : 256u} << 20;
  if (targets) o->data = uint64_t{o->quick ? 64u : 256u} << 20;
  if (o->name == "memory") o->chunk = 4 << 10;
  if (small) o->chunk = sizeof(uint64_t);
  if (!texts.data.empty()) o->data = BytesInRange("data", texts.data);
  o->adapts = o->name == "pages" && texts.chunk == "adaptive";
  if (o->adapts) o->chunk = 4096;
  if (!texts.chunk.empty() && !o->adapts) o->chunk = BytesInRange("chunk", texts.chunk);
  const bool contention = o->name == "contention";
  if (o->chunks == 0) o->chunks = small ? 1'000'000 : contention ? (o->quick ? 200'000 : 10'000'000) : 100'000;
  if (contention && (o->chunks < 20'000 || o->chunks > 100'000'000)) throw po::error("--chunks: 20000 to 100000000");
  if (o->name == "memory" || small) {
    if (o->chunk != 0 && o->chunks > kLimitMax / o->chunk) throw po::error("--chunks: at most " + FormatBytes(kLimitMax) + " together");
    o->data = o->chunks * o->chunk;
  }
  o->limit = small ? 4 * o->data + 32 * o->chunks + (uint64_t{16} << 20) : swaps ? o->data / 4 : uint64_t{64} << 20;
  if (!texts.limit.empty()) o->limit = Bytes("limit", texts.limit);
  if (vector) CompleteVector(o, given);
  if (o->repetitions == 0) o->repetitions = o->name == "pin" ? 9 : 5;
  if (o->operations == 0) o->operations = o->name == "pin" ? 2'000'000 : 8192;
  if (!swaps) o->tier = "file";
  if (given.count("servers") == 0) o->servers = swaps && !rambrain && !targets && o->tier == "auto" ? 1 : 0;
  if (o->servers < 0) throw po::error("--servers: at least 0");
  if (o->tier == "file" && o->servers > 0) throw po::error("--tier file does not use --servers");
  o->server_memory = o->servers == 0                 ? 0
                     : texts.server_memory.empty() ? (o->data + o->data / 2) * static_cast<uint64_t>(o->clients) / o->servers + (uint64_t{64} << 20)
                                                   : BytesInRange("server-memory", texts.server_memory);
  if (o->limit < kLimitMin || o->limit > kLimitMax) {
    throw po::error("--limit: " + FormatBytes(kLimitMin) + " to " + FormatBytes(kLimitMax) + " (by default " + (swaps && !small ? "a quarter of --data" : "what the case needs") + ")");
  }
  if (o->mode != "rmw" && o->mode != "read") throw po::error("--mode is rmw or read");
  if (given.count("mode") != 0 && o->name != "stream") throw po::error("--mode is stream's");
  if (o->tier != "auto" && o->tier != "file") throw po::error("--tier is auto or file");
  if (small && (o->chunk == 0 || o->chunk % 8 != 0)) throw po::error("--chunk: a multiple of 8 for small objects");
  if (!small && (o->chunk < 4096 || o->chunk % 4096 != 0)) throw po::error("--chunk: a multiple of 4KiB");
  if (swaps && o->data < 2 * o->chunk) throw po::error("--data: at least two chunks");
  if (rambrain && o->data < 16 * o->limit / 10) throw po::error("--data: at least 1.6 times the limit");
  if (rambrain && o->limit < uint64_t{8} << 20) throw po::error("--limit: at least 8MiB (a quarter of --data by default)");
  if (buddy) CompleteBuddy(o, texts);
  if (!buddy && !texts.threads.empty()) o->threads = ThreadCount(texts.threads);
  if (pages && ((o->chunk & (o->chunk - 1)) != 0 || o->chunk > uint64_t{2} << 20)) throw po::error("--chunk of pages: adaptive, or a power of two from 4KiB to 2MiB");
  if (o->busy < 0 || o->busy > 1024) throw po::error("--busy: 0 to 1024");
  if (o->threads > 1 && o->name != "stream" && !compute && !targets && !vector) throw po::error("--threads is for stream, compute, vector and swap-targets");
  if (o->busy > 0 && o->name != "stream") throw po::error("--busy is stream's");
  if (!(o->work_us >= 0 && o->work_us <= 1e6)) throw po::error("--work: 0 to 1000000 us");
  if (o->work_us > 0 && o->name != "stream") throw po::error("--work is stream's");
  if (swaps && o->data / o->chunk < static_cast<uint64_t>(o->threads)) throw po::error("--threads: a chunk for each at least");
  const bool network = o->transport == "mpi" || o->transport == "ofi";
  if (!network && o->transport != "shared") throw po::error("--transport is shared, mpi or ofi");
  if (network && o->name != "stream" && o->name != "random") throw po::error("--transport is for stream and random");
  if (network && o->servers < 1) throw po::error("--transport " + o->transport + " needs --servers");
  if (o->hosts != 1 && (o->hosts != 2 || !network)) throw po::error("--hosts is 1, or 2 with --transport mpi or ofi");
  if (given.count("wire") != 0 && (o->hosts != 2 || !(o->wire_gbit_s >= 0.1 && o->wire_gbit_s <= 1000))) throw po::error("--wire is 0.1 to 1000 Gbit/s, with --hosts 2");
  if (o->clients < 1 || o->clients > kClientsMax || (o->clients > 1 && !network)) {
    throw po::error("--clients is 1 to " + std::to_string(kClientsMax) + ", more than one with --transport mpi or ofi");
  }
  if (o->server_threads > 1 && o->transport != "ofi") throw po::error("--server-threads is for --transport ofi");
  const std::string& p = texts.preemptive;
  if (!p.empty() && p != "on" && p != "off") throw po::error("--preemptive is on or off");
  o->preemptive = p != "off";
}

std::string ServerPath(const std::string& self) {
  if (const std::string path = FindProgram("ramspan-memserver"); !path.empty()) return path;
  throw po::error("ramspan-memserver is neither near " + self + " nor in PATH; --servers 0 measures files");
}

// The job of one client and its servers, in MPICH's MPMD form.
std::vector<std::string> JobLine(const BenchOptions& o, const std::string& self, int argc, char** argv) {
  const std::string server = ServerPath(self);
  std::optional<std::string> mpiexec = FindInPath("mpiexec.hydra");
  if (!mpiexec) mpiexec = FindInPath("mpiexec.mpich");
  if (!mpiexec) throw po::error("mpiexec.hydra (MPICH) is not in PATH; --servers 0 measures files");
  std::vector<std::string> line = {*mpiexec, "-genv", "RAMSPAN_SERVERS", std::to_string(o.servers), "-n", "1", self};
  line.insert(line.end(), argv + 1, argv + argc);
  const std::vector<std::string> rest = {":", "-n", std::to_string(o.servers), "-env", "RAMSPAN_SERVER_MEMORY",
                                         std::to_string(o.server_memory), server};
  line.insert(line.end(), rest.begin(), rest.end());
  return line;
}

// One process a setting or experiment, because a process configures the library once. The worst exit status.
int RunEach(int argc, char** argv, const char* option, const std::vector<std::string>& values) {
  int worst = 0;
  for (const std::string& value : values) {
    std::vector<std::string> words(argv, argv + argc);
    words[0] = SelfPath();
    words.insert(words.end(), {std::string(option), value});
    worst = std::max(worst, RunToEnd(std::move(words)));
  }
  return worst;
}

// A program of its own, in the place of this one.
int RunContention(const BenchOptions& o) {
  std::vector<std::string> words = {FindProgram("ramspan-bench-contention"), o.experiment, o.quick ? "quick" : "full", o.json ? "json" : "table", std::to_string(o.chunks)};
  if (words[0].empty()) throw po::error("ramspan-bench-contention is neither near this program nor in PATH");
  std::vector<char*> line = Pointers(&words);
  execv(line[0], line.data());
  throw po::error("cannot run " + words[0] + ": " + std::strerror(errno));
}

int RunCase(const BenchOptions& o) try {
  if (o.name == "pin") return RunPin(o);
  if (o.name == "stream") return RunStream(o);
  if (o.name == "rambrain") return RunExperiment(o);
  if (o.name == "random") return RunRandom(o);
  if (o.name == "compute") return RunCompute(o);
  if (o.name == "vector") return RunVector(o);
  if (o.name == "policy") return RunPolicy(o);
  if (o.name == "pages") return RunPages(o);
  if (o.name == "swap-targets") return RunSwapTargets(o);
  if (o.name == "buddy") return RunBuddy(o);
  return o.name == "small" ? RunSmall(o) : RunMemory(o);
} catch (...) {
  Together::Get().Leave();
  throw;
}

int Main(int argc, char** argv) {
  BenchOptions options;
  Texts texts;
  bool no_checksum = false;
  po::options_description described = Describe(&options, &texts, &no_checksum), all;
  described.add(DescribeRambrain(&options)).add(DescribePolicy(&options)).add(DescribeBuddy(&options, &texts)).add(DescribeSwapTargets(&options));
  all.add(described).add(DescribeInternal(&options));
  const std::string name = argc > 1 ? argv[1] : "";
  const std::vector<std::string> cases = {"pin", "stream", "random", "memory", "small", "compute", "vector", "policy", "buddy", "contention", "apps", "rambrain", "pages", "swap-targets"};
  if (name == "apps") return RunApps(argc, argv);  // its options are its own
  const bool known = std::find(cases.begin(), cases.end(), name) != cases.end();
  po::variables_map given;
  po::positional_options_description files;
  if (name == "policy") files.add("trace", -1);
  if (known) po::store(po::command_line_parser(argc - 1, argv + 1).options(all).positional(files).run(), given);
  if (!known && !name.empty() && name[0] != '-') {
    std::string names;
    for (const std::string& one : cases) names += (names.empty() ? "" : ", ") + one;
    std::fprintf(stderr, "ramspan-bench: there is no case \"%s\"; the cases are %s (--help says more)\n", name.c_str(), names.c_str());
    return 2;
  }
  if (!known || given.count("help") != 0) {
    const bool help = known || name == "--help" || name == "-h";
    (help ? std::cout : std::cerr) << kUsage << "\n" << described;
    return help ? 0 : 2;
  }
  po::notify(given);
  options.name = name;
  options.checksum = !no_checksum;
  Complete(&options, texts, given);
  if (name == "buddy") MakeRoomForLateLibraries(argv);
  const std::string self = SelfPath();
  const bool in_job = std::getenv("PMI_RANK") != nullptr || std::getenv("PMI_FD") != nullptr;
  if (name == "random" && texts.preemptive.empty() && !in_job) return RunEach(argc, argv, "--preemptive", {"on", "off"});
  if (name == "pages" && texts.chunk.empty() && !in_job) return RunEach(argc, argv, "--chunk", {"adaptive", "4KiB", "16KiB", "64KiB", "256KiB", "2MiB"});
  if (name == "contention") return RunContention(options);
  if (name == "rambrain" && options.only.empty()) return RunEach(argc, argv, "--only", ChosenExperiments(options));
  if (!options.only.empty()) prctl(PR_SET_PDEATHSIG, SIGTERM);  // not to be left behind by the process that runs all
  if (options.only == "nbody" || options.only == "kernel") options.servers = 0;  // without swap; files and the kernel
  if (options.raw) return RunRawMpi(options);
  if (NeedsNetworkJob(options)) return RunNetworkJob(options, argc, argv);
  if (options.servers > 0 && !in_job && options.transport == "shared") {
    std::vector<std::string> words = JobLine(options, self, argc, argv);
    std::vector<char*> line = Pointers(&words);
    execv(line[0], line.data());
    throw po::error("cannot run " + words[0] + ": " + std::strerror(errno));
  }
  return RunCase(options);
}

}  // namespace
}  // namespace ramspan::bench

int main(int argc, char** argv) {
  try {
    return ramspan::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ramspan-bench: %s\n", e.what());
    return 1;
  }
}
