// Traces of programs: what a policy hears is written down, read again, and moves about the same when it is replayed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/policy_memory.h"
#include "bench/policy_trace_file.h"
#include "client/engine/engine.h"
#include "client/policy/trace_file.h"
#include "client/policy/trace_policy.h"
#include "tests/support/deaf_policy.h"
#include "tests/support/fake_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"

namespace ramspan {
namespace {

using bench::ParseTrace;
using bench::PolicyTrace;
using testing::HasSubstr;

// A file of its own, gone at the end.
class Traces : public testing::Test {
 protected:
  Traces() {
    char name[] = "/tmp/ramspan-trace-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Traces() override { std::filesystem::remove_all(path_); }
  std::string Path() const { return path_ + "/trace"; }
  std::vector<std::byte> Bytes() const {
    std::ifstream in(Path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
  }
  // Of such records, whether a program would write them or not.
  std::vector<std::byte> FileOf(const std::vector<TraceRecord>& records) {
    auto file = TraceFile::Create(Path()).value();
    for (const TraceRecord& record : records) file->Put(record);
    file.reset();
    return Bytes();
  }
  std::string Error(const std::vector<std::byte>& bytes) {
    try {
      ParseTrace(bytes, "T");
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  }

 private:
  std::string path_;
};

// Hears of who stays, as ReplayPolicy does, and counts.
struct CountsPinned final : DeafPolicy {
  CountsPinned(const ChunkTable* chunks, int* count) : DeafPolicy(chunks), count_(*count) {}
  void OnPinned(Chunk*) override { ++count_; }
  size_t PickVictims(uint64_t, std::span<Chunk*>) override { return 0; }

 private:
  int& count_;
};

// A traced program's policy found those that are pinned for long in front of each search.
TEST_F(Traces, ThePolicyThatIsTracedHearsOfWhoStays) {
  Budget budget(1 << 20);
  ChunkTable table(&budget);
  auto file = TraceFile::Create(Path()).value();
  int count = 0;
  TracePolicy policy(std::make_unique<CountsPinned>(&table, &count), &table, file.get());
  policy.OnPinned(table.New(64));
  EXPECT_EQ(count, 1);
}

std::vector<uint32_t> TouchedObjects(const PolicyTrace& trace) {
  std::vector<uint32_t> touched;
  for (const PolicyTrace::Event& event : trace.events) {
    if (event.kind == PolicyTrace::Kind::kTouch) touched.push_back(event.object);
  }
  return touched;
}

TEST_F(Traces, AnyRecordComesBackAsItWasPut) {
  std::mt19937_64 random(3);
  std::vector<TraceRecord> records;
  for (int i = 0; i < 5000; ++i) {
    const auto kind = static_cast<TraceKind>(random() % 6);
    const auto value = static_cast<uint32_t>(random() >> random() % 64);
    records.push_back({kind, value, kind == TraceKind::kCreate ? random() >> random() % 64 : 0});
  }
  const std::vector<std::byte> bytes = FileOf(records);
  trace_format::Ids ids;
  size_t at = trace_format::kHeaderBytes;
  for (const TraceRecord& put : records) {
    TraceRecord taken;
    size_t n = 0;
    ASSERT_EQ(trace_format::TakeRecord(std::span(bytes).subspan(at), &ids, &taken, &n), trace_format::Taken::kRecord);
    ASSERT_TRUE(taken.kind == put.kind && taken.value == put.value && taken.bytes == put.bytes);
    at += n;
  }
  EXPECT_EQ(at, bytes.size());
}

TEST_F(Traces, TouchesOfNeighboursTakeAByteEach) {
  std::vector<TraceRecord> records;
  for (uint32_t i = 0; i < 1000; ++i) records.push_back({TraceKind::kRead, i});
  EXPECT_LE(FileOf(records).size(), 1001 + trace_format::kHeaderBytes);
}

TEST_F(Traces, ATraceEndsAtItsLargestSizeWithAWholeRecordAndALine) {
  testing::internal::CaptureStderr();
  {
    auto file = TraceFile::Create(Path(), 100).value();
    file->Put({TraceKind::kCreate, 0, 4096});
    for (int i = 0; i < 500; ++i) file->Put({TraceKind::kRead, 0});
    file->WriteOut(true);
    file->WriteOut(true);
    file->Put({TraceKind::kRead, 0});
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("/trace (key trace, RAMSPAN_TRACE) stops here: it has reached its largest size"));
  EXPECT_EQ(said.find("stops here"), said.rfind("stops here")) << "once";
  EXPECT_LE(Bytes().size(), 100u);
  EXPECT_GT(ParseTrace(Bytes(), "T").touches(), 50u);
}

// What comes faster than anybody writes is the end of the trace, and not a hole in it.
TEST_F(Traces, ATraceThatNobodyWritesOutEndsWithItsBuffer) {
  constexpr uint64_t kTouches = 3 * TraceFile::kBufferBytes;
  testing::internal::CaptureStderr();
  {
    auto file = TraceFile::Create(Path()).value();
    file->Put({TraceKind::kCreate, 0, 4096});
    for (uint64_t i = 0; i < kTouches; ++i) file->Put({TraceKind::kRead, 0});
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("faster than the trace can be written"));
  const uint64_t touches = ParseTrace(Bytes(), "T").touches();
  EXPECT_GT(touches, TraceFile::kBufferBytes - 100);
  EXPECT_LT(touches, kTouches);
}

TEST_F(Traces, AFileThatCannotBeWrittenIsAnErrorOrEndsTheTrace) {
  EXPECT_THAT(TraceFile::Create("/no/such/folder/trace").status().message(), HasSubstr("No such file or directory"));
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  EXPECT_THAT(TraceFile::Create("/dev/full").status().message(), HasSubstr("No space left"));
}

TEST_F(Traces, ATraceThatIsCutAnywhereGivesItsBeginningOrSaysThatThereIsNone) {
  std::vector<TraceRecord> records;
  for (uint32_t i = 0; i < 40; ++i) records.push_back({TraceKind::kCreate, i * 100, uint64_t{1} << (12 + i % 20)});
  for (uint32_t i = 0; i < 40; ++i) records.push_back({i % 2 != 0 ? TraceKind::kRead : TraceKind::kWrite, i * 700 % 4000});
  const std::vector<std::byte> whole = FileOf(records);
  const std::vector<uint32_t> all = TouchedObjects(ParseTrace(whole, "T"));
  ASSERT_EQ(all.size(), 40u);
  uint64_t last = 0;
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    const std::string error = Error(part);
    if (!error.empty()) {
      EXPECT_THAT(error, testing::AnyOf(HasSubstr("T is no trace"), HasSubstr("T holds no access"))) << length;
      continue;
    }
    const std::vector<uint32_t> some = TouchedObjects(ParseTrace(part, "T"));
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << length;
    EXPECT_GE(some.size(), last);
    last = some.size();
  }
  EXPECT_EQ(last, 39u);
}

TEST_F(Traces, AGarbledTraceIsRefusedOrReadButNeverBelieved) {
  std::vector<TraceRecord> records;
  for (uint32_t i = 0; i < 200; ++i) records.push_back({TraceKind::kCreate, i, 4096});
  for (uint32_t i = 0; i < 400; ++i) records.push_back({TraceKind::kRead, i * 7 % 200});
  const std::vector<std::byte> whole = FileOf(records);
  int refused = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::byte> bytes = whole;
    for (int i = 0; i < 4; ++i) bytes[trace_format::kHeaderBytes + random() % (bytes.size() - trace_format::kHeaderBytes)] = static_cast<std::byte>(random());
    const std::string error = Error(bytes);
    refused += error.empty() ? 0 : 1;
    if (!error.empty()) {
      EXPECT_THAT(error, HasSubstr("T is garbled at byte ")) << "seed " << seed;
      continue;
    }
    const PolicyTrace trace = ParseTrace(bytes, "T");
    for (const PolicyTrace::Event& event : trace.events) ASSERT_TRUE(event.object < trace.bytes.size() && event.thread < trace.threads) << "seed " << seed;
  }
  EXPECT_GT(refused, 100);
}

TEST_F(Traces, WhatNoProgramDoesIsNamedWithItsPlace) {
  constexpr TraceRecord kMade{TraceKind::kCreate, 5, 4096};
  EXPECT_EQ(Error(FileOf({{TraceKind::kRead, 5}})), "T is garbled at byte 16: an object is touched that is not there");
  EXPECT_THAT(Error(FileOf({kMade, kMade})), HasSubstr(": an object is made that is there already"));
  EXPECT_THAT(Error(FileOf({{TraceKind::kFree, 5}})), HasSubstr(": an object ends that is not there"));
  EXPECT_THAT(Error(FileOf({{TraceKind::kDirty, 5}})), HasSubstr(": an object is written that is not there"));
  EXPECT_THAT(Error(FileOf({kMade, {TraceKind::kFree, 5}, {TraceKind::kRead, 5}})), HasSubstr("touched that is not there"));
  EXPECT_THAT(Error(FileOf({{TraceKind::kCreate, 5, 0}})), HasSubstr(": an object has an impossible size"));
  EXPECT_THAT(Error(FileOf({{TraceKind::kCreate, 5, UINT64_MAX}})), HasSubstr(": an object has an impossible size"));
  EXPECT_EQ(Error(FileOf({kMade})), "T holds no access");
  std::vector<std::byte> bytes = FileOf({kMade, {TraceKind::kRead, 5}});
  EXPECT_EQ(Error(bytes), "");
  bytes.push_back(std::byte{7});
  EXPECT_THAT(Error(bytes), HasSubstr(": this is no record"));
  bytes.back() = std::byte{0x82};  // to be continued
  bytes.insert(bytes.end(), 12, std::byte{0xff});
  EXPECT_THAT(Error(bytes), HasSubstr(": this is no record"));
  bytes[8] = std::byte{2};
  EXPECT_EQ(Error(bytes), "T is a trace of version 2; this program reads version 1");
  bytes[0] = std::byte{0};
  EXPECT_THAT(Error(bytes), HasSubstr("T is no trace"));
  EXPECT_THROW(bench::ReadTraceFile("/no/such/file"), std::runtime_error);
  EXPECT_THROW(bench::ReadTraceFile("/tmp"), std::runtime_error);  // it was std::bad_alloc
}

TEST_F(Traces, WhatIsMissingAtTheEndIsTold) {
  std::vector<std::byte> bytes = FileOf({{TraceKind::kCreate, 5, 4096}, {TraceKind::kRead, 5}, {TraceKind::kCreate, 900, 1 << 20}});
  EXPECT_EQ(ParseTrace(bytes, "T").bytes_cut, 0U);
  bytes.pop_back();
  const PolicyTrace trace = ParseTrace(bytes, "T");
  EXPECT_GT(trace.bytes_cut, 0U);
  EXPECT_EQ(trace.touches(), 1U);
}

TEST_F(Traces, AnIdThatIsUsedAgainIsAnotherObject) {
  const PolicyTrace trace = ParseTrace(FileOf({{TraceKind::kCreate, 3, 4096}, {TraceKind::kThread, 9}, {TraceKind::kRead, 3}, {TraceKind::kDirty, 3}, {TraceKind::kFree, 3},
                                               {TraceKind::kCreate, 3, 8192}, {TraceKind::kThread, 4}, {TraceKind::kRead, 3}}), "T");
  EXPECT_EQ(trace.bytes, (std::vector<uint64_t>{4096, 8192}));
  EXPECT_EQ(TouchedObjects(trace), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(trace.threads, 2u);
  EXPECT_TRUE(trace.events[1].write) << "told later";
  EXPECT_EQ(trace.events[1].thread, 0);
  EXPECT_EQ(trace.events[4].thread, 1);
  EXPECT_FALSE(trace.events[4].write);
}

struct Moved {
  uint64_t in = 0, out = 0;  // chunks
};

// Runs an engine whose mover has its turn after each access; every one of them begins an epoch. What it moved.
Moved RunTraced(const std::string& path, const std::string& policy, const std::vector<std::pair<uint32_t, bool>>& accesses, uint32_t count, uint64_t bytes, uint64_t limit) {
  auto file = TraceFile::Create(path).value();
  FakeTier tier(FakeTierOptions{.seed = 3, .delay_steps_max = 1});
  NoPins pins;
  Engine engine({.budget = limit, .metadata_beside_limit = true}, &tier, &pins, [&](const ChunkTable* chunks) {
    return std::make_unique<TracePolicy>(PolicyNamed(policy)(chunks), chunks, file.get(), std::chrono::microseconds(0));
  });
  std::vector<Chunk*> chunks;
  for (uint32_t i = 0; i < count; ++i) chunks.push_back(engine.Create(bytes).value());
  for (const auto& [i, write] : accesses) {
    EXPECT_TRUE(engine.Acquire(chunks[i], write).ok());
    for (int step = 0; step < 4; ++step) engine.MoverStep();
    file->WriteOut(false);
  }
  engine.Drain();
  EXPECT_TRUE(engine.CheckPolicy());
  const EngineCounters c = engine.counters();
  for (Chunk* chunk : chunks) engine.Free(chunk);
  return {c.misses + c.prefetch_issued, c.evictions - c.clean_evictions};
}

TEST_F(Traces, ATracedEngineTellsEachAccessAndItsReplayMovesAsMuch) {
  constexpr uint64_t kBytes = 16 << 10;
  constexpr uint32_t kCount = 200;
  constexpr uint64_t kLimit = kCount / 4 * kBytes;
  std::mt19937 random(5);
  std::vector<std::pair<uint32_t, bool>> sweep, anywhere, hot;
  for (uint32_t i = 0; i < kCount; ++i) {
    for (auto* accesses : {&sweep, &anywhere, &hot}) accesses->emplace_back(i, true);
  }
  for (uint32_t i = 0; i < 5 * kCount; ++i) {
    sweep.emplace_back(i % kCount, i % 3 == 0);
    anywhere.emplace_back(random() % kCount, i % 3 == 0);
    hot.emplace_back(i % 2 == 0 ? i / 2 % 20 : random() % kCount, false);
  }
  for (const auto* accesses : {&sweep, &anywhere, &hot}) {
    for (const char* policy : PolicyNames()) {
      SCOPED_TRACE(std::string(policy) + (accesses == &sweep ? ", sweep" : accesses == &anywhere ? ", random" : ", hot and random"));
      const Moved engine = RunTraced(Path(), policy, *accesses, kCount, kBytes, kLimit);
      const PolicyTrace trace = bench::ReadTraceFile(Path());
      std::vector<uint32_t> expected;
      for (const auto& [i, write] : *accesses) expected.push_back(i);
      // Of two in a row the second is not heard where no epoch has begun between them: none here.
      EXPECT_EQ(TouchedObjects(trace), expected);
      const bench::PolicyTraffic replayed = Replay(trace, {.limit = kLimit}, PolicyNamed(policy));
      const auto in = static_cast<double>(engine.in), out = static_cast<double>(engine.out);
      EXPECT_NEAR(static_cast<double>(replayed.misses + replayed.ahead), in, 0.05 * in);
      EXPECT_NEAR(static_cast<double>(replayed.bytes_out) / kBytes, out, 0.05 * out);
    }
  }
}

// Short epochs clear the bit by which second-chance knows what is in use: it kept nothing any more.
TEST_F(Traces, APolicyThatLooksAtTheBitsDecidesAsWithoutATrace) {
  constexpr uint64_t kBytes = 16 << 10;
  constexpr uint32_t kCount = 200, kHot = 25;
  constexpr uint64_t kLimit = kCount / 4 * kBytes;
  std::mt19937 random(5);
  std::vector<std::pair<uint32_t, bool>> accesses;
  for (uint32_t i = 0; i < kCount; ++i) accesses.emplace_back(i, true);
  for (uint32_t i = 0; i < 10 * kCount; ++i) accesses.emplace_back(i % 3 != 0 ? random() % kHot : random() % kCount, false);
  PolicyTrace same;
  for (uint32_t i = 0; i < kCount; ++i) same.Create(kBytes);
  for (const auto& [i, write] : accesses) same.Touch(i, write);
  const auto without = static_cast<double>(Replay(same, {.limit = kLimit}, PolicyNamed("second-chance")).misses);
  EXPECT_NEAR(static_cast<double>(RunTraced(Path(), "second-chance", accesses, kCount, kBytes, kLimit).in), without, 0.03 * without);
}

}  // namespace
}  // namespace ramspan
