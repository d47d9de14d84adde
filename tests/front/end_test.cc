// How programs that use Ramspan begin and end, as their user sees it: exit status, messages, files, and that they end at all.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/job_fixture.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class ProgramEnd : public JobFixture {
 protected:
  Outcome Live(const std::string& life, Words environment = {}) {
    environment.push_back("RAMSPAN_MEMORY=8MiB");
    return Wait(StartCommand({END_PROGRAM, life}, environment));
  }
  Outcome LiveUntilAnError(const std::string& life) { return Wait(StartCommand({END_BY_ERROR, life}, {"RAMSPAN_MEMORY=3MiB"})); }
  // After a shell's `ulimit`.
  Outcome LiveUnder(const std::string& limit, const std::string& life, Words environment = {}) {
    environment.push_back("RAMSPAN_MEMORY=8MiB");
    return Wait(StartCommand({"/bin/sh", "-c", "ulimit " + limit + "; exec " END_PROGRAM " " + life}, environment));
  }
  std::string Stats(const std::string& name) const { return "RAMSPAN_STATS=" + (folder_ / name).string(); }
};

// exit() on the mover's thread waited for that thread: "Resource deadlock avoided", status 134.
TEST_F(ProgramEnd, ExitMayBeCalledOnAThreadOfRamspans) {
  const Outcome end = Live("exit-on-mover", {Stats("stats")});
  EXPECT_EQ(end.status, 3) << end.err;
  EXPECT_EQ(end.err, "");
  EXPECT_THAT(ReadFile(folder_ / "stats"), HasSubstr("budget_bytes"));
}

// Each waited for 10 ms, in case another thread released something. There is none.
TEST_F(ProgramEnd, TooManyPinsOfTheOnlyThreadAreRefusedAtOnce) {
  const Outcome end = Live("pin-too-much", {Stats("stats")});
  EXPECT_EQ(end.status, 0) << end.err;
  const std::string pins = ReadFile(folder_ / "stats");
  EXPECT_THAT(pins, HasSubstr(R"("pins":{"waits":0,"total_us":0,)"));
}

// It waited for ever, for a lock of its own thread's.
TEST_F(ProgramEnd, AHandlerThatHasInterruptedRamspanAndPullsIsSaid) {
  const Outcome end = Live("pull-in-handlers");
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.err, HasSubstr("a signal handler that has interrupted Ramspan makes or pulls a managedPtr"));
}

// Its end waited for a lock of its own thread's: one of four times.
TEST_F(ProgramEnd, AHandlerThatHasInterruptedRamspanMayExit) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Live("exit-in-handlers").status, 3);
}

// "terminate called without an active exception", and no word of why.
TEST_F(ProgramEnd, AnErrorThatLeavesAnOpenMpRegionIsSaid) {
  const Outcome end = LiveUntilAnError("leave-openmp");
  EXPECT_NE(end.status, 0);
  EXPECT_THAT(end.err, HasSubstr("no memory for"));
}
TEST_F(ProgramEnd, AnErrorThatMeetsAThreadOnItsWayIsSaid) {
  const Outcome end = LiveUntilAnError("pass-a-thread");
  EXPECT_NE(end.status, 0);
  EXPECT_THAT(end.err, HasSubstr("The latest error of this thread that has not been caught and gone: an object of 64 MiB"));
}

// "terminate called after throwing an instance of 'terminate called recursively".
TEST_F(ProgramEnd, OfErrorsThatEndManyThreadsOneIsSaidWhole) {
  for (int i = 0; i < 30; ++i) {
    const Outcome end = LiveUntilAnError("leave-many-threads");
    EXPECT_NE(end.status, 0);
    EXPECT_THAT(end.err, HasSubstr("does not fit the memory limit of 3 MiB"));
    EXPECT_THAT(end.err, Not(HasSubstr("recursively")));
  }
}

// The two called each other for ever.
TEST_F(ProgramEnd, AHandlerThatCallsTheOneBeforeItEnds) {
  const Outcome end = LiveUntilAnError("call-the-handler-before");
  EXPECT_NE(end.status, 0);
  EXPECT_THAT(end.err, HasSubstr("an object of 64 MiB"));
}

TEST_F(ProgramEnd, TheHandlerOfTerminateIsTheProgramsWhereNoErrorIsOnItsWay) {
  EXPECT_EQ(LiveUntilAnError("keep-handlers").status, 12);
}

// An exception of the program's report ended the process.
TEST_F(ProgramEnd, AReportThatThrowsEndsNothing) {
  const Outcome end = Live("report-throws");
  EXPECT_EQ(end.status, 5) << end.err;
  EXPECT_THAT(end.err, HasSubstr("no ink"));
}

// One that is no std::exception still did.
TEST_F(ProgramEnd, AReportThatThrowsANumberEndsNothing) {
  const Outcome end = Live("report-throws-a-number");
  EXPECT_EQ(end.status, 5) << end.err;
  EXPECT_THAT(end.err, HasSubstr("an exception that is no std::exception"));
}

// It was called all the same, through a null pointer.
TEST_F(ProgramEnd, AReportThatWasTakenBackIsNotCalled) {
  const Outcome end = Live("report-taken-back");
  EXPECT_EQ(end.status, 0) << end.err;
}

TEST_F(ProgramEnd, ExitMayBeCalledOnAThreadOfTheProgram) {
  const Outcome end = Live("exit-on-thread", {Stats("stats")});
  EXPECT_EQ(end.status, 4) << end.err;
  EXPECT_THAT(ReadFile(folder_ / "stats"), HasSubstr("budget_bytes"));
}

// It was told that Configure was called too late, which it had not called.
TEST_F(ProgramEnd, AReconfigureBesideTheStartIsAppliedAfterIt) {
  for (int i = 0; i < 3; ++i) {
    const Outcome end = Live("reconfigure-beside-start");
    EXPECT_EQ(end.status, 0) << end.err;
  }
}

// It was opened for writing, which waits for a reader.
TEST_F(ProgramEnd, AFifoThatNobodyReadsHoldsNothingUp) {
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  const Outcome end = Live("touch", {Stats("fifo")});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("fifo that nobody reads"));
}

// Of a job that the batch system ended nobody could see what it had waited for.
TEST_F(ProgramEnd, WhoIsKilledLeavesStatisticsOfShortlyBefore) {
  std::ofstream(folder_ / "stats").put('x');
  chmod((folder_ / "stats").c_str(), 0600);
  const auto go_on = [this](const std::string& name) { return StartCommand({END_PROGRAM, "go-on"}, {"RAMSPAN_MEMORY=8MiB", Stats(name)}); };
  const pid_t program = go_on("stats"), second = go_on("of_another_one"), third = go_on("of_this_one");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::ofstream(folder_ / "of_another_one") << "of a process that has ended";
  for (int i = 0; i < 600 && (std::filesystem::file_size(folder_ / "stats") == 1 || !std::filesystem::exists(folder_ / "of_this_one")); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const pid_t one : {program, second, third}) {
    SendSignal(one, SIGKILL);
    EXPECT_EQ(Wait(one).status, 128 + SIGKILL);
  }
  for (const char* name : {"stats", "of_this_one"}) {
    const std::string left = ReadFile(folder_ / name);
    EXPECT_THAT(left, HasSubstr(R"("ended":false)"));
    EXPECT_THAT(left, EndsWith("}\n"));
  }
  struct stat facts = {};
  EXPECT_EQ(stat((folder_ / "stats").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(ReadFile(folder_ / "of_another_one"), "of a process that has ended");
  for (const auto& file : std::filesystem::directory_iterator(folder_)) EXPECT_NE(file.path().extension(), ".part");
}

TEST_F(ProgramEnd, StatisticsOfTheEndSayThatTheyAreIt) {
  EXPECT_EQ(Live("touch", {Stats("stats")}).status, 0);
  EXPECT_THAT(ReadFile(folder_ / "stats"), HasSubstr(R"("ended":true)"));
}

TEST_F(ProgramEnd, AStatsFileThatCannotBeIsToldAtTheStart) {
  const Outcome end = Live("outlive", {Stats("no/such/folder/stats"), "RAMSPAN_DEBUG=1"});
  EXPECT_EQ(end.status, 0) << end.err;
  const size_t told = end.err.find("cannot write statistics to");
  EXPECT_LT(told, end.err.find("while an adhereTo holds it")) << end.err;  // what happens first in that program's life
  EXPECT_EQ(end.err.find("cannot write statistics to", told + 1), std::string::npos) << end.err;  // not again at the end
  EXPECT_THAT(end.err, HasSubstr("make its folder first"));
}

// std::bad_alloc left an exit handler: status 134 after all work was done.
TEST_F(ProgramEnd, WhatTheEndHasNoHeapToSayCostsNoStatus) {
  for (const int given : {0, 1, 4, 12, 100'000}) {
    const Outcome end = Live("end-without-heap", {"HEAP_AT_END=" + std::to_string(given), Stats("stats"), "RAMSPAN_DEBUG=1", "RAMSPAN_SWAP=file"});
    SCOPED_TRACE(std::to_string(given) + " allocations");
    EXPECT_EQ(end.status, 0) << end.err;
    const bool enough = given > 1000;
    EXPECT_EQ(end.err.find("statistics are not written") == std::string::npos, enough) << end.err;
    const bool told = end.err.find("were what was in swap already") != std::string::npos;
    EXPECT_NE(told, end.err.find("unchanged writes to swap are not told") != std::string::npos) << end.err;
    if (given == 0 || enough) {
      EXPECT_EQ(told, enough) << end.err;
    }
  }
  EXPECT_THAT(ReadFile(folder_ / "stats"), HasSubstr("budget_bytes"));
}

// The signal of the limit ended the program after its work was done.
TEST_F(ProgramEnd, ALimitOfFileSizesCostsTheStatisticsOnly) {
  const Outcome end = LiveUnder("-f 0", "touch", {Stats("stats"), "RAMSPAN_SWAP=file"});
  EXPECT_NE(end.status, 128 + SIGXFSZ) << end.err;
}

TEST_F(ProgramEnd, ALimitOfAddressesIsNotBlamedOnProcesses) {
  for (const char* limit : {"-v 60000", "-v 100000", "-v 150000", "-v 200000", "-v 300000"}) {
    EXPECT_THAT(LiveUnder(limit, "touch").err, Not(HasSubstr("ulimit -u"))) << limit;
  }
}

TEST_F(ProgramEnd, ALimitOfDataIsNotBlamedOnProcesses) {
  for (const char* limit : {"-d 8000", "-d 12000", "-d 16000", "-d 20000"}) {
    EXPECT_THAT(LiveUnder(limit, "touch").err, Not(HasSubstr("see `ulimit -u`"))) << limit;
  }
}

// The mask of swap files was made of it, and its message named a key that nobody had set.
TEST_F(ProgramEnd, TheTemporaryFolderMayHaveAnyName) {
  const auto odd = folder_ / "tmp" / "100%d of %s";
  std::filesystem::create_directory(odd);
  const Outcome end = Live("touch", {"TMPDIR=" + odd.string()});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_TRUE(std::filesystem::remove(odd));  // empty
}

TEST_F(ProgramEnd, AForkedChildMayListIngredientsThatAnotherThreadHolds) {
  const Outcome end = Live("ingredients-in-child");
  EXPECT_EQ(end.status, 0) << end.err;
}

// The child asked the pin tables, behind a mutex that another thread had held at the fork.
TEST_F(ProgramEnd, AForkedChildMayAskWhatAnObjectDoes) {
  const Outcome end = Live("describe-in-child");
  EXPECT_EQ(end.status, 0) << end.err;
}

// Where the limit had no room the program was aborted ("this is a bug in Ramspan"), also with the default one; and ranges that took all that fitted
// left no stack for the mover, with 140, 200 and 300 MiB, but not with 64.
TEST_F(ProgramEnd, UnderALimitOfAddressesAProgramComputesRightOrSaysWhyNot) {
  for (const auto& [memory, limit] : {std::pair<std::string, std::string>("8MiB", "-v"), {"130MiB", "-v"}, {"256MiB", "-v"}, {"", "-v"}, {"", "-d"}}) {
    int right = 0, refused = 0;
    for (const int megabytes : {2, 12, 16, 20, 24, 28, 32, 40, 60, 100, 140, 170, 200, 240, 270, 300, 350, 400, 600, 1000}) {
      const Outcome end = Wait(StartCommand({"/bin/sh", "-c", "ulimit " + limit + " " + std::to_string(1024 * megabytes) + "; exec " END_PROGRAM " sweep"},
                                            memory.empty() ? Words() : Words{"RAMSPAN_MEMORY=" + memory}));
      SCOPED_TRACE(memory + " with ulimit " + limit + " of " + std::to_string(megabytes) + " MiB: status " + std::to_string(end.status) + ", " + end.out + end.err);
      if (end.status == 0) {
        ++right;
        EXPECT_EQ(end.out, "sum right\n");
      } else {
        ++refused;
        EXPECT_LT(end.status, 128) << "a signal ended it";
        EXPECT_EQ(right, 0) << "it works with less";
        EXPECT_THAT(end.err, testing::ContainsRegex("ulimit -[vd]|cannot map|failed to map|cannot allocate"));  // the loader's words
      }
    }
    EXPECT_GT(right, 3);
    EXPECT_GT(refused, 0);
  }
}

TEST_F(ProgramEnd, ALimitThatHasNoRoomInTheAddressesIsToldWithBoth) {
  const Outcome end = Wait(StartCommand({"/bin/sh", "-c", "ulimit -v 400000; exec " END_PROGRAM " pin-three"}, {"RAMSPAN_MEMORY=1GiB"}));
  EXPECT_NE(end.status, 0);
  EXPECT_THAT(end.err, HasSubstr("the memory limit of 1 GiB (environment RAMSPAN_MEMORY) has no room in the addresses"));
  EXPECT_THAT(end.err, HasSubstr("raise `ulimit -v`, or set RAMSPAN_MEMORY to a quarter of them"));
}

// The remedy was a quarter of what is left, which the limit was already.
TEST_F(ProgramEnd, ADefaultLimitThatHasNoRoomInTheAddressesHasAnotherRemedyThanItself) {
  int told = 0;
  for (const int megabytes : {16, 18, 20, 22, 24}) {
    const Outcome end = Wait(StartCommand({"/bin/sh", "-c", "ulimit -d " + std::to_string(1024 * megabytes) + "; exec " END_PROGRAM " sweep"}));
    if (end.err.find("has no room in the addresses") == std::string::npos) continue;
    ++told;
    EXPECT_THAT(end.err, HasSubstr("raise `ulimit -d`, or set RAMSPAN_MEMORY lower"));
  }
  EXPECT_GT(told, 0);
}

// They fit the limit, but its range of addresses was as large as the limit. The error blamed adhereTos and asked for a larger limit, which would
// have made it worse.
TEST_F(ProgramEnd, PinsThatFitTheLimitAreMadeOrRefusedForTheirAddresses) {
  int made = 0, refused = 0;
  for (const int megabytes : {170, 210, 250, 290, 330, 400, 500, 600, 1000}) {
    const Outcome end = Wait(StartCommand({"/bin/sh", "-c", "ulimit -v " + std::to_string(1024 * megabytes) + "; exec " END_PROGRAM " pin-three"}, {"RAMSPAN_MEMORY=130MiB"}));
    SCOPED_TRACE(std::to_string(megabytes) + " MiB: status " + std::to_string(end.status) + ", " + end.out + end.err);
    made += end.status == 0;
    if (end.status == 0 || end.err.find("adhereTos pin") == std::string::npos) continue;
    ++refused;
    EXPECT_THAT(end.err, HasSubstr("of addresses that were left for it (ulimit -v)"));
    EXPECT_THAT(end.err, HasSubstr("raise `ulimit -v`"));
    EXPECT_LT(megabytes, 500) << "there were addresses enough";
  }
  EXPECT_GT(made, 2);
  EXPECT_GT(refused, 0);
}

// Each child that called exit(), as after an exec that failed, destroyed the parent's objects: it hung on the mutex of their tree
// where another thread had held that at the fork, and else warned of each.
TEST_F(ProgramEnd, AForkedChildThatExitsLeavesTheParentsObjectsAlone) {
  const Outcome end = Live("exit-in-child");
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(end.err, "the parent's end\n");
}

TEST_F(ProgramEnd, DebugModeTellsOfAnAdhereToThatOutlivesItsData) {
  const Outcome end = Live("outlive", {"RAMSPAN_DEBUG=1"});
  EXPECT_THAT(end.err, HasSubstr("512 KiB (chunk 0) was destroyed while an adhereTo holds it"));
  EXPECT_THAT(end.err, HasSubstr("declare it before them"));
  EXPECT_THAT(Live("touch", {"RAMSPAN_DEBUG=1"}).err, Not(HasSubstr("adhereTo holds it")));
}

TEST_F(ProgramEnd, ALimitAboveTheMachinesIsToldAtTheStart) {
  const Outcome end = Wait(StartCommand({END_PROGRAM, "touch"}, {"RAMSPAN_MEMORY=1TiB"}));
  EXPECT_THAT(end.err, HasSubstr("the memory limit of 1 TiB (environment RAMSPAN_MEMORY) is more than the "));
  EXPECT_EQ(Live("touch").err, "");
}

}  // namespace
}  // namespace ramspan
