#include "launch/adviser.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>

#include "common/units.h"

namespace ramspan {
namespace {

// Time that all threads together waited, of the time that the process ran. Where it is less, not even a perfect program would be noticeably
// faster, and nobody should change code for it. Twice of it would already hide what a user feels.
constexpr double kWaitShareLeast = 0.05;

// Fewer transfers are the start of a program or its first pass, of which no habit can be told.
constexpr uint64_t kTransfersLeast = 100;

// Misses in no order, of all that was loaded. Measured: sweeps have up to 0.15, examples/irregular/hydro.cc with loops over seven vectors at once 0.36
// to 0.54; reads at random 0.87 (of 32 chunks) to 0.99 (of 512). Half of it would blame hydro, and no run has more than all.
constexpr double kScatteredLeast = 0.75;
// Half of the 64 KiB that blocks have where nothing is said. Where what is used at random is in the 8 KiB of access::random already and the rest in
// such blocks, the mean is below: measured 16 to 24 KiB in examples/irregular/pagerank.cc.
constexpr uint64_t kRandomChunkMost = 32 << 10;
// Times the data that came back from swap: each chunk once is a pass in some order of its own, where chunks may well be used as a whole.
constexpr double kTimesDataLeast = 2;

// Small transfers of a sweep. Measured with files past the page cache (32 MiB in a limit of 8, eight sweeps, three runs each): the program
// waited 0.43 to 0.66 s with chunks of 8 KiB, 0.31 to 0.37 with 16, 0.19 to 0.21 with 256.
constexpr uint64_t kSmallTransferMost = 16 << 10;
// Up to here larger ones may be faster. Measured (a newcomer's HPCG, a fourth of its data in memory, files; Xeon of family 6, model 207): 13.5 s with 64 KiB, 9.6 with 256 KiB, 7.5 with 1 MiB.
constexpr uint64_t kMiddlingChunkMost = 128 << 10, kRandomAccessChunkMost = 12 << 10;
constexpr uint64_t kLargeChunk = 1 << 20, kChunksInMemory = 128;
// "Thousands": fewer cost less than a second on any swap that takes 0.1 ms for each.
constexpr uint64_t kSmallTransfersLeast = 10'000;
// Of what is loaded, so much comes in order where the chunks may be larger: a quarter of jumps would already move more with them.
constexpr double kInOrderLeast = 0.75;

// Of the chunks that left memory, those that were taken for changed and were not. Measured in examples/: at most 0.01 where const is said wherever it
// can be, 0.34 to 0.45 in hydro.cc, which takes views for writing of all that it reads. Loops may write what was there by chance (zeros).
constexpr double kUnchangedLeast = 0.1;
// Where a checksum has saved all of the writes little is lost: a newcomer's LULESH wrote zeros over zeros in 8 to 19 % of what left, and was told to say const in loops that did.
constexpr double kUnchangedUnwrittenLeast = 0.3;

// Of all that was loaded, what was fetched ahead for nobody. The policies stop by themselves after some failures: cyclic has 0.05 where
// everything is read at random (measured), and that costs nearly nothing.
constexpr double kInVainLeast = 0.1;

// Times the data, where the program does hardly anything but wait. A loop over the columns of a matrix that is stored by rows reads all of it for each of them, in an
// order that is foreseen: a newcomer's program read 20 times its data, and was told nothing.
constexpr double kManyTimes = 10, kMostlyWaits = 0.5;

// What an access by x[i] to what is in memory costs at least, beside a view's, of the time that the process ran. Measured (Xeon of family 6, model 207): in order 2.9 ns an element by
// x[i] and 0.8 by a view, at random in 32 MiB 17 to 20 and 7 to 8. A tenth of the time is what one would notice.
constexpr double kElementNs = 2, kElementShareLeast = 0.1;

// How much more than the limit everything needs, where raising it is worth a try: a quarter more can be asked of most machines and batch
// queues, twice as much often cannot.
constexpr double kWithinReach = 1.25;
// What came back, in times of what had no room: one is a single pass over it, which would be the same with any limit.
constexpr uint64_t kTimesExcess = 2;
// Beside the data and the descriptors the library keeps some room for its tables: measured 0.1 MiB with a limit of 9 MiB, less than 1.2 with 66.
constexpr uint64_t kMarginPart = 32, kMarginLeast = 256 << 10;

// Of all that left, what went to files although servers were there. The first chunks may go there before the first lease is granted.
constexpr double kFilesLeast = 0.1;
// Servers lend in pieces, of which some are not full: a quarter more than the data.
constexpr uint64_t kServerMarginPart = 4;

// Descriptors' part of the limit (1/8), which is missing for data; the second is what they and tables take with few chunks, too.
constexpr uint64_t kDescriptorPart = 8, kDescriptorsLeast = 1 << 20;

// Beside the limit of an unmodified program: less is libraries, stacks and what any malloc keeps.
constexpr uint64_t kBesideLeast = 32 << 20;
constexpr uint64_t kBesidePart = 4;  // of the limit
constexpr uint64_t kLeastPagesAbove = 4 << 10;  // bytes: a page
constexpr double kCrampedLeast = 0.1, kFaultShareLeast = 0.3;
constexpr uint64_t kPageDescriptorPart = 20;  // 4 KiB have one of 200 bytes
constexpr uint64_t kUnitOfPages = 64 << 10;    // that adapt
constexpr uint64_t kSmallestPageBlock = 4 << 10, kLargestPageBlock = 2 << 20, kBlocksInLimit = 32;  // with fewer of them there is no room for read-ahead

struct Found {
  Advice advice;
  double weight;  // among processes
};
using Maybe = std::optional<Found>;

// Of all processes of the job.
struct JobTotals {
  uint64_t data = 0;
};

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
double Share(uint64_t part, uint64_t whole) { return Ratio(static_cast<double>(part), static_cast<double>(whole)); }

std::string Fixed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}
std::string Percent(double share) { return Fixed(share < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * share); }
std::string Times(double times) { return Fixed(times < 9.95 ? "%.1f times" : "%.0f times", times); }
std::string SecondsText(uint64_t us) { return Fixed("%.2f s", static_cast<double>(us) / 1e6); }

// Whole MiB upwards, as an option takes it.
std::string SizeArgument(uint64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + "MiB"; }

// What a page fault costs beside its transfer and its wait, in processor time. Measured (newcomers' programs, Xeon of family 6, model 207): 20 to 30 us for blocks of 4 KiB, half of it the kernel's.
constexpr uint64_t kFaultUs = 20;
double WaitShare(const ProcessStatistics& s) { return Ratio(static_cast<double>(s.waits_us + s.page_faults * kFaultUs) / 1e6, s.seconds); }
std::string WaitText(const ProcessStatistics& s) {
  return "The program waited for swap for " + SecondsText(s.waits_us) + " (all threads together)" +
         (s.page_faults > 0 ? ", and " + std::to_string(s.page_faults) + " page faults took about " + SecondsText(s.page_faults * kFaultUs) + " beside that" : "") + ", in a run of " + Fixed("%.2f s", s.seconds) + ".";
}

uint64_t Loads(const ProcessStatistics& s) { return s.misses + s.prefetch_issued; }
uint64_t MeanLoad(const ProcessStatistics& s) {
  const TierFigures moved = s.Moved();
  return moved.ops_in == 0 ? 0 : moved.bytes_in / moved.ops_in;
}

// What a limit must be so that nothing has to leave.
uint64_t NeededLimit(const ProcessStatistics& s) {
  const uint64_t needed = s.data_frames + s.metadata - std::min(s.metadata, s.metadata_beside_limit);
  return needed + std::max(needed / kMarginPart, kMarginLeast);
}

// Of a program that may be somebody else's.
std::string PagesChange(const ProcessStatistics& s, uint64_t block) {
  if (block == s.page_block) return "A higher limit (--memory): blocks of pages are of " + FormatBytes(s.page_block) + " already, the largest that there are.";
  return "Blocks of pages of another size: ramspan run --pages --page-block " + (block < 1 << 20 ? std::to_string(block >> 10) + "KiB" : SizeArgument(block)) +
         " (RAMSPAN_PAGE_BLOCK); they are " + (s.pages_adapt ? "of several sizes, by their use" : FormatBytes(s.page_block)) + " now." +
         (s.pages_adapt ? "" : " Or none that is named, so that sizes adapt to their use: a few steps of each tell.") + " Or a higher limit (--memory).";
}

Maybe PinsFillLimit(const ProcessStatistics& s, const JobTotals&) {
  const double waited = static_cast<double>(s.pin_waits_us) / 1e6;
  if (s.pin_refusals == 0 && Ratio(waited, s.seconds) < kWaitShareLeast) return {};
  std::string evidence;
  if (s.pin_waits > 0) {
    evidence = std::to_string(s.pin_waits) + " times a thread waited until adhereTos of other threads had ended, together for " + SecondsText(s.pin_waits_us) +
               " in a run of " + Fixed("%.2f s", s.seconds) + ". ";
  }
  if (s.pin_refusals > 0) evidence += "Memory was refused (OutOfMemory) as often as " + std::to_string(s.pin_refusals) + " times, because no wait would have ended. ";
  evidence += "All of the memory limit of " + FormatBytes(s.budget) + " was pinned then";
  const uint64_t chunk = MeanLoad(s);
  evidence += chunk == 0 ? "." : ", which has room for about " + std::to_string(s.budget / chunk) + " chunks of " + FormatBytes(chunk) + ", their mean size.";
  return Found{{Advice::Kind::kPinsFillLimit, "AdhereTos hold so much at a time that threads wait for each other, or are refused.", evidence,
                "Make chunks smaller, let each adhereTo end as soon as its chunk is not needed any more (a smaller { scope }), let fewer threads hold chunks at "
                "a time (OMP_NUM_THREADS), or raise the limit (ramspan run --memory, RAMSPAN_MEMORY)."},
               waited + static_cast<double>(s.pin_refusals)};
}

Maybe LimitJustUnder(const ProcessStatistics& s, const JobTotals&) {
  const uint64_t needed = NeededLimit(s), in = s.Moved().bytes_in;
  if (s.budget == 0 || needed <= s.budget || Share(needed, s.budget) > kWithinReach) return {};
  // At least a margin's worth: where hardly more than that is missing, the little that came back costs nothing.
  const uint64_t excess = std::max(needed - s.budget, needed / kMarginPart);
  if (in < kTimesExcess * excess) return {};
  return Found{{Advice::Kind::kLimitJustUnder, "The memory limit is just under what would hold everything.",
                "The data was at most " + FormatBytes(s.data) + ", the limit " + FormatBytes(s.budget) + ". For what had no room, " + FormatBytes(in) +
                    " came back from swap. " + WaitText(s),
                "Raise the limit: ramspan run --memory " + SizeArgument(needed) + " (or RAMSPAN_MEMORY=" + SizeArgument(needed) +
                    ") holds all the data of such a run, with the descriptors of its chunks, and nothing has to leave."},
               static_cast<double>(needed)};
}

Maybe ForgottenConst(const ProcessStatistics& s, const JobTotals&) {
  if (s.page_block > 0) return {};  // a page that is only read counts as changed until its checksum is seen
  const uint64_t skipped = std::min(s.unchanged_writes, s.unchanged_skipped);
  if (s.evictions < kTransfersLeast || Share(s.unchanged_writes, s.evictions) < (skipped == s.unchanged_writes ? kUnchangedUnwrittenLeast : kUnchangedLeast)) return {};
  std::string evidence = "Of " + std::to_string(s.evictions) + " chunks that left memory, " + std::to_string(s.unchanged_writes) + " (" +
                         FormatBytes(s.unchanged_bytes) + ") were taken for changed although swap held the same bytes already. ";
  if (skipped > 0) evidence += "A checksum of all bytes, which takes time, too, told so before they were written for " + std::to_string(skipped) + " of them. ";
  if (skipped < s.unchanged_writes) evidence += std::to_string(s.unchanged_writes - skipped) + " were written once more.";
  return Found{{Advice::Kind::kForgottenConst, "Data that is not changed is taken for changed: it is only read and pulled as T* instead of const T*, or loops write what was there before.",
                evidence,
                "Where loops write what was there (zeros), nothing is wrong. Else say where data is only read: const adhereTo<T> glue(data); const T* x = glue; or data.read() of a managedPtr, x.cview() or std::as_const(x) of "
                "a managedVector. RAMSPAN_DEBUG=1 tells of which size the objects are."},
               static_cast<double>(s.unchanged_bytes)};
}

bool IsScattered(const ProcessStatistics& s) { return Share(s.misses - std::min(s.misses, *s.misses_in_order), Loads(s)) >= kScatteredLeast; }

Maybe ChunksTooLarge(const ProcessStatistics& s, const JobTotals&) {
  if (!s.misses_in_order || s.misses < kTransfersLeast || WaitShare(s) < kWaitShareLeast) return {};
  const uint64_t scattered = s.misses - std::min(s.misses, *s.misses_in_order), chunk = MeanLoad(s), in = s.Moved().bytes_in;
  if (!IsScattered(s) || chunk <= kRandomChunkMost || Share(in, s.data) < kTimesDataLeast) return {};
  // Many arrays in turns (a mesh) look as if they had no order, too, and by small blocks take several times as long: pages that adapt know better, where their descriptors have room; and of fixed ones
  // only a program that does little but wait is to try others.
  if (s.page_block > 0 && (s.pages_adapt ? Share(s.pages_cramped, s.page_faults) < kCrampedLeast || s.data / kPageDescriptorPart > s.budget / 2 : WaitShare(s) < kMostlyWaits)) return {};
  return Found{{Advice::Kind::kChunksTooLarge, "The chunks are large for data that is used in no order.",
                FormatBytes(in) + " came back from swap, " + Times(Share(in, s.data)) + " the data (" + FormatBytes(s.data) + "), in pieces of " +
                    FormatBytes(chunk) + " on average. Of " + std::to_string(Loads(s)) + " loads, " + std::to_string(scattered) +
                    " followed no order by which they could have been fetched ahead. " + WaitText(s),
                s.pages_adapt    ? PagesChange(s, kSmallestPageBlock) + " Where pages were wanted, there was no room for their descriptors in so small a limit: " + std::to_string(s.pages_cramped) + " larger blocks came instead." :
                s.page_block > 0 ? PagesChange(s, s.page_block / 4) :
                "Where a use needs only a few elements of a chunk, make chunks smaller: managedVector<T> x(n, ramspan::VectorOptions{0, "
                "ramspan::access::random}) has blocks of 8 KiB, managedArray<T> x(n, ramspan::ChunkBytes{8 << 10}) likewise. Where each use needs all of its "
                "chunk, the size is right: sort the uses so that they follow the order of the chunks. Where each step goes through all of the data and its "
                "neighbours (a mesh), smaller chunks are slower, and larger ones, ChunkBytes{256 << 10}, may be faster: a few steps of each tell."},
               static_cast<double>(in)};
}

Maybe ChunksTooSmall(const ProcessStatistics& s, const JobTotals&) {
  const uint64_t transfers = s.Moved().ops_in, chunk = MeanLoad(s);
  // By pages a sweep gains up to the largest ones, which move as one huge page.
  const uint64_t larger = s.page_block == 0 ? 0 : std::min(kLargestPageBlock, std::bit_floor(s.budget / kBlocksInLimit));
  const bool small = s.page_block == 0 ? transfers >= kSmallTransfersLeast && chunk <= kSmallTransferMost : transfers >= kTransfersLeast && larger >= 4 * s.page_block;
  if (s.pages_adapt || !s.misses_in_order || WaitShare(s) < kWaitShareLeast) return {};
  // Each costs a fault, also where no order is seen.
  if (s.page_block > 0 && s.page_block < kUnitOfPages && Ratio(static_cast<double>(s.page_faults * kFaultUs) / 1e6, s.seconds) >= kFaultShareLeast) {
    return Found{{Advice::Kind::kChunksTooSmall, "The blocks of pages are small, and the program spends its time on their faults.", WaitText(s),
                  "Leave --page-block (RAMSPAN_PAGE_BLOCK) out: sizes that adapt are as small where the program jumps about, and larger elsewhere. It is " + FormatBytes(s.page_block) + " now; a few steps of each tell."},
                 static_cast<double>(transfers)};
  }
  if (!small) return {};
  if (Share(std::min(s.misses, *s.misses_in_order) + s.prefetch_hits, Loads(s)) < kInOrderLeast) return {};
  return Found{{Advice::Kind::kChunksTooSmall, "The chunks are small for data that is used in order.",
                std::to_string(transfers) + " transfers from swap moved " + FormatBytes(chunk) +
                    " each on average, one after the other in an order that was foreseen. " + WaitText(s),
                s.page_block > 0 ? PagesChange(s, larger) :
                "Where elements that are used one after the other can be in one chunk, make chunks of 64 KiB to 1 MiB: managedVector<T> x(n) has blocks of "
                "64 KiB, managedArray<T> x(n) chunks of 1 MiB; a managedPtr<T> takes as many "
                "elements as are used together."},
               static_cast<double>(transfers)};
}

Maybe ReadAheadInVain(const ProcessStatistics& s, const JobTotals&) {
  if (s.prefetch_issued < kTransfersLeast || s.prefetch_wasted <= s.prefetch_hits || Share(s.prefetch_wasted, Loads(s)) < kInVainLeast) return {};
  return Found{{Advice::Kind::kReadAheadInVain, "Most of what is fetched ahead is not used.",
                "Of " + std::to_string(s.prefetch_issued) + " chunks that were fetched ahead, " + std::to_string(s.prefetch_hits) + " were used and " +
                    std::to_string(s.prefetch_wasted) + " left again unused; beside them " + std::to_string(s.misses) + " were loaded when they were needed.",
                "Switch it off: RAMSPAN_PREEMPTIVE=false, or in the program ramspan::SetPreemptive(false, true) before the part that uses its data in no order. "
                "For a managedVector that is used so, ramspan::VectorOptions{0, ramspan::access::random}."},
               static_cast<double>(s.prefetch_wasted)};
}

Maybe ReadManyTimes(const ProcessStatistics& s, const JobTotals&) {
  const uint64_t in = s.Moved().bytes_in;
  if (!s.misses_in_order || WaitShare(s) < kMostlyWaits || Share(in, s.data) < kManyTimes) return {};
  if (IsScattered(s)) return {};
  return Found{{Advice::Kind::kReadManyTimes, "The data came back from swap again and again, and the program did little but wait for it.",
                FormatBytes(in) + " came back from swap, " + Times(Share(in, s.data)) + " the data (" + FormatBytes(s.data) + "). " + WaitText(s),
                "Where the program goes through its data as often as that, only a higher limit (--memory) helps. Where it does not, its loops go across the data and use little of each piece before the next one "
                "comes, as by columns through a matrix that is stored by rows: let the inner loop run in the order in which the data is stored, or work by tiles."},
               static_cast<double>(in)};
}

Maybe ElementByElement(const ProcessStatistics& s, const JobTotals&) {
  const double seconds = static_cast<double>(s.element_accesses_most) * kElementNs / 1e9;
  if (Ratio(seconds, s.seconds) < kElementShareLeast) return {};
  return Found{{Advice::Kind::kElementByElement, "Loops access elements of vectors one by one, by x[i], which a view makes several times faster.",
                Fixed("%.3g", static_cast<double>(s.element_accesses)) + " accesses by x[i] or iterators of x. " + Fixed("%.3g", static_cast<double>(s.element_accesses_most)) +
                    " were one thread's (or several's, one after the other), which took about " + Fixed("%.2f s", seconds) + " more than those of a view, in a run of " + Fixed("%.2f s", s.seconds) + ".",
                "In the loops that run most, take a view before the loop, in its thread: auto v = x.view(); or, for reading, auto v = x.cview(); then v[i]. For several vectors "
                "at the same i ramspan::lockstep, for a small table that all iterations use std::as_const(x).span(0, n) (docs/porting.md, irregular programs)."},
               seconds};
}

Maybe ServersFull(const ProcessStatistics& s, const JobTotals& job) {
  const auto remote = s.tiers.find("remote"), files = s.tiers.find("file");
  if (remote == s.tiers.end() || files == s.tiers.end() || remote->second.servers == 0) return {};
  const uint64_t out = s.Moved().bytes_out, servers = remote->second.servers;
  if (Share(files->second.bytes_out, out) < kFilesLeast) return {};
  const std::string went = FormatBytes(files->second.bytes_out) + " of the " + FormatBytes(out) + " that left memory went to files. ";
  if (const uint64_t gone = servers - remote->second.servers_alive; gone > 0) {
    return Found{{Advice::Kind::kServersFull, "Files are used, because memory servers have gone.",
                  went + std::to_string(gone) + " of " + std::to_string(servers) + " memory servers were dead or being drained at the end.",
                  "See the log for when and why they went, and start others."},
                 static_cast<double>(files->second.bytes_out)};
  }
  const uint64_t each = (job.data + job.data / kServerMarginPart) / servers;
  return Found{{Advice::Kind::kServersFull, "Files are used beside the memory servers: they are full, or not asked in time.",
                went + "The number of servers was " + std::to_string(servers) + ".",
                "Where the servers lend less than the data, let them lend more: ramspan run --server-memory " + SizeArgument(each) + " with " + std::to_string(servers) +
                    (servers == 1 ? " server" : " servers") + " has room for all the data of this job (" + FormatBytes(job.data) +
                    "); or start more servers (-s), or ramspan server --memory. Where they lend more, their answers came late, because other programs have the cores: leave them some."},
               static_cast<double>(files->second.bytes_out)};
}

Maybe DescriptorsFillLimit(const ProcessStatistics& s, const JobTotals&) {
  const uint64_t within = s.metadata - std::min(s.metadata, s.metadata_beside_limit);
  if (s.evictions == 0 || within < kDescriptorsLeast || within < s.budget / kDescriptorPart) return {};
  // Larger ones are slower where pages are used in no order; and ones that adapt themselves are small for that.
  if (s.page_block > 0 && (s.pages_adapt || !s.misses_in_order || IsScattered(s))) return {};
  return Found{{Advice::Kind::kDescriptorsFillLimit, "There are so many chunks that their descriptors take a good part of the memory limit.",
                "Descriptors and tables took " + FormatBytes(within) + " of the limit of " + FormatBytes(s.budget) + " (" + Percent(Share(within, s.budget)) +
                    "), which is missing for data.",
                s.page_block > 0 ? PagesChange(s, std::min(kLargestPageBlock, 4 * s.page_block)) :
                "Make fewer and larger chunks: one managedPtr<T>(n) for many elements instead of one for each, or a managedVector<T>."},
               static_cast<double>(within)};
}

// At the end of the run: in the peak count files, and memory servers of this host, that are mapped.
Maybe BesideLimit(const ProcessStatistics& s, const JobTotals&) {
  if (s.pages_above == 0) return {};
  const uint64_t memory = s.anonymous_rss;
  if (memory < s.budget + std::max(kBesideLeast, s.budget / kBesidePart)) return {};
  const bool takes_all = s.pages_above <= kLeastPagesAbove;
  return Found{{Advice::Kind::kBesideLimit, "The process had much memory beside the limit, which --pages leaves to malloc.",
                "It had " + FormatBytes(memory) + " at its end, and the limit of " + FormatBytes(s.budget) + " is that of allocations of at least " + FormatBytes(s.pages_above) + ". The rest is in smaller ones, stacks and libraries.",
                takes_all ? "Leave room for them beside the limit: --pages takes allocations of " + FormatBytes(s.pages_above) + " already, and no smaller ones." :
                "Let it take smaller ones: ramspan run --pages --pages-above 4KiB --page-block 4KiB (or somewhat larger ones of both); or leave room for them beside the limit."},
               static_cast<double>(memory)};
}

// In the order of Kind.
constexpr std::array kAdvisers = {PinsFillLimit, LimitJustUnder, ForgottenConst, ChunksTooLarge, ChunksTooSmall, ReadAheadInVain, ReadManyTimes, ElementByElement, ServersFull, DescriptorsFillLimit, BesideLimit};

std::string NameOf(const ProcessStatistics& s, size_t index) {
  return s.rank >= 0 ? "rank " + std::to_string(s.rank) : "process " + std::to_string(index + 1);
}

// Files that answer faster are in the page cache: servers, too, take as long.
constexpr double kDiskUs = 80;

// Of which memory holds some tens for each of several arrays. Not where chunks are as small as for random access (VectorOptions): that was chosen.
std::string LargerChunks(const ProcessStatistics& s) {
  const uint64_t chunk = MeanLoad(s), larger = std::min(kLargeChunk, std::bit_floor(s.budget / kChunksInMemory));
  if (s.page_block > 0 || (s.misses_in_order && IsScattered(s)) || chunk <= kRandomAccessChunkMost || chunk > kMiddlingChunkMost || larger < 2 * chunk) return "";
  const std::string size = "{" + std::to_string(larger >> 10) + " << 10}";
  return " The chunks had " + FormatBytes(chunk) + " on average: where loops go through the data in order, larger ones (ramspan::VectorOptions" + size + ", ramspan::ChunkBytes" + size +
         ") may take half of that time; a few steps tell.";
}

// What is said where there is no advice.
std::string NoAdvice(const std::vector<ProcessStatistics>& job) {
  const ProcessStatistics* worst = nullptr;
  uint64_t data = 0, moved = 0, to_files = 0;
  for (const ProcessStatistics& s : job) {
    if (worst == nullptr || WaitShare(s) > WaitShare(*worst)) worst = &s;
    data += s.data;
    moved += s.Moved().bytes_in + s.Moved().bytes_out;
    const auto files = s.tiers.find("file");
    to_files += files == s.tiers.end() ? 0 : files->second.bytes_out;
  }
  if (data == 0) return "Nothing: these statistics tell of no data.";
  if (moved == 0) return "Nothing: all of the data had room in memory.";
  const double share = WaitShare(*worst);
  if (share < kWaitShareLeast) return "Nothing: the program waited for swap for " + Percent(share) + " of its time, all threads together.";
  return "Nothing that the statistics could name. " + WaitText(*worst) + " The data was " + Times(Share(worst->data, worst->budget)) +
         " the memory limit: a higher one (--memory)" +
         (to_files > 0 && Ratio(static_cast<double>(worst->waits_us), static_cast<double>(worst->waits)) >= kDiskUs ? ", or memory servers instead of files," : "") + " would shorten that." +
         (worst->page_block > 0 && share >= kMostlyWaits ? " What is used here and there, some bytes at a time, is faster ported (managedVector with access::random: docs/porting.md, irregular programs)." : "") +
         LargerChunks(*worst);
}

constexpr size_t kLineWidth = 110;  // as the table with a few columns

// Words in lines, behind `first` in the first one and as many blanks in the others.
std::string Wrapped(const std::string& first, const std::string& words) {
  std::string text, line = first;
  bool begun = false;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    if (begun && line.size() + 1 + (end - at) > kLineWidth) {
      text += line + '\n';
      line.assign(first.size(), ' ');
      begun = false;
    }
    if (begun) line += ' ';
    line.append(words, at, end - at);
    begun = true;
    at = end + 1;
  }
  return text + line + '\n';
}

}  // namespace

std::vector<Advice> Advise(const std::vector<ProcessStatistics>& job) {
  JobTotals totals;
  for (const ProcessStatistics& s : job) totals.data += s.data;
  std::vector<Advice> advices;
  for (const auto adviser : kAdvisers) {
    Maybe heaviest;
    size_t of = 0, processes = 0;
    for (size_t i = 0; i < job.size(); ++i) {
      Maybe found = adviser(job[i], totals);
      if (!found) continue;
      ++processes;
      if (heaviest && heaviest->weight >= found->weight) continue;
      heaviest = std::move(found);
      of = i;
    }
    if (!heaviest) continue;
    if (job.size() > 1) {
      heaviest->advice.evidence += " (These are the numbers of " + NameOf(job[of], of) + "; the same holds for " + std::to_string(processes) + " of " +
                                   std::to_string(job.size()) + " processes.)";
    }
    advices.push_back(std::move(heaviest->advice));
  }
  return advices;
}

std::string AdviceText(const std::vector<ProcessStatistics>& job, const std::string& of) {
  std::string text = "What to change" + (of.empty() ? "" : " (" + of + ")") + "\n";
  const std::vector<Advice> advices = Advise(job);
  if (advices.empty()) return text + Wrapped("  ", NoAdvice(job));
  for (size_t i = 0; i < advices.size(); ++i) {
    text += Wrapped("  " + std::to_string(i + 1) + ". ", advices[i].finding);
    text += Wrapped("     Evidence: ", advices[i].evidence);
    text += Wrapped("     Change:   ", advices[i].change);
  }
  return text;
}

}  // namespace ramspan
