// Policies by name, and the second of them by itself (the engine's schedules in tests/sim run over all of them).
#include "client/policy/policy_factory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/arena/budget.h"
#include "common/config.h"

namespace ramspan {
namespace {

TEST(PolicyFactory, MakesAPolicyOfItsOwnForEachNameThatTheConfigurationKnows) {
  Budget budget(1 << 20);
  ChunkTable table(&budget);
  ASSERT_GE(PolicyNames().size(), 2u);
  EXPECT_EQ(Config().memory_manager, PolicyNames()[0]);
  for (const char* name : PolicyNames()) {
    ConfigSources sources;
    sources.program.memoryManager = name;
    const Result<Config> config = LoadConfig(sources);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_TRUE(MakePolicy(config.value().memory_manager, &table).ok()) << name;
  }
  // Only cyclic reads ahead: they are not one class under two names.
  const auto reads_ahead = [&](const char* name) {
    auto policy = MakePolicy(name, &table).value();
    policy->SetLimits(1 << 20, 0);
    return policy->WantsReadAhead();
  };
  EXPECT_TRUE(reads_ahead("cyclic"));
  EXPECT_FALSE(reads_ahead("second-chance"));
}

TEST(PolicyFactory, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  Budget budget(1 << 20);
  ChunkTable table(&budget);
  const auto made = MakePolicy("lru", &table);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(made.status().message(), "there is no cache policy \"lru\"; the choices are replay, cyclic, second-chance");
}

class SecondChance : public testing::Test {
 protected:
  SecondChance() : budget_(1 << 20), table_(&budget_), policy_(MakePolicy("second-chance", &table_).value()) {}
  ~SecondChance() override { EXPECT_TRUE(policy_->IsValid()); }

  // A chunk of 10 bytes that came in and has been pinned.
  Chunk* Used() {
    Chunk* chunk = table_.New(10);
    policy_->OnCreate(chunk);
    policy_->OnMiss(chunk, 0);
    Transition(chunk, Event::kMaterialize, kReadable | kWritable | kReferenced);
    return chunk;
  }
  void Leave(Chunk* chunk) { Transition(chunk, Event::kDrop, 0, kReadable | kWritable | kReferenced); }
  std::vector<Chunk*> Victims(uint64_t bytes) {
    Chunk* out[32];
    return {out, out + policy_->PickVictims(bytes, out)};
  }

  Budget budget_;
  ChunkTable table_;
  std::unique_ptr<CachePolicy> policy_;
};

TEST_F(SecondChance, TheOldestLeavesFirstUnlessItWasUsedSinceTheHandsLastVisit) {
  Chunk* c[4];
  for (Chunk*& one : c) one = Used();
  EXPECT_EQ(Victims(10), std::vector<Chunk*>{c[0]});  // all have been used: one round clears them
  Leave(c[0]);
  SetBits(c[1], kReferenced);  // a pin's slow path
  EXPECT_EQ(Victims(20), (std::vector<Chunk*>{c[2], c[3]}));
  Leave(c[2]);
  Leave(c[3]);
  EXPECT_EQ(Victims(10), std::vector<Chunk*>{c[1]}) << "one more round is all it gets";
}

TEST_F(SecondChance, NamesEachChunkOnceThoughMoreIsAskedFor) {
  Chunk* c[3];
  for (Chunk*& one : c) one = Used();
  EXPECT_EQ(Victims(1000), (std::vector<Chunk*>{c[0], c[1], c[2]}));
  EXPECT_EQ(Victims(1000).size(), 3u) << "those that are pinned stay, and are named again";
}

TEST_F(SecondChance, WhatComesBackStandsBehindAllOthers) {
  Chunk* c[3];
  for (Chunk*& one : c) one = Used();
  EXPECT_EQ(Victims(10), std::vector<Chunk*>{c[0]});
  Leave(c[0]);
  policy_->OnMiss(c[0], 0);
  Transition(c[0], Event::kMaterialize, kReadable | kWritable | kReferenced);
  EXPECT_EQ(Victims(1000), (std::vector<Chunk*>{c[1], c[2]})) << "it has been used since";
  EXPECT_EQ(Victims(1000), (std::vector<Chunk*>{c[1], c[2], c[0]}));
}

TEST_F(SecondChance, TakesOverWhatIsInMemoryAlready) {
  Chunk* resident = table_.New(10);
  Transition(resident, Event::kMaterialize, kReadable | kWritable);
  Chunk* swapped = table_.New(10);
  policy_->OnCreate(resident);
  policy_->OnCreate(swapped);
  EXPECT_EQ(Victims(1000), std::vector<Chunk*>{resident});
  policy_->OnFree(swapped);
  policy_->OnFree(resident);
  EXPECT_TRUE(Victims(1000).empty());
}

}  // namespace
}  // namespace ramspan
