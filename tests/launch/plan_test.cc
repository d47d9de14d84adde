#include "launch/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using Words = std::vector<std::string>;

// A host with 8 GiB, half of it allowed in /dev/shm, and an environment of its own.
class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    facts_.getenv = [this](const char* name) -> const char* {
      const auto found = environment_.find(name);
      return found == environment_.end() ? nullptr : found->second.c_str();
    };
    facts_.find_program = [](const std::string& name) -> Result<std::string> {
      if (name == "absent") return InvalidArgument("absent is not in PATH");
      return name.find('/') == std::string::npos ? "/usr/bin/" + name : name;
    };
    facts_.read_file = [this](const std::string&) -> Result<std::string> { return hostfile_; };
    facts_.launcher = "/opt/bin/ramspan";
    facts_.memserver = "/opt/bin/ramspan-memserver";
    facts_.server = "/opt/bin/ramspan-server";
    facts_.mpi_use = [this](const std::string&) { return mpi_use_; };
    facts_.available_memory = 8 * kGiB;
    facts_.shared_memory_free = 4 * kGiB;
    options_.app = {"./app", "in.txt"};
    options_.memory = "64MiB";
    options_.server_memory = "512MiB";
  }

  Plan Make() {
    Result<Plan> plan = MakePlan(options_, facts_);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.ok() ? plan.value() : Plan{};
  }
  std::string Error() {
    Result<Plan> plan = MakePlan(options_, facts_);
    EXPECT_FALSE(plan.ok());
    return plan.ok() ? "" : plan.status().message();
  }
  static std::string Env(const Plan& plan, const std::string& name) {
    for (const auto& [key, value] : plan.env) {
      if (key == name) return value;
    }
    return "(unset)";
  }
  static bool Notes(const Plan& plan, const std::string& text) {
    return std::any_of(plan.notes.begin(), plan.notes.end(),
                       [&](const std::string& note) { return note.find(text) != std::string::npos; });
  }
  void Ranks(int ranks, int servers) {
    options_.ranks = ranks;
    options_.servers = servers;
  }

  std::map<std::string, std::string> environment_;
  std::string hostfile_;
  std::optional<MpiUse> mpi_use_ = MpiUse::kRamspan;
  Facts facts_;
  RunOptions options_;
};

TEST_F(PlanTest, RanksAndServersBecomeOneMpmdLine) {
  Ranks(2, 1);
  const Plan plan = Make();
  EXPECT_EQ(plan.argv, (Words{"/usr/bin/mpiexec.hydra", "-n", "2", "-env", "RAMSPAN_MEMORY", "64MiB", "/opt/bin/ramspan",
                              "__rank", "--", "./app", "in.txt", ":", "-n", "1", "-env", "RAMSPAN_SERVER_MEMORY", "512MiB",
                              "/opt/bin/ramspan", "__rank", "--", "/opt/bin/ramspan-memserver"}));
  EXPECT_EQ(Env(plan, "RAMSPAN_SERVERS"), "1");
  EXPECT_TRUE(plan.by_mpiexec);
  EXPECT_EQ(plan.notes.size(), 1u) << "which servers, and why";
}

TEST_F(PlanTest, WithoutServersThereIsNoServerPartAndNoTransport) {
  Ranks(2, 0);
  options_.server_memory = "";
  const Plan plan = Make();
  EXPECT_EQ(std::count(plan.argv.begin(), plan.argv.end(), ":"), 0);
  EXPECT_EQ(Env(plan, "RAMSPAN_SERVERS"), "0");
  EXPECT_EQ(Env(plan, "RAMSPAN_TRANSPORT"), "none");
}

TEST_F(PlanTest, TransportNoneDropsTheServers) {
  Ranks(2, 1);
  options_.transport = "none";
  const Plan plan = Make();
  EXPECT_EQ(plan.servers, 0);
  EXPECT_EQ(Env(plan, "RAMSPAN_TRANSPORT"), "none");
  EXPECT_TRUE(Notes(plan, "no memory servers"));
}

// "without servers (-s)" was said to those who had given -s.
TEST_F(PlanTest, TheReasonForNoEffectOfServerMemoryIsTheOptionThatWasGiven) {
  Ranks(2, 1);
  options_.server_memory = "512MiB";
  options_.transport = "none";
  EXPECT_TRUE(Notes(Make(), "--server-memory has no effect with --transport none"));
  Ranks(2, 0);
  options_.transport = "auto";
  EXPECT_TRUE(Notes(Make(), "--server-memory has no effect without servers (-s)"));
}

TEST_F(PlanTest, OneRankWithoutServersNeedsNoMpiexec) {
  Ranks(1, 0);
  const Plan plan = Make();
  EXPECT_FALSE(plan.by_mpiexec);
  EXPECT_EQ(plan.argv, (Words{"/opt/bin/ramspan", "__rank", "--", "./app", "in.txt"}));
  EXPECT_EQ(Env(plan, "RAMSPAN_MEMORY"), "64MiB");
}

TEST_F(PlanTest, ArgumentsThatHydraWouldMisreadAreEncoded) {
  Ranks(2, 1);
  options_.app = {"./app", ":", "", "a b"};
  const Plan plan = Make();
  EXPECT_EQ(std::count(plan.argv.begin(), plan.argv.end(), ":"), 1);
  EXPECT_EQ(std::count(plan.argv.begin(), plan.argv.end(), "=3a"), 1);
  EXPECT_EQ(std::count(plan.argv.begin(), plan.argv.end(), "a b"), 1);
}

TEST_F(PlanTest, PagesArePreloadedIntoTheApplicationAlone) {
  Ranks(1, 0);
  facts_.pages_library = "/opt/lib/ramspan/libramspan-pages.so";
  facts_.pages_mode = "it works";
  options_.pages = true;
  options_.page_block = "4KiB";
  environment_["LD_PRELOAD"] = "/lib/other.so";
  const Plan plan = Make();
  const auto env = std::find(plan.argv.begin(), plan.argv.end(), "/usr/bin/env");
  ASSERT_NE(env, plan.argv.end());
  EXPECT_EQ(Words(env, plan.argv.end()), (Words{"/usr/bin/env", "LD_PRELOAD=/opt/lib/ramspan/libramspan-pages.so:/lib/other.so", "RAMSPAN_PAGE_BLOCK=4KiB", "./app", "in.txt"}));
  EXPECT_EQ(Env(plan, "LD_PRELOAD"), "(unset)");
  EXPECT_TRUE(Notes(plan, "it works"));
}

// "128KiB" and "64KiB" were announced whatever the environment and files said; and a lower pagesAbove had no effect before an allocation of 128 KiB.
TEST_F(PlanTest, WhatFilesSayOfPagesIsAnnouncedAndHoldsFromTheFirstAllocationOn) {
  Ranks(1, 0);
  facts_.pages_library = "/opt/lib/ramspan/libramspan-pages.so";
  facts_.pages_mode = "it works";
  facts_.pages_above = 16384;
  facts_.page_block = 4096;
  options_.pages = true;
  const Plan plan = Make();
  EXPECT_TRUE(Notes(plan, "allocations from 16 KiB on are swapped in blocks of 4 KiB"));
  EXPECT_EQ(std::count(plan.argv.begin(), plan.argv.end(), "RAMSPAN_PAGES_ABOVE=16384"), 1);
}

// They ran without a limit, and nothing was said.
TEST_F(PlanTest, ProgramsThatTheLimitCannotReachAreToldOf) {
  Ranks(1, 0);
  options_.server_memory = "";
  facts_.uses_ramspan = [](const std::string&) { return std::optional(false); };
  EXPECT_TRUE(Notes(Make(), "./app is not linked with Ramspan"));
  facts_.uses_ramspan = [](const std::string&) { return std::optional(true); };
  EXPECT_TRUE(Make().notes.empty());
  facts_.uses_ramspan = [](const std::string&) { return std::optional<bool>(); };
  EXPECT_TRUE(Make().notes.empty());
  facts_.pages_library = "/opt/lib/ramspan/libramspan-pages.so";
  facts_.pages_mode = "it works";
  options_.pages = true;
  facts_.uses_ramspan = [](const std::string&) { return std::optional(false); };
  facts_.is_static = [](const std::string&) { return std::optional(false); };
  EXPECT_EQ(Make().notes.size(), 1u);
  facts_.is_static = [](const std::string&) { return std::optional(true); };
  EXPECT_TRUE(Notes(Make(), "./app is linked statically"));
  EXPECT_EQ(Make().notes.size(), 1u) << "not also what is taken of its allocations";
  options_.app = {"/lib64/ld-linux-x86-64.so.2", "./app"};
  EXPECT_FALSE(Notes(Make(), "is linked statically"));
}

// 16 seconds instead of a quarter of one.
TEST_F(PlanTest, BlocksMuchLargerThanAllocationsAreToldOf) {
  Ranks(1, 0);
  facts_.pages_library = "/opt/lib/ramspan/libramspan-pages.so";
  facts_.pages_mode = "it works";
  options_.pages = true;
  options_.page_block = "2MiB";
  EXPECT_FALSE(Notes(Make(), "takes whole blocks"));
  options_.pages_above = "4KiB";
  EXPECT_TRUE(Notes(Make(), "takes whole blocks"));
  options_.page_block = "16KiB";
  EXPECT_FALSE(Notes(Make(), "takes whole blocks"));
}

TEST_F(PlanTest, RanksOfAProgramWithoutMpiAreToldOf) {
  mpi_use_ = MpiUse::kNone;
  options_.server_memory = "";
  Ranks(2, 0);
  EXPECT_TRUE(Make().notes.empty()) << "an interpreter, or a program that starts others";
  facts_.uses_ramspan = [](const std::string&) { return std::optional(true); };
  Ranks(2, 0);
  EXPECT_TRUE(Notes(Make(), "it runs 2 times, each by itself"));
  Ranks(2, 1);
  options_.server_memory = "512MiB";
  EXPECT_EQ(Make().notes.size(), 1u) << "once: with the choice of servers";
  options_.server_memory = "";
  Ranks(1, 0);
  EXPECT_TRUE(Make().notes.empty());
  mpi_use_ = MpiUse::kRamspan;
  Ranks(2, 0);
  EXPECT_TRUE(Make().notes.empty());
}

// They were announced as if they held, and only a program with large allocations heard of it.
TEST_F(PlanTest, SizesOfPagesThatCannotBeAreErrorsBeforeAnythingStarts) {
  facts_.pages_library = "/opt/lib/ramspan/libramspan-pages.so";
  facts_.pages_mode = "it works";
  options_.pages = true;
  for (const char* wrong : {"3KiB", "4MiB", "0", "many"}) {
    options_.page_block = wrong;
    EXPECT_NE(Error().find("--page-block: "), std::string::npos) << wrong;
  }
  options_.page_block = "adaptiv";  // was told what sizes look like, and not of the word
  EXPECT_NE(Error().find("neither adaptive nor a size"), std::string::npos);
  options_.page_block = "";
  options_.pages_above = "1";
  EXPECT_NE(Error().find("--pages-above: "), std::string::npos);
  options_.pages_above = "";
  options_.transport = "mpi";
  options_.servers = 1;
  EXPECT_NE(Error().find("--pages does not go with --transport mpi"), std::string::npos);
}

// A program that allocates nothing large ran as if all were well.
TEST_F(PlanTest, AMistakeInTheConfigurationIsAnErrorOfPagesAndOfWhoUsesRamspan) {
  facts_.pages_library = "/opt/lib/ramspan/libramspan-pages.so";
  facts_.pages_mode = "so";
  facts_.app_configuration_mistake = "RAMSPAN_SWAP: no such swap";
  static_cast<void>(Make());  // it may not use Ramspan
  options_.pages = true;
  EXPECT_NE(Error().find("RAMSPAN_SWAP: no such swap"), std::string::npos);
  options_.pages = false;
  facts_.uses_ramspan = [](const std::string&) { return std::optional(true); };
  EXPECT_NE(Error().find("RAMSPAN_SWAP: no such swap"), std::string::npos);
  options_.env = {"RAMSPAN_SWAP=file"};
  static_cast<void>(Make());  // what it finds is another one
}

TEST_F(PlanTest, PagesThatThisHostCannotSwapAreAnErrorThatSaysWhy) {
  facts_.pages_library = "/opt/lib/ramspan/libramspan-pages.so";
  facts_.pages_why_not = "an old kernel";
  options_.pages = true;
  EXPECT_NE(Error().find("an old kernel"), std::string::npos);
  options_.pages = false;
  options_.pages_above = "1MiB";
  EXPECT_NE(Error().find("--pages"), std::string::npos);
}

TEST_F(PlanTest, AnUnknownTransportIsAnErrorThatSaysWhatThereIs) {
  options_.transport = "pigeon";
  EXPECT_NE(Error().find("auto, mpi, ofi or none"), std::string::npos);
}

TEST_F(PlanTest, OfiServersAreProcessesBesideAJobThatKnowsNothingOfThem) {
  Ranks(4, 2);
  options_.transport = "ofi";
  const Plan plan = Make();
  EXPECT_EQ(plan.argv, (Words{"/usr/bin/mpiexec.hydra", "-n", "4", "-env", "RAMSPAN_MEMORY", "64MiB", "/opt/bin/ramspan", "__rank", "--",
                              "./app", "in.txt"}));
  EXPECT_EQ(plan.server_argv, (Words{"/opt/bin/ramspan-server", "--memory", "512MiB"}));
  EXPECT_EQ(plan.outside_servers, 2);
  EXPECT_EQ(plan.servers, 0);
  EXPECT_FALSE(plan.servers_by_mpiexec);
  EXPECT_EQ(Env(plan, "RAMSPAN_SERVERS"), "(unset)") << "known when they listen";
  EXPECT_TRUE(plan.notes.empty());
  Ranks(1, 1);
  EXPECT_FALSE(Make().by_mpiexec);
}

TEST_F(PlanTest, OfiServersOfSeveralHostsAreAJobOfTheirOwnInThePlacesBehindTheRanks) {
  Ranks(4, 2);
  options_.transport = "ofi";
  options_.hostfile = "hosts";
  hostfile_ = "alpha:4\nbeta:4\n";
  Plan plan = Make();
  EXPECT_TRUE(plan.servers_by_mpiexec);
  EXPECT_EQ(plan.server_argv, (Words{"/usr/bin/mpiexec.hydra", "-hosts", "beta:2", "-disable-auto-cleanup", "-n", "2", "/opt/bin/ramspan", "__server", "--",
                                     "2", "/opt/bin/ramspan-server", "--memory", "512MiB"}));
  hostfile_ = "alpha:4 binding=user:0\nbeta:4\n";
  plan = Make();
  EXPECT_EQ(plan.server_argv, (Words{"/usr/bin/mpiexec.hydra", "-f", "hosts", "-disable-auto-cleanup", "-n", "4", "/opt/bin/ramspan", "__nothing", ":",
                                     "-n", "2", "/opt/bin/ramspan", "__server", "--", "2", "/opt/bin/ramspan-server", "--memory", "512MiB"}));
  EXPECT_EQ(std::count(plan.argv.begin(), plan.argv.end(), ":"), 0);
}

// 99999 of them were started, until nobody on that host got anything done.
TEST_F(PlanTest, MoreServersThanAProgramUsesAreRefused) {
  mpi_use_ = MpiUse::kNone;
  options_.server_memory = "1MiB";
  Ranks(1, 128);
  EXPECT_EQ(Make().outside_servers, 128);
  Ranks(1, 129);
  EXPECT_NE(Error().find("-s 129: a program uses 128 memory servers at most"), std::string::npos);
}

TEST_F(PlanTest, MoreProcessesThanAHostBearsAreRefused) {
  facts_.cores = 4;
  facts_.shared_memory_free = facts_.available_memory = 1024 * kGiB;
  options_.memory = options_.server_memory = "1MiB";
  options_.transport = "mpi";
  Ranks(250, 6);
  EXPECT_EQ(Make().ranks, 250);
  Ranks(250, 7);
  EXPECT_NE(Error().find("-n 250 -s 7: 257 processes on 1 host, where 256 are started at most"), std::string::npos);
  facts_.cores = 20;
  EXPECT_EQ(Make().servers, 7);
  Ranks(1, 100000);
  EXPECT_NE(Error().find("where 320 are started at most"), std::string::npos);
}

// A login node has fewer cores than those that compute, and a step may be bound to some of them.
TEST_F(PlanTest, WhoeverNamesHostsCountsProcessesHimself) {
  facts_.shared_memory_free = facts_.available_memory = 1024 * kGiB;
  options_.memory = options_.server_memory = "1MiB";
  options_.transport = "mpi";
  Ranks(700, 2);
  options_.hostfile = "hosts";
  hostfile_ = "big1:384\nbig2:384\n";
  EXPECT_EQ(Make().ranks, 700);
  options_.hostfile.clear();
  options_.mpi_args = {"-f", "hosts"};
  EXPECT_EQ(Make().ranks, 700);
  options_.mpi_args.clear();
  environment_ = {{"PE_HOSTFILE", "/spool/hosts"}};
  EXPECT_EQ(Make().ranks, 700);
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_NTASKS", "702"}};
  EXPECT_EQ(Make().ranks, 700);
  environment_["SLURM_NTASKS"] = "4";
  EXPECT_NE(Error().find("702 processes on 1 host, where 256"), std::string::npos);
  environment_["SLURM_JOB_NUM_NODES"] = "3";
  EXPECT_EQ(Make().ranks, 700);
  environment_.clear();
  options_.hostfile = "hosts";
  hostfile_ = "localhost\n";
  EXPECT_NE(Error().find("702 processes on 1 host, where 256"), std::string::npos);
}

// Each line of an order of ranks is a slot; only a host's first ones were counted.
TEST_F(PlanTest, AnOrderOfRanksInAHostFileHasAsManySlotsAsLines) {
  facts_.shared_memory_free = facts_.available_memory = 1024 * kGiB;
  options_.memory = options_.server_memory = "1MiB";
  options_.hostfile = "hosts";
  for (int i = 0; i < 400; ++i) hostfile_ += "big1:2\nbig2:2\n";
  Ranks(1500, 0);
  EXPECT_EQ(Make().ranks, 1500);
  Ranks(1601, 0);
  EXPECT_NE(Error().find("1601 processes on 2 hosts, where 1600 are started at most"), std::string::npos);
}

// The sum of both was an int that had overflown, where nobody here knows the hosts.
TEST_F(PlanTest, NumbersOfProcessesThatNoJobHasAreRefused) {
  options_.mpi_args = {"-f", "hosts"};
  options_.transport = "mpi";
  Ranks(2147483647, 1);
  EXPECT_NE(Error().find("-n 2147483647: at least 1 compute rank, up to"), std::string::npos);
  Ranks(1, 2147483647);
  EXPECT_NE(Error().find("-s 2147483647: 0 servers or more, up to"), std::string::npos);
  Ranks(1'000'000'000, 1'000'000'000);
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "2"}, {"SLURM_NTASKS", "2147483647"}};
  facts_.shared_memory_free = facts_.available_memory = UINT64_MAX;
  EXPECT_EQ(Make().ranks, 1'000'000'000);
}

TEST_F(PlanTest, AutoTakesMpiForProgramsThatKnowOfServersAmongTheirRanksAndSaysWhy) {
  mpi_use_ = MpiUse::kRamspan;
  Ranks(1, 1);
  EXPECT_TRUE(Notes(Make(), "--transport mpi: ./app is linked with Ramspan's MPI library"));
  EXPECT_EQ(Make().servers, 1);
  mpi_use_ = MpiUse::kNone;
  EXPECT_TRUE(Notes(Make(), "--transport ofi: ./app is not linked with MPI"));
  EXPECT_EQ(Make().outside_servers, 1);
  Ranks(2, 1);
  EXPECT_TRUE(Notes(Make(), "--transport ofi: ./app names no MPI library"));
  EXPECT_TRUE(Notes(Make(), "Unless it is an interpreter, or one of its libraries uses MPI, it runs 2 times, each by itself"));
  facts_.memserver = "";
  EXPECT_TRUE(Notes(Make(), "--transport ofi: ramspan-memserver"));
  facts_.server = "";
  facts_.memserver = "/opt/bin/ramspan-memserver";
  Ranks(1, 1);
  EXPECT_TRUE(Notes(Make(), "--transport mpi: ramspan-server (libfabric) is not installed"));
  options_.transport = "ofi";
  EXPECT_NE(Error().find("ramspan-server is neither beside"), std::string::npos);
}

// Its barriers waited for ever for the server among its ranks.
TEST_F(PlanTest, AutoTakesOfiForMpiProgramsThatKnowNothingOfServers) {
  mpi_use_ = MpiUse::kPlain;
  for (const int ranks : {1, 2}) {
    Ranks(ranks, 1);
    EXPECT_TRUE(Notes(Make(), "--transport ofi: ./app is linked with MPI, but not with Ramspan's MPI library"));
    EXPECT_EQ(Make().outside_servers, 1);
    EXPECT_EQ(Make().servers, 0);
  }
}

// Copies between processes of what is swapped fail where the kernel's faults are not served, with a line for each.
TEST_F(PlanTest, MpiDoesNotCopyBetweenProcessesWhatOnlyTheProgramCanBringBack) {
  options_.pages = true;
  facts_.pages_library = "/opt/lib/ramspan/libramspan-pages.so";
  Ranks(1, 0);
  const Words names = {"UCX_TLS=^cma", "OMPI_MCA_btl_vader_single_copy_mechanism=none"};
  for (const char* mode : {"by signals; system calls: EFAULT", "blocks come as copies", "it works"}) {
    facts_.pages_mode = mode;
    const Plan plan = Make();
    for (const std::string& name : names) EXPECT_EQ(std::count(plan.argv.begin(), plan.argv.end(), name), mode == std::string("it works") ? 0 : 1) << mode << ' ' << name;
  }
  facts_.pages_mode = "EFAULT";
  options_.env = {"UCX_TLS=tcp,self"};
  const Plan plan = Make();
  EXPECT_EQ(std::count(plan.argv.begin(), plan.argv.end(), names[0]), 0) << "the user's stays";
  EXPECT_EQ(std::count(plan.argv.begin(), plan.argv.end(), names[1]), 1);
}

// It ran twice without a word, as one rank each.
TEST_F(PlanTest, RanksOfOpenMpiAreLeftToItsOwnMpirun) {
  mpi_use_ = MpiUse::kOpenMpi;
  Ranks(2, 1);
  EXPECT_NE(Error().find("./app is linked with Open MPI"), std::string::npos);
  EXPECT_NE(Error().find("ramspan run -n 1 ... -- mpirun -n 2 ./app"), std::string::npos);
  Ranks(2, 0);
  EXPECT_NE(Error().find("as -n 2 it would run 2 times"), std::string::npos);
  options_.app = {"mpirun.openmpi", "-n", "2", "./app"};
  EXPECT_NE(Error().find("mpirun.openmpi starts the ranks itself"), std::string::npos);
  options_.app = {"./app"};
  Ranks(1, 1);
  EXPECT_TRUE(Notes(Make(), "--transport ofi: ./app is linked with Open MPI"));
  EXPECT_EQ(Make().outside_servers, 1);
  options_.transport = "mpi";
  EXPECT_NE(Error().find("servers that are ranks are MPICH's"), std::string::npos);
}

// A program that includes <mpi.h> behind a script had servers among its ranks.
TEST_F(PlanTest, AutoTakesOfiForScriptsBecauseNobodyKnowsWhatTheyRun) {
  mpi_use_ = std::nullopt;
  for (const int ranks : {1, 2}) {
    Ranks(ranks, 1);
    EXPECT_TRUE(Notes(Make(), "--transport ofi: ./app is no binary that says whether it uses MPI"));
    EXPECT_EQ(Make().outside_servers, 1);
  }
}

// It hung without a word.
TEST_F(PlanTest, ServersAmongTheRanksOfAProgramThatKnowsNothingOfThemAreWarnedOf) {
  Ranks(2, 1);
  options_.transport = "mpi";
  mpi_use_ = MpiUse::kPlain;
  EXPECT_TRUE(Notes(Make(), "MPI_COMM_WORLD has 3 ranks, servers among them, and its first collective call waits for these for ever. Remedy: --transport ofi"));
  options_.transport = "auto";
  facts_.server = "";
  EXPECT_TRUE(Notes(Make(), "MPI_COMM_WORLD has 3 ranks"));
  for (const auto& use : {std::optional(MpiUse::kRamspan), std::optional(MpiUse::kNone), std::optional<MpiUse>()}) {
    mpi_use_ = use;
    EXPECT_FALSE(Notes(Make(), "MPI_COMM_WORLD has"));
  }
}

TEST_F(PlanTest, OfiWithoutServersNeedsTheNamesOfSome) {
  Ranks(1, 0);
  options_.transport = "ofi";
  EXPECT_NE(Error().find("-s 1 or more"), std::string::npos);
  environment_["RAMSPAN_SERVERS"] = "node7:7117";
  EXPECT_EQ(Env(Make(), "RAMSPAN_TRANSPORT"), "(unset)");
}

// The launcher's own settings for jobs without servers were stronger than the file: everything went to local files, without a word.
TEST_F(PlanTest, ServersOfAConfigurationFileStayNamed) {
  Ranks(1, 0);
  facts_.app_servers = "node7:7117";
  for (const char* transport : {"auto", "ofi"}) {
    options_.transport = transport;
    EXPECT_EQ(Env(Make(), "RAMSPAN_SERVERS"), "(unset)");
    EXPECT_EQ(Env(Make(), "RAMSPAN_TRANSPORT"), "(unset)");
  }
  options_.transport = "none";
  EXPECT_EQ(Env(Make(), "RAMSPAN_SERVERS"), "0");
  options_.transport = "auto";
  environment_["RAMSPAN_SERVERS"] = "0";  // stronger than the file
  EXPECT_EQ(Env(Make(), "RAMSPAN_SERVERS"), "0");
}

TEST_F(PlanTest, OfiServersNeedNoRoomInSharedMemory) {
  Ranks(2, 2);
  options_.transport = "ofi";
  facts_.shared_memory_free = 0;
  options_.server_memory = "3GiB";
  EXPECT_EQ(Make().outside_servers, 2);
  options_.server_memory = "5GiB";
  EXPECT_NE(Error().find("--server-memory 4096MiB or less"), std::string::npos);
  options_.server_memory = "";
  EXPECT_TRUE(Notes(Make(), "--server-memory 2048MiB for each server"));
}

TEST_F(PlanTest, TheDryRunOfOfiShowsServersAndJob) {
  Ranks(1, 2);
  options_.transport = "ofi";
  EXPECT_EQ(ShellLine(Make()),
            "RUN=$(mktemp -d)\n"
            "/opt/bin/ramspan-server --memory 512MiB --socket $RUN/server-1 --key-file $RUN/server-key &\n"
            "/opt/bin/ramspan-server --memory 512MiB --socket $RUN/server-2 --key-file $RUN/server-key &\n"
            "RAMSPAN_SERVERS=$RUN/server-1,$RUN/server-2 RAMSPAN_TRANSPORT=ofi RAMSPAN_SERVER_KEY_FILE=$RUN/server-key "
            "RAMSPAN_MEMORY=64MiB /opt/bin/ramspan __rank -- ./app in.txt");
}

TEST_F(PlanTest, BadCountsAndSizesAreErrors) {
  Ranks(0, 1);
  EXPECT_NE(Error().find("-n 0"), std::string::npos);
  Ranks(2, -1);
  EXPECT_NE(Error().find("-s -1"), std::string::npos);
  Ranks(2, 1);
  options_.memory = "64 Mub";
  EXPECT_NE(Error().find("--memory"), std::string::npos);
  options_.memory = "64KiB";
  EXPECT_EQ(Error(), "--memory 64KiB: at least 1 MiB");
}

TEST_F(PlanTest, ABareNumberThatIsTooSmallIsAskedForItsUnits) {
  options_.memory = "64";
  EXPECT_EQ(Error(), "--memory 64: at least 1 MiB; units forgotten? (64MiB)");
  options_.memory = "64MiB";
  options_.server_memory = "6";
  EXPECT_EQ(Error(), "--server-memory 6: at least 1 MiB; units forgotten? (6MiB)");
}

TEST_F(PlanTest, MissingApplicationIsAnError) {
  options_.app = {"absent"};
  EXPECT_NE(Error().find("absent is not in PATH"), std::string::npos);
  options_.app = {};
  EXPECT_NE(Error().find("no program to run"), std::string::npos);
}

TEST_F(PlanTest, ServersThatDoNotFitAreAnErrorThatNamesWhatFits) {
  Ranks(2, 2);
  options_.server_memory = "3GiB";
  EXPECT_NE(Error().find("/dev/shm"), std::string::npos);  // which four ranks of MPI need some of
  EXPECT_NE(Error().find("--server-memory 2034MiB or less"), std::string::npos);
  facts_.shared_memory_free = 100 * kGiB;
  options_.server_memory = "5GiB";
  EXPECT_NE(Error().find("--server-memory 4096MiB or less"), std::string::npos);
  facts_.shared_memory_free = 0;  // it said "--server-memory 0MiB or less"
  EXPECT_NE(Error().find("Remedy: fewer servers (-s), or -s 0: files only"), std::string::npos);
}

// --memory 1TiB on a host with 24 GiB was accepted without a word.
TEST_F(PlanTest, LimitsThatTheHostCannotHoldAreWarnedOfWithBothFigures) {
  Ranks(2, 1);
  options_.memory = "4GiB";
  EXPECT_TRUE(Notes(Make(), "2 ranks of 4 GiB and 512 MiB for the servers make 8.50 GiB, but this host has 8 GiB"));
  options_.memory = "3GiB";
  EXPECT_FALSE(Notes(Make(), "warning"));
  options_.memory = "";
  environment_["RAMSPAN_MEMORY"] = "1TiB";
  EXPECT_TRUE(Notes(Make(), "2 ranks of 1 TiB"));
  options_.hostfile = "hosts";
  hostfile_ = "alpha\nbeta\n";
  EXPECT_FALSE(Notes(Make(), "warning"));  // which rank lands where is mpiexec's choice
}

TEST_F(PlanTest, TheServersSizeInTheEnvironmentIsCheckedToo) {
  Ranks(1, 1);
  options_.server_memory = "";
  environment_["RAMSPAN_SERVER_MEMORY"] = "9GiB";
  EXPECT_NE(Error().find("not fit"), std::string::npos);
}

TEST_F(PlanTest, RanksOfOneHostShareItsMemoryWhenNobodySaysHow) {
  Ranks(2, 1);
  options_.memory = "";
  options_.server_memory = "3GiB";
  EXPECT_TRUE(Notes(Make(), "--memory 1280MiB"));
  facts_.app_memory_configured = true;
  EXPECT_FALSE(Notes(Make(), "--memory"));
}

// -x RAMSPAN_MEMORY was overridden by a share of the machine.
TEST_F(PlanTest, ALimitGivenByDashXIsALimit) {
  Ranks(2, 1);
  options_.memory = "";
  for (const char* one : {"RAMSPAN_MEMORY=64MiB", "RAMSPAN_CONFIG=/some.conf"}) {
    options_.env = {one};
    EXPECT_FALSE(Notes(Make(), "--memory")) << one;
  }
  options_.server_memory = "";
  options_.env = {"RAMSPAN_SERVER_MEMORY=9GiB"};
  EXPECT_NE(Error().find("not fit"), std::string::npos);
}

TEST_F(PlanTest, SeveralHostsGetTheTcpSetting) {
  Ranks(2, 1);
  options_.hostfile = "hosts";
  hostfile_ = "# two\nalpha:4\n\nbeta:4\n";
  Plan plan = Make();
  EXPECT_TRUE(plan.several_hosts);
  EXPECT_EQ(Env(plan, "UCX_TCP_TX_SEG_SIZE"), "64k");
  EXPECT_TRUE(Notes(plan, "UCX_TCP_TX_SEG_SIZE"));
  hostfile_ = "alpha:4\n";
  plan = Make();
  EXPECT_FALSE(plan.several_hosts);
  EXPECT_EQ(Env(plan, "UCX_TCP_TX_SEG_SIZE"), "(unset)");
}

TEST_F(PlanTest, TheUsersUcxSettingsWin) {
  Ranks(2, 1);
  options_.mpi_args = {"-hosts", "alpha,beta"};
  environment_["UCX_TCP_TX_SEG_SIZE"] = "16k";
  EXPECT_EQ(Env(Make(), "UCX_TCP_TX_SEG_SIZE"), "(unset)");
  environment_.clear();
  options_.env = {"UCX_TCP_TX_SEG_SIZE=32k"};
  EXPECT_EQ(Env(Make(), "UCX_TCP_TX_SEG_SIZE"), "32k");
}

TEST_F(PlanTest, TcpChosenByTheUserOnOneHostGetsTheSettingToo) {
  Ranks(2, 1);
  options_.env = {"UCX_TLS=tcp,self"};
  EXPECT_EQ(Env(Make(), "UCX_TCP_TX_SEG_SIZE"), "64k");
}

TEST_F(PlanTest, AnEnvironmentSettingNeedsANameAndAValue) {
  options_.env = {"UCX_TLS"};
  EXPECT_NE(Error().find("NAME=VALUE"), std::string::npos);
}

TEST_F(PlanTest, EmptyHostfileIsAnError) {
  options_.hostfile = "hosts";
  hostfile_ = "# none\n";
  EXPECT_NE(Error().find("names no host"), std::string::npos);
}

TEST_F(PlanTest, SlurmGivesTheRanksMinusTheServers) {
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "4"}, {"SLURM_NTASKS", "16"}};
  options_.servers = 4;
  const Plan plan = Make();
  EXPECT_EQ(plan.ranks, 12);
  EXPECT_TRUE(plan.several_hosts);
  EXPECT_TRUE(Notes(plan, "-n 12"));
  EXPECT_EQ(Env(plan, "UCX_TCP_TX_SEG_SIZE"), "64k");
}

TEST_F(PlanTest, ServersOfAnAllocationHaveNodesOfTheirOwnWhereSomeAreLeft) {
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "4"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_NODELIST", "n[1-4]"}, {"SLURM_TASKS_PER_NODE", "4(x4)"}};
  Ranks(6, 2);
  options_.transport = "mpi";
  Plan plan = Make();
  EXPECT_EQ(Words(plan.argv.begin(), plan.argv.begin() + 5), (Words{"/usr/bin/mpiexec.hydra", "-hosts", "n1:4,n2:2,n3:1,n4:1", "-n", "6"}));
  EXPECT_TRUE(Notes(plan, "SLURM job on 4 nodes: 6 ranks on n1 n2, 2 servers on n3 n4"));
  options_.transport = "ofi";
  plan = Make();
  EXPECT_EQ(Words(plan.argv.begin(), plan.argv.begin() + 5), (Words{"/usr/bin/mpiexec.hydra", "-hosts", "n1:4,n2:2", "-n", "6"}));
  EXPECT_EQ(Words(plan.server_argv.begin(), plan.server_argv.begin() + 8),
            (Words{"/usr/bin/mpiexec.hydra", "-hosts", "n3:1,n4:1", "-disable-auto-cleanup", "-n", "2", "/opt/bin/ramspan", "__server"}));
  EXPECT_EQ(Env(plan, "SLURM_OVERLAP"), "1") << "two steps at once";
}

TEST_F(PlanTest, ServersOfAFullAllocationAreSpreadWhereTheyMayAndLastWhereTheyMust) {
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "2"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "4(x2)"}};
  options_.servers = 2;
  options_.transport = "mpi";
  Plan plan = Make();
  EXPECT_EQ(plan.argv[2], "n1:4,n2:4");
  EXPECT_TRUE(Notes(plan, "6 ranks on n1 n2, 2 servers on n2, the last ones, because no node is free of ranks"));
  options_.transport = "ofi";
  plan = Make();
  EXPECT_EQ(plan.argv[2], "n1:4,n2:2");
  EXPECT_EQ(plan.server_argv[2], "n1:1,n2:1");
}

TEST_F(PlanTest, TheOneRankOfAPlacedJobIsStartedOnItsNode) {
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "2"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "1(x2)"}};
  Ranks(1, 1);
  options_.transport = "ofi";
  EXPECT_EQ(Make().argv[2], "n1:1") << "the launcher may be on a login node";
}

TEST_F(PlanTest, HostsThatTheUserNamesAreNotPlaced) {
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}};
  Ranks(2, 1);
  options_.mpi_args = {"-hosts", "alpha,beta"};
  const Plan plan = Make();
  EXPECT_EQ(std::count(plan.argv.begin(), plan.argv.end(), "-hosts"), 1);
  EXPECT_FALSE(Notes(plan, "n1"));
}

TEST_F(PlanTest, PbsGivesNodesAndTasksInItsFile) {
  environment_ = {{"PBS_JOBID", "12.head"}, {"PBS_NODEFILE", "/var/spool/pbs/aux/12"}};
  hostfile_ = "alpha\nalpha\nbeta\nbeta\n";
  options_.servers = 1;
  options_.transport = "mpi";
  Plan plan = Make();
  EXPECT_EQ(plan.ranks, 3);
  EXPECT_TRUE(plan.several_hosts);
  EXPECT_EQ(Words(plan.argv.begin(), plan.argv.begin() + 5), (Words{"/usr/bin/mpiexec.hydra", "-hosts", "alpha:2,beta:2", "-n", "3"}));
  EXPECT_TRUE(Notes(plan, "-n 3 (the tasks of this PBS job minus the servers)"));
  Ranks(2, 1);
  EXPECT_EQ(Make().argv[2], "alpha:2,beta:1");
  EXPECT_TRUE(Notes(Make(), "PBS job on 2 nodes: 2 ranks on alpha, 1 server on beta"));
  EXPECT_EQ(Env(Make(), "SLURM_OVERLAP"), "(unset)");
}

// Flux tells no program where it is: `flux hostlist local` does, and the planner gets it as a file (docs/operations.md). The ranks and the servers
// of such a job stood on the same nodes.
TEST_F(PlanTest, RanksAndServersArePlacedInTheHostsOfAFile) {
  environment_ = {{"FLUX_URI", "local:///run/flux/local"}};
  hostfile_ = "alpha:4\nbeta:4\ngamma:4\n";
  options_.hostfile = "hosts";
  options_.transport = "mpi";
  Ranks(2, 2);
  const Plan plan = Make();
  EXPECT_EQ(Words(plan.argv.begin(), plan.argv.begin() + 5), (Words{"/usr/bin/mpiexec.hydra", "-hosts", "alpha:2,beta:1,gamma:1", "-n", "2"}));
  EXPECT_TRUE(Notes(plan, "--hostfile hosts: 2 ranks on alpha, 2 servers on beta gamma"));
}

// All was planned on this host, and nothing was said.
TEST_F(PlanTest, AFluxInstanceWithoutAHostFileIsOneHostAndTheRemedyIsSaid) {
  const auto remedy = "flux hostlist -e local | tr ' ' '\\n' | sed 's/$/:4/' > hosts, and --hostfile hosts";
  options_.transport = "mpi";
  Ranks(2, 2);
  EXPECT_FALSE(Notes(Make(), remedy)) << "there is no Flux";
  environment_ = {{"FLUX_URI", "local:///run/flux/local"}};
  EXPECT_TRUE(Notes(Make(), remedy));
  EXPECT_FALSE(Make().several_hosts);
  environment_ = {{"FLUX_URI", "local:///run/flux/local"}, {"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "1"}};
  EXPECT_FALSE(Notes(Make(), remedy)) << "that one tells them";
  environment_ = {{"FLUX_URI", "local:///run/flux/local"}};
  hostfile_ = "alpha:4\nbeta:4\n";
  options_.hostfile = "hosts";
  EXPECT_FALSE(Notes(Make(), remedy));
}

TEST_F(PlanTest, AHostFileThatOnlyMpiexecUnderstandsIsLeftToIt) {
  options_.hostfile = "hosts";
  options_.transport = "mpi";
  for (const auto& [text, ranks] : {std::pair("alpha:4 binding=user:0\nbeta:4\n", 2), {"alpha:x\nbeta:4\n", 2}, {"alpha:2000000000\nbeta:2000000000\n", 2}, {"alpha\nbeta\n", 3}, {"alpha\nbeta\nalpha\nbeta\ngamma\n", 4}}) {
    hostfile_ = text;
    Ranks(ranks, 1);
    const Plan plan = Make();
    EXPECT_EQ(Words(plan.argv.begin(), plan.argv.begin() + 3), (Words{"/usr/bin/mpiexec.hydra", "-f", "hosts"})) << text;
  }
}

TEST_F(PlanTest, SlurmOnOneNodeIsOneHost) {
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_NTASKS", "3"}};
  options_.servers = 1;
  EXPECT_FALSE(Make().several_hosts);
}

TEST_F(PlanTest, SlurmWithoutATaskForTheApplicationIsAnError) {
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}};
  options_.servers = 2;
  EXPECT_NE(Error().find("no compute rank is left"), std::string::npos);
}

TEST_F(PlanTest, MoreRanksThanSlurmTasksAreNoted) {
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}};
  Ranks(2, 1);
  EXPECT_TRUE(Notes(Make(), "more than the 2 tasks"));
}

TEST_F(PlanTest, GarbageFromSlurmIsIgnored) {
  environment_ = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "many"}, {"SLURM_NNODES", "-1"}};
  options_.servers = 1;
  const Plan plan = Make();
  EXPECT_EQ(plan.ranks, 1);
  EXPECT_FALSE(plan.several_hosts);
}

TEST_F(PlanTest, StatisticsOfSeveralRanksGetAFileEach) {
  Ranks(2, 1);
  options_.stats = "out.d/run.json";
  EXPECT_TRUE(Notes(Make(), "out.d/run.%r.json"));
  options_.stats = "out.d/run";
  EXPECT_TRUE(Notes(Make(), "out.d/run.%r "));
  options_.stats = "run-%p.json";
  EXPECT_FALSE(Notes(Make(), "--stats"));
}

TEST_F(PlanTest, TheShellLineQuotesWhatAShellWouldChange) {
  Ranks(1, 0);
  options_.app = {"./app", "a b", "it's", "$x"};
  options_.env = {"A=1 2"};
  const std::string line = ShellLine(Make());
  EXPECT_NE(line.find("A='1 2' "), std::string::npos);
  EXPECT_NE(line.find("'a b' 'it'\\''s' '$x'"), std::string::npos);
}

}  // namespace
}  // namespace ramspan
