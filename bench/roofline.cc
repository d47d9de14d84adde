#include "bench/roofline.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "bench/report.h"
#include "common/non_temporal_copy.h"

namespace ramspan::bench {

Pages::Pages(size_t bytes, bool shared) : bytes_(bytes) {
  const int kind = (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_POPULATE;
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, -1, 0);
  if (pages == MAP_FAILED) throw std::runtime_error("no memory for the roofline's " + std::to_string(bytes) + " bytes");
  data_ = static_cast<char*>(pages);
  std::memset(data_, 1, bytes);
}

Pages::~Pages() { munmap(data_, bytes_); }

SharedRoofline::SharedRoofline(size_t chunk, size_t window_bytes, size_t frame_bytes)
    : chunk_(chunk),
      window_(std::max<size_t>(2, window_bytes / chunk) * chunk, true),
      frames_(std::max<size_t>(2, frame_bytes / chunk) * chunk, false) {
  for (size_t i = 0; i < frames_.bytes() / chunk_; ++i) held_.push_back(i % (window_.bytes() / chunk_));
}

void SharedRoofline::Visit(size_t index, bool write, PassTimes* times) {
  const size_t frame = next_frame_;
  next_frame_ = (next_frame_ + 1) % held_.size();
  char* const place = frames_.data() + frame * chunk_;
  const double begin = Now();
  if (write) NonTemporalCopy(window_.data() + held_[frame] * chunk_, place, chunk_);  // in memory for longest
  const double put = Now();
  std::memcpy(place, window_.data() + index * chunk_, chunk_);
  held_[frame] = index;
  const double got = Now();
  auto* elements = reinterpret_cast<uint64_t*>(place);
  if (write) {
    AddOne(elements, chunk_ / sizeof(uint64_t));
  } else {
    sink_ += Sum(elements, chunk_ / sizeof(uint64_t));
  }
  times->put += put - begin;
  times->get += got - put;
  times->compute += Now() - got;
  times->bytes += chunk_;
}

PassTimes SharedRoofline::Sweep(bool write) {
  PassTimes times;
  for (size_t i = 0; i < window_.bytes() / chunk_; ++i) Visit(i, write, &times);
  return times;
}

PassTimes SharedRoofline::Random(size_t count, std::mt19937_64* random, bool write) {
  PassTimes times;
  for (size_t i = 0; i < count; ++i) Visit((*random)() % (window_.bytes() / chunk_), write, &times);
  return times;
}

FileRoofline::FileRoofline(const std::string& directory, bool direct, size_t chunk, size_t bytes)
    : chunk_(chunk), bytes_(bytes / chunk * chunk), buffers_(kDepth * chunk, false) {
  const char* const tmpdir = std::getenv("TMPDIR");
  const std::string folder = !directory.empty() ? directory : tmpdir != nullptr && *tmpdir != '\0' ? tmpdir : "/tmp";
  fd_ = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
  if (fd_ < 0) throw std::runtime_error("cannot make a file in " + folder + ": " + std::strerror(errno));
  if (const int error = io_setup(kDepth, &context_); error != 0) {
    throw std::runtime_error(std::string("io_setup: ") + std::strerror(-error));
  }
  Transfer(true);  // the extents are written from here on
}

FileRoofline::~FileRoofline() {
  if (context_ != nullptr) io_destroy(context_);
  if (fd_ >= 0) close(fd_);
}

void FileRoofline::Start(int slot, size_t index, bool write) {
  char* const buffer = buffers_.data() + static_cast<size_t>(slot) * chunk_;
  (write ? io_prep_pwrite : io_prep_pread)(&controls_[slot], fd_, buffer, chunk_,
                                           static_cast<long long>(index * chunk_));
  controls_[slot].data = &controls_[slot];
  iocb* one = &controls_[slot];
  if (io_submit(context_, 1, &one) != 1) throw std::runtime_error("io_submit failed");
}

double FileRoofline::Transfer(bool write) {
  const size_t count = bytes_ / chunk_;
  const double begin = Now();
  size_t started = 0;
  for (; started < std::min<size_t>(kDepth, count); ++started) Start(static_cast<int>(started), started, write);
  for (size_t done = 0; done < count;) {
    io_event events[kDepth];
    const int n = Await(events);
    for (int i = 0; i < n; ++i) {
      ++done;
      const auto slot = static_cast<int>(static_cast<iocb*>(events[i].data) - controls_);
      if (started < count) Start(slot, started++, write);
    }
  }
  return Now() - begin;
}

int FileRoofline::Await(io_event* events) {
  const int n = io_getevents(context_, 1, kDepth, events, nullptr);
  if (n < 0 && n != -EINTR) throw std::runtime_error("io_getevents failed");
  for (int i = 0; i < n; ++i) {
    if (events[i].res != chunk_) throw std::runtime_error("a transfer of the roofline's file failed");
  }
  return std::max(n, 0);
}

double FileRoofline::Random(size_t count, std::mt19937_64* random, bool write) {
  const size_t chunks = bytes_ / chunk_;
  const double begin = Now();
  std::vector<int> free;  // buffers for writes; the last one is the read's
  for (int slot = 0; slot + 1 < kDepth; ++slot) free.push_back(slot);
  size_t under_way = 0;
  bool reads = false;
  const auto await = [&] {
    io_event events[kDepth];
    const int n = Await(events);
    for (int i = 0; i < n; ++i) {
      const auto slot = static_cast<int>(static_cast<iocb*>(events[i].data) - controls_);
      slot == kDepth - 1 ? void(reads = false) : free.push_back(slot);
    }
    under_way -= static_cast<size_t>(n);
  };
  for (size_t i = 0; i < count; ++i) {
    while (free.empty()) await();
    if (write) {
      Start(free.back(), (*random)() % chunks, true);
      free.pop_back();
      ++under_way;
    }
    Start(kDepth - 1, (*random)() % chunks, false);
    ++under_way;
    for (reads = true; reads;) await();
    AddOne(reinterpret_cast<uint64_t*>(buffers_.data() + (kDepth - 1) * chunk_), chunk_ / sizeof(uint64_t));
  }
  while (under_way > 0) await();
  return Now() - begin;
}

PassTimes FileRoofline::Sweep(bool write) {
  PassTimes times;
  times.bytes = bytes_;
  if (write) times.put = Transfer(true);
  times.get = Transfer(false);
  const double begin = Now();
  for (size_t i = 0; i < bytes_ / chunk_; ++i) {
    auto* elements = reinterpret_cast<uint64_t*>(buffers_.data() + i % kDepth * chunk_);
    if (write) {
      AddOne(elements, chunk_ / sizeof(uint64_t));
    } else {
      sink_ += Sum(elements, chunk_ / sizeof(uint64_t));
    }
  }
  times.compute = Now() - begin;
  return times;
}

TierRoofline::TierRoofline(const BenchOptions& o, size_t chunk) : data_(o.data) {
  if (o.servers == 0) {
    file_ = std::make_unique<FileRoofline>(o.directory, o.direct, chunk, o.data);
  } else {
    shared_ = std::make_unique<SharedRoofline>(chunk, o.data, std::min<uint64_t>(o.data / 4, uint64_t{128} << 20));
  }
}

PassTimes TierRoofline::InOrder(bool write) {
  PassTimes times = file_ ? file_->Sweep(write) : shared_->Sweep(write);
  const double share = static_cast<double>(data_) / static_cast<double>(times.bytes);
  return {data_, share * times.put, share * times.get, share * times.compute};
}

double TierRoofline::ReadAnywhere(size_t count) {
  return (file_ ? file_->Random(count, &random_, false) : shared_->Random(count, &random_, false).get) / static_cast<double>(count);
}

}  // namespace ramspan::bench
