// Class support: constructors, arrays, nested managedPtrs, destructors, what is forgotten, the tree of objects.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rambrain/managedPtr.h"
#include "ramspan/runtime.h"
#include "tests/rambrain/fill_memory.h"
#include "tests/rambrain/row.h"
#include "tests/rambrain/life.h"
#include "tests/support/octree.h"
#include "tests/support/send_signal.h"

using namespace rambrain;

namespace {

std::vector<std::string> events;

struct Part {
  explicit Part(int n) : number(n), data(1 << 17, n) {}  // 1 MiB
  ~Part() {
    ADHERETO(double, data);
    EXPECT_EQ(data[5], number);
    events.push_back("part " + std::to_string(number));
  }
  int number;
  managedPtr<double> data;
};

struct Plain {
  Plain(int n, double d) : number(n), parts(3, n), value(d) {}
  ~Plain() { events.push_back("plain " + std::to_string(number)); }
  int number;
  managedPtr<Part> parts;
  double value;
};

TEST(Objects, DestructorsRunInTheRightOrderAlsoWhenPartsAreSwappedOut) {
  events.clear();
  {
    managedPtr<Plain> objects(2, 7, 1.5);
    FillMemory();
    {
      ADHERETOLOCCONST(Plain, objects, o);
      EXPECT_EQ(o[1].value, 1.5);
      ROWCONST(Part, o[1].parts, p);
      ROWCONST(double, p[2].data, values);
      EXPECT_EQ(values[131071], 7);
    }
    FillMemory();
    EXPECT_TRUE(events.empty());
  }
  ASSERT_EQ(events.size(), 8u);
  EXPECT_EQ(events[0], "plain 7");  // the parent first, then its parts
  EXPECT_EQ(events[1], "part 7");
  EXPECT_EQ(events[3], "part 7");
  EXPECT_EQ(events[4], "plain 7");
}

TEST(Objects, PartsAreSwappedOnTheirOwn) {
  managedPtr<Plain> object(1, 1, 2.0);
  ADHERETOLOC(Plain, object, o);
  // Others are held until no more can be: its parts have left for them, though it is held itself.
  std::vector<managedPtr<char>> others;
  std::vector<adhereTo<char>> glues;
  for (int i = 0; i < 32; ++i) others.emplace_back(1 << 20);
  EXPECT_THROW(
      for (auto& other : others) {
        glues.emplace_back(other);
        char* data = glues.back();
        data[0] = 1;
      },
      memoryException);
  EXPECT_GE(ramspan::GetStatistics().swapped, 3u << 20);
  glues.clear();
  EXPECT_EQ(o->value, 2.0);
  ROWCONST(Part, o->parts, p);
  EXPECT_EQ(p[0].number, 1);
}

TEST(Objects, AManagedPtrOfManagedPtrs) {
  managedPtr<managedPtr<managedPtr<int>>> deep(3, 4, 5);
  ADHERETOLOC(managedPtr<managedPtr<int>>, deep, a);
  ROW(managedPtr<int>, a[2], b);
  {
    ROW(int, b[3], c);
    c[4] = 6;
  }
  EXPECT_EQ(b[3].size(), 5u);
  ROWCONST(int, b[3], c);
  EXPECT_EQ(c[4], 6);
}

TEST(Objects, InStlContainers) {
  std::vector<managedPtr<double>> v(3, managedPtr<double>(4, 1.0));
  v.resize(10);
  v.erase(v.begin());
  ROWCONST(double, v[1], data);
  EXPECT_EQ(data[3], 1.0);
}

struct OfRambrain {
  template <typename T>
  using Managed = managedPtr<T>;
  template <typename T>
  using Adhere = adhereTo<T>;
};
TEST(Objects, WithManagedPtrsToTheirOwnTypeAreATree) { octree::GrowCountAndFell<OfRambrain>(); }

struct Twig {
  managedPtr<Twig> child[2];
};
struct Numbered {
  explicit Numbered(int n) : number(n) {}
  int number;
  managedPtr<Numbered> next{nullptr};
};

// It was SIGSEGV, as with Rambrain: each node makes the next.
TEST(Objects, ThatMakeEachOtherWithoutEndAreAnExceptionThatNamesTheRemedy) {
  const uint64_t before = ramspan::GetStatistics().small_objects;
  try {
    const managedPtr<Twig> root;
    ADD_FAILURE() << "without end, and it ended";
  } catch (const memoryException& e) {
    EXPECT_NE(std::string(e.what()).find("{nullptr}"), std::string::npos) << e.what();
  }
  EXPECT_EQ(ramspan::GetStatistics().small_objects, before);
}

TEST(Objects, OfAClassWithoutDefaultConstructorMayBeNone) {
  const managedPtr<Numbered> none(nullptr), zero(0);
  EXPECT_EQ(none.size(), 0u);
  EXPECT_EQ(zero.size(), 0u);
  EXPECT_EQ(managedPtr<Numbered>(1, 7).size(), 1u);
}

TEST(Tree, IsTrackedOnDemandAndFollowsConstructors) {
  managedMemory& m = *managedMemory::defaultManager;
  managedPtr<double> untracked(3);
  EXPECT_EQ(managedMemory::idOf(untracked), managedMemory::invalid);
  const unsigned before = m.getNumberOfChildren(managedMemory::root);
  EXPECT_FALSE(managedMemory::trackHierarchy());
  {
    managedPtr<Plain> object(1, 1, 2.0);
    managedPtr<double> simple(3);
    EXPECT_EQ(m.getNumberOfChildren(managedMemory::root), before + 2);
    EXPECT_EQ(m.getNumberOfChildren(managedMemory::idOf(object)), 1u);  // its parts
    ADHERETOLOCCONST(Plain, object, o);
    EXPECT_EQ(m.getNumberOfChildren(managedMemory::idOf(o->parts)), 3u);
    ROWCONST(Part, o->parts, p);
    EXPECT_EQ(m.getNumberOfChildren(managedMemory::idOf(p[0].data)), 0u);
    testing::internal::CaptureStdout();
    m.printTree();
    const std::string text = testing::internal::GetCapturedStdout();
    EXPECT_NE(text.find("(1 : root)"), std::string::npos);
    EXPECT_NE(text.find("in use"), std::string::npos) << text;
    EXPECT_NE(text.find("      ("), std::string::npos) << text;  // three deep
  }
  EXPECT_TRUE(managedMemory::trackHierarchy(false));
  EXPECT_EQ(m.getNumberOfChildren(managedMemory::root), before);
}

// Rambrain let one thread at a time construct.
TEST(Tree, ThreadsConstructAtOnce) {
  managedMemory::trackHierarchy();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        managedPtr<managedPtr<int>> p(3, 4, t);
        EXPECT_EQ(managedMemory::defaultManager->getNumberOfChildren(managedMemory::idOf(p)), 3u);
      }
    });
  }
  for (auto& t : threads) t.join();
  managedMemory::trackHierarchy(false);
}

TEST(Forgotten, ObjectsAreDestroyedAtExitParentsFirst) {
  const Life life("forget");
  EXPECT_EQ(life.status, 0);
  EXPECT_EQ(life.out,
            "tree 2 with 20\nleaf 20 20\nleaf 20 20\n"  // a static one, in its turn
            "tree 1 with 10\nleaf 10 10\nleaf 10 10\n"
            "tree 3 with 30\ntree 3 with 30\nleaf 30 30\nleaf 30 30\nleaf 30 30\nleaf 30 30\n");
}

// Their destructors ran after those of static objects that are younger than Ramspan's start, and used them.
TEST(Forgotten, ObjectsAreDestroyedBeforeStaticOnesThatTheyUse) {
  const Life life("logger");
  EXPECT_EQ(life.status, 0);
  EXPECT_EQ(life.out, "logged\n");
}

// exit() waited for pins of a thread that would never run again.
TEST(Forgotten, WhatFindsNoMemoryBesideAnotherThreadsPinsIsGivenUpAtExit) {
  const Life life("exit-while-pinned 2>&1", "timeout 60");
  EXPECT_EQ(life.status, 0);
  EXPECT_NE(life.out.find("given up without their destructors"), std::string::npos) << life.out;
  EXPECT_EQ(life.out.find("block"), std::string::npos) << life.out;
}

// Static objects are destroyed before the library hears of the exit(), and one that had to come back for that waited for ever.
TEST(Forgotten, AStaticObjectThatFindsNoMemoryBesideAnotherThreadsPinsIsGivenUpAtExit) {
  const Life life("exit-static-while-pinned 2>&1", "timeout 30");
  EXPECT_EQ(life.status, 0);
  EXPECT_NE(life.out.find("given up without their destructors"), std::string::npos) << life.out;
  EXPECT_EQ(life.out.find("block"), std::string::npos) << life.out;
}

TEST(Forgotten, MayBeLeftAlone) {
  const Life life("leave");
  EXPECT_EQ(life.status, 0);
  EXPECT_EQ(life.out, "");
}

TEST(Tree, IsPrintedByAProgramCompiledForIt) {
  const Life life("tree");
  EXPECT_EQ(life.status, 0);
  const auto lines = Split(life.out, '\n');
  ASSERT_EQ(lines.size(), 11u) << life.out;
  EXPECT_EQ(lines[0], "(1 : root)");
  EXPECT_EQ(lines[1].find("  (2 : size"), 0u) << life.out;
  EXPECT_EQ(lines[2].find("    (3 : size"), 0u) << life.out;
  EXPECT_EQ(lines[3].find("      (4 : size 262144 Bytes"), 0u) << life.out;
  EXPECT_EQ(lines[5].find("  (6 : size 32 Bytes"), 0u) << life.out;
  EXPECT_EQ(lines[6], "1 children");
  EXPECT_EQ(lines[7].find("      (2 : size"), 0u) << life.out;
}

// What is made and goes is noted behind a mutex, which another thread may have held at the fork: the child stood still for ever.
TEST(Objects, MayGoInAForkedChild) {
  struct Thing {
    Thing() {}
    ~Thing() { letter = 0; }
    char letter = 1;
  };
  std::optional<managedPtr<Thing>> one;
  one.emplace(8192);  // no part of a bundle
  std::atomic<bool> end{false};
  std::vector<std::thread> makers;
  for (int i = 0; i < 2; ++i) {
    makers.emplace_back([&] {
      while (!end) managedPtr<Thing>(8192);
    });
  }
  int status = 0;
  for (int i = 0; i < 100 && status == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      one.reset();
      _exit(0);
    }
    status = -1;
    for (int waits = 0; waits < 10'000 && waitpid(child, &status, WNOHANG) == 0; ++waits) usleep(1000);
    if (status == -1 && SendSignal(child, SIGKILL) == 0) waitpid(child, nullptr, 0);
  }
  end = true;
  for (std::thread& maker : makers) maker.join();
  EXPECT_EQ(status, 0);
}

}  // namespace
