// sort_text INPUT OUTPUT: sorts the lines of a text file of any size as `LC_ALL=C sort` does, on MPI ranks with OpenMP
// threads, in as little memory as the limit allows. All that grows with the input lives in managedPtrs.
//
//   1. splitters: sampled lines cut the keys into one range a rank
//   2. runs: threads read pieces of this rank's part of the file, sort each, and keep it cut by the splitters
//   3. exchange: for each other rank, the pieces of all runs that belong to it are merged into one stream and sent
//   4. merge: this rank's own pieces and the streams it received are merged into its part of the output
#include <fcntl.h>
#include <omp.h>
#include <ramspan/mpi.h>
#include <ramspan/runtime.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "sorted_runs.h"

namespace {

int rank = 0, ranks = 1;
size_t run_bytes = 0;    // text and line index of one run in the making
constexpr size_t kReadBytes = 256 * 1024;  // what a thread reads at once, and so the longest line

[[noreturn]] void Fail(const std::string& what) { throw std::runtime_error(what); }

// One line on rank 0's stderr, at most five times a second.
class Progress {
 public:
  Progress(const char* phase, uint64_t total) : phase_(phase), total_(std::max<uint64_t>(total, 1)) {}
  ~Progress() { Show(true); }
  void Add(uint64_t bytes) {
    done_ += bytes;
    if (omp_get_thread_num() == 0) Show(false);
  }

 private:
  using Clock = std::chrono::steady_clock;
  void Show(bool last) {
    const auto now = Clock::now();
    if (rank != 0 || (!last && now - shown_ < std::chrono::milliseconds(tty_ ? 200 : 1000))) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    std::fprintf(stderr, "%ssort_text: %-9s %3.0f%%  %.0f MB/s%s", tty_ ? "\r" : "", phase_,
                 100.0 * static_cast<double>(done_) / static_cast<double>(total_),
                 static_cast<double>(done_) / 1e6 / std::max(seconds, 1e-3), tty_ && !last ? " " : "\n");
  }

  const char* const phase_;
  const uint64_t total_;
  const bool tty_ = isatty(2) != 0;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = begin_;
  std::atomic<uint64_t> done_{0};
};

// A file read from any thread.
class Input {
 public:
  explicit Input(const char* path) : fd_(open(path, O_RDONLY | O_CLOEXEC)) {
    struct stat info;
    if (fd_ < 0 || fstat(fd_, &info) != 0) Fail(std::string(path) + ": " + std::strerror(errno));
    size_ = static_cast<uint64_t>(info.st_size);
  }
  ~Input() { close(fd_); }
  uint64_t size() const { return size_; }

  size_t ReadAt(uint64_t offset, char* to, size_t bytes) const {
    size_t got = 0;
    while (got < bytes) {
      const ssize_t n = pread(fd_, to + got, bytes - got, static_cast<off_t>(offset + got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) Fail(std::string("reading the input: ") + std::strerror(errno));
      if (n == 0) break;
      got += static_cast<size_t>(n);
    }
    return got;
  }

  // The first line start at or after `offset`; size() when there is none.
  uint64_t LineStart(uint64_t offset) const {
    if (offset == 0 || offset >= size_) return std::min(offset, size_);
    char buffer[4096];
    for (uint64_t at = offset - 1; at < size_;) {
      const size_t n = ReadAt(at, buffer, sizeof buffer);
      if (const void* end = std::memchr(buffer, '\n', n)) {
        return at + static_cast<uint64_t>(static_cast<const char*>(end) - buffer) + 1;
      }
      at += n;
    }
    return size_;
  }

 private:
  int fd_;
  uint64_t size_ = 0;
};

// ranks - 1 lines (their first 256 bytes) that cut the sampled lines into equal shares; the same on all ranks.
std::vector<std::string> ChooseSplitters(const Input& input) {
  constexpr size_t kSamples = 2048, kKey = 256;
  std::vector<std::string> samples;
  if (rank == 0) {
    for (size_t i = 0; i < kSamples && ranks > 1; ++i) {
      const uint64_t at = input.LineStart(input.size() / kSamples * i);
      char key[kKey];
      const size_t n = input.ReadAt(at, key, kKey);
      samples.emplace_back(key, static_cast<size_t>(std::find(key, key + n, '\n') - key));
    }
    std::sort(samples.begin(), samples.end());
  }
  std::vector<std::string> splitters;
  for (int i = 1; i < ranks; ++i) {
    char key[kKey] = {};
    int size = 0;
    if (rank == 0) {
      const std::string& sample = samples[samples.size() * static_cast<size_t>(i) / static_cast<size_t>(ranks)];
      size = static_cast<int>(sample.copy(key, kKey));
    }
    MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(key, kKey, MPI_CHAR, 0, MPI_COMM_WORLD);
    splitters.emplace_back(key, static_cast<size_t>(size));
  }
  return splitters;
}

struct Line {
  uint32_t offset, size;
};

// Reads whole lines of [*at, end) until text and index reach run_bytes; returns the text's size.
size_t ReadPiece(const Input& input, uint64_t* at, uint64_t end, char* text, std::vector<char>* buffer, size_t* lines) {
  size_t used = 0;
  *lines = 0;
  while (*at < end && used + 1 < run_bytes) {
    const size_t room = std::min<size_t>({buffer->size(), run_bytes - used - 1, end - *at});
    const size_t n = input.ReadAt(*at, buffer->data(), room);
    size_t whole = 0, found = 0;
    bool full = false;  // the next line is for the next piece
    for (size_t i = 0; i < n; ++i) {
      if ((*buffer)[i] != '\n') continue;
      full = used + i + 1 + sizeof(Line) * (*lines + found + 1) > run_bytes && *lines + found > 0;
      if (full) break;
      whole = i + 1;
      ++found;
    }
    const bool last_line = whole == 0 && !full && *at + n == input.size() && n < buffer->size();
    if (last_line) whole = n;
    if (whole == 0 && *lines > 0) break;
    if (whole == 0) {
      Fail("a line is longer than " + std::to_string(room) + " bytes" +
           (room < kReadBytes ? "; raise the memory limit" : ", which is the most that sort_text takes"));
    }
    std::memcpy(text + used, buffer->data(), whole);
    used += whole;
    *lines += found;
    *at += whole;
    if (text[used - 1] != '\n') {  // the file's last line lacks it; sort adds it
      text[used++] = '\n';
      ++*lines;
    }
    if (used + sizeof(Line) * (*lines + 1) > run_bytes) break;
  }
  return used;
}

// Sorts a piece of text and appends its lines to the runs of the ranks that they belong to.
void SortPiece(const char* text, size_t bytes, size_t lines, const std::vector<std::string>& splitters,
               std::vector<Run>* runs) {
  managedPtr<Line> index(lines);
  adhereTo<Line> glue(index);
  Line* line = glue;
  size_t n = 0;
  for (size_t at = 0; at < bytes;) {
    const auto* end = static_cast<const char*>(std::memchr(text + at, '\n', bytes - at));
    const auto size = static_cast<size_t>(end - (text + at)) + 1;
    line[n++] = {static_cast<uint32_t>(at), static_cast<uint32_t>(size)};
    at += size;
  }
  const auto view = [text](const Line& l) { return std::string_view(text + l.offset, l.size); };
  std::sort(line, line + n, [&](const Line& a, const Line& b) { return Before(view(a), view(b)); });
  size_t owner = 0;
  for (size_t i = 0; i < n; ++i) {
    const std::string_view l = view(line[i]);
    while (owner < splitters.size() && l.substr(0, l.size() - 1) >= splitters[owner]) (*runs)[owner++].Close();
    (*runs)[owner].Append(l);
  }
  for (Run& run : *runs) run.Close();
}

using RunsByOwner = std::vector<std::vector<Run>>;  // [piece][rank]

RunsByOwner MakeRuns(const Input& input, const std::vector<std::string>& splitters) {
  const uint64_t share = input.size() / static_cast<uint64_t>(ranks);
  const uint64_t begin = input.LineStart(share * static_cast<uint64_t>(rank));
  const uint64_t end = rank + 1 == ranks ? input.size() : input.LineStart(share * static_cast<uint64_t>(rank + 1));
  Progress progress("sort", end - begin);
  RunsByOwner runs;
  uint64_t at = begin;
  std::mutex reading, adding;  // not critical regions: an exception that leaves one of those ends the program
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // the first one; none may leave the parallel region either
#pragma omp parallel
  try {
    std::vector<char> buffer(std::min(run_bytes, kReadBytes));
    while (!failed) {
      managedPtr<char> piece(run_bytes);
      adhereTo<char> glue(piece);
      char* text = glue;
      size_t bytes = 0, lines = 0;
      {
        const std::lock_guard<std::mutex> lock(reading);
        bytes = ReadPiece(input, &at, end, text, &buffer, &lines);
      }
      if (bytes == 0) break;
      std::vector<Run> mine(static_cast<size_t>(ranks));
      SortPiece(text, bytes, lines, splitters, &mine);
      progress.Add(bytes);
      const std::lock_guard<std::mutex> lock(adding);
      runs.push_back(std::move(mine));
    }
  } catch (...) {
    if (!failed.exchange(true)) error = std::current_exception();
  }
  if (error) std::rethrow_exception(error);
  return runs;
}

// Sends this rank's lines for `to` and receives a sorted stream from `from`, in messages of whole lines.
void Exchange(RunsByOwner* runs, int to, int from, Run* received, Progress* progress) {
  std::vector<Run*> pieces;
  for (auto& piece : *runs) pieces.push_back(&piece[static_cast<size_t>(to)]);
  constexpr size_t kMessage = 256 * 1024;
  std::vector<char> out, in;
  bool peer_done = false;
  const auto swap_messages = [&](bool last) {
    int mine[2] = {static_cast<int>(out.size()), last}, theirs[2] = {0, 1};
    const int partner_from = peer_done ? MPI_PROC_NULL : from;
    MPI_Sendrecv(mine, 2, MPI_INT, to, 0, theirs, 2, MPI_INT, partner_from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    in.resize(static_cast<size_t>(theirs[0]));
    MPI_Sendrecv(out.data(), mine[0], MPI_CHAR, to, 1, in.data(), theirs[0], MPI_CHAR, partner_from, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    peer_done = peer_done || theirs[1] != 0;
    received->AppendAll({in.data(), in.size()});
    progress->Add(out.size());
    out.clear();
  };
  Merge(pieces, [&](std::string_view line) {
    if (!out.empty() && out.size() + line.size() > kMessage) swap_messages(false);
    out.insert(out.end(), line.begin(), line.end());
  });
  swap_messages(true);
  while (!peer_done) {  // nothing left to send: only receive
    int theirs[2];
    MPI_Recv(theirs, 2, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    in.resize(static_cast<size_t>(theirs[0]));
    MPI_Recv(in.data(), theirs[0], MPI_CHAR, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    peer_done = theirs[1] != 0;
    received->AppendAll({in.data(), in.size()});
  }
}

void WriteOutput(const char* path, const std::vector<Run*>& runs) {
  uint64_t bytes = 0, offset = 0;
  for (const Run* run : runs) bytes += run->bytes();
  MPI_Exscan(&bytes, &offset, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) offset = 0;
  const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) Fail(std::string(path) + ": " + std::strerror(errno));
  Progress progress("merge", bytes);
  std::vector<char> out;
  out.reserve(512 * 1024);
  const auto flush = [&] {
    for (size_t done = 0; done < out.size();) {
      const ssize_t n = pwrite(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
      if (n < 0) Fail(std::string(path) + ": " + std::strerror(errno));
      done += static_cast<size_t>(n);
    }
    offset += out.size();
    progress.Add(out.size());
    out.clear();
  };
  Merge(runs, [&](std::string_view line) {
    if (out.size() + line.size() > out.capacity()) flush();
    out.insert(out.end(), line.begin(), line.end());
  });
  flush();
  if (close(fd) != 0) Fail(std::string(path) + ": " + std::strerror(errno));
}

void Sort(const char* input_path, const char* output_path) {
  const Input input(input_path);
  if (rank == 0) {
    const int fd = open(output_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) Fail(std::string(output_path) + ": " + std::strerror(errno));
    close(fd);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const uint64_t limit = ramspan::MemoryLimit();
  const auto threads = static_cast<uint64_t>(omp_get_max_threads());
  run_bytes = std::min<uint64_t>(limit / (6 * threads), 1 << 30);  // text + index: twice that a thread, a third in all
  const uint64_t pieces = input.size() / static_cast<uint64_t>(ranks) / (run_bytes / 2) + 1;
  Run::block_bytes = std::clamp<uint64_t>(limit / 4 / (pieces + static_cast<uint64_t>(ranks)), 4096, 1 << 20);

  const std::vector<std::string> splitters = ChooseSplitters(input);
  RunsByOwner runs = MakeRuns(input, splitters);
  std::vector<Run> received(static_cast<size_t>(ranks));
  if (ranks > 1) {
    uint64_t leaving = 0;
    for (auto& piece : runs) {
      for (int r = 0; r < ranks; ++r) leaving += r == rank ? 0 : piece[static_cast<size_t>(r)].bytes();
    }
    Progress progress("exchange", leaving);
    for (int step = 1; step < ranks; ++step) {
      const int from = (rank - step + ranks) % ranks;
      Exchange(&runs, (rank + step) % ranks, from, &received[static_cast<size_t>(from)], &progress);
    }
  }
  std::vector<Run*> own;
  for (auto& piece : runs) own.push_back(&piece[static_cast<size_t>(rank)]);
  for (Run& run : received) own.push_back(&run);
  WriteOutput(output_path, own);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: sort_text INPUT OUTPUT\nSorts lines as `LC_ALL=C sort` does; memory: RAMSPAN_MEMORY.\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  try {
    Sort(argv[1], argv[2]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sort_text: rank %d: %s\n", rank, e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
