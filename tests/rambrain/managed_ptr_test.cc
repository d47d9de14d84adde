// managedPtr, adhereTo, macros, exceptions: appendix A.1 and A.2 of arXiv 1510.06358, and Rambrain's known defects.
#include "rambrain/managedPtr.h"
#include "tests/rambrain/fill_memory.h"
#include "tests/rambrain/row.h"
#include "tests/support/ends_or_else.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rambrain/rambrain.h"
#include "rambrain/rambrainDefinitionsHeader.h"
#include "rambrain/common.h"
#include "ramspan/adhere_all.h"
#include "ramspan/runtime.h"

using namespace rambrain;

namespace {

constexpr unsigned int kDoubles = 1 << 17;  // 1 MiB

TEST(ManagedPtr, ElementsWithoutArgumentsAreZeroAsInRambrain) {
  managedPtr<double> p(100);
  ADHERETOLOCCONST(double, p, data);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(data[i], 0.0);
}

TEST(ManagedPtr, ZeroElementsAreANullPointer) {
  managedPtr<double> p(0);
  EXPECT_EQ(p.size(), 0u);
  adhereTo<double> glue(p);
  double* data = glue;
  EXPECT_EQ(data, nullptr);
  const adhereTo<double> const_glue(&p);
  const double* const_data = const_glue;
  EXPECT_EQ(const_data, nullptr);
  EXPECT_EQ(p.getLocPtr(), nullptr);
  EXPECT_TRUE(p.prepareUse());
  EXPECT_TRUE(p.setUse());
  EXPECT_TRUE(p.unsetUse());
  managedPtr<double, 2> q(0, 5);
  EXPECT_EQ(q.size(), 0u);
}

TEST(ManagedPtr, CopiesShareAndAssignmentLetsGo) {
  managedPtr<int> a(10, 1), b(20, 2);
  managedPtr<int> c(a);
  {
    ADHERETOLOC(int, c, data);
    data[3] = 7;
  }
  ADHERETOLOCCONST(int, a, first);
  EXPECT_EQ(first[3], 7);
  c = b;
  EXPECT_EQ(c.size(), 20u);
  const managedPtr<int>& same = c;
  c = same;
  ADHERETOLOCCONST(int, c, second);
  EXPECT_EQ(second[19], 2);
}

TEST(ManagedPtr, DimensionsAreRowsThatSwapOnTheirOwn) {
  managedPtr<double, 3> cube(2, 40, kDoubles / 4, 3.5);  // 20 MiB in 80 rows
  EXPECT_EQ(cube.size(), 2u);
  EXPECT_EQ(cube[0].size(), 40u);
  EXPECT_EQ(cube[1][2].size(), kDoubles / 4);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 40; ++j) {
      ROW(double, cube[i][j], row);
      EXPECT_EQ(row[kDoubles / 4 - 1], 3.5);
      row[0] = i * 100 + j;
    }
  }
  managedPtr<double, 3> copy(cube);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 40; ++j) {
      const adhereTo<double> glue(copy[i][j]);
      const double* row = glue;
      EXPECT_EQ(row[0], i * 100 + j);
    }
  }
  copy = managedPtr<double, 3>(1, 1, 1);
  EXPECT_EQ(copy.size(), 1u);
  cube[1][2][5] = 8;
  const managedPtr<double, 3>& view = cube;
  EXPECT_EQ(view[1][2][5], 8.0);
}

// It ended in SIGSEGV.
TEST(ManagedPtr, ARowOutsideIsAnException) {
  managedPtr<double, 2> field(4, 10);
  const auto message = [](auto& rows, global_bytesize i) -> std::string {
    try {
      static_cast<void>(rows[i]);
      return "no exception";
    } catch (const memoryException& e) {
      return e.what();
    }
  };
  EXPECT_NE(message(field, 4).find("there is no row 4: there are 4, counted from 0"), std::string::npos) << message(field, 4);
  EXPECT_NE(message(std::as_const(field), 4).find("there is no row 4"), std::string::npos);
  EXPECT_EQ(message(field, 3), "no exception");
}

TEST(ManagedPtr, ElementAccessWithoutAnAdhereTo) {
  managedPtr<int> p(4, 5);
  p[1] = 7;
  p[2] += p[1];
  p[3] = p[2];
  ++p[0];
  const int sum = p[0] + p[1] + p[2] + p[3];
  EXPECT_EQ(sum, 6 + 7 + 12 + 12);
  const managedPtr<int>& view = p;
  EXPECT_EQ(view[3], 12);
  struct Point {
    int x = 1, y = 2;
  };
  managedPtr<Point> points(3);
  points[1].x = 9;
  EXPECT_EQ(points[1].x, 9);
  EXPECT_EQ(points[2].y, 2);
}

TEST(ManagedPtr, AnElementStaysWhereItIsWhileOthersAreUsed) {
  ramspan::SetPreemptive(false, false);  // what is fetched ahead would look as if it had stayed
  managedPtr<double> p(kDoubles, 1.0), q(kDoubles, 2.0), r(kDoubles, 3.0);
  double& element = p[7];
  element = 4.0;
  EXPECT_EQ(q[1] + r[1], 5.0);
  const uint64_t limit = ramspan::MemoryLimit();
  ramspan::SetMemoryLimit(11 << 19);
  FillMemory();  // all that is not pinned leaves
  ramspan::SetMemoryLimit(limit);
  const uint64_t misses = ramspan::GetStatistics().misses;
  EXPECT_EQ(&p[7], &element);
  EXPECT_EQ(q[1] + r[1], 5.0);
  EXPECT_EQ(ramspan::GetStatistics().misses, misses);
  EXPECT_EQ(element, 4.0);
}

TEST(ManagedPtr, ElementsOfMoreThanTheLimitHoldsAreOneAfterTheOther) {
  std::vector<managedPtr<double>> all;
  for (int i = 0; i < 60; ++i) all.emplace_back(kDoubles, 1.0 * i);
  for (int round = 0; round < 3; ++round) {
    double sum = 0;
    for (managedPtr<double>& one : all) {
      one[3] += 1;
      sum += one[3];
    }
    EXPECT_EQ(sum, 59 * 60 / 2 + 60 * (round + 1));
  }
}

// What operator[] left pinned was not given up for a large object.
TEST(ManagedPtr, ElementsUsedBeforeLeaveRoomForAnAdhereTo) {
  const global_bytesize limit = rambrain::managedMemory::defaultManager->getMemoryLimit();
  managedPtr<char> a(limit / 3, 'a'), b(limit / 3, 'b'), large(limit / 4 * 3, 'c');
  EXPECT_EQ(a[1], 'a');
  EXPECT_EQ(b[1], 'b');
  const adhereTo<char> glue(large);
  const char* data = glue;
  EXPECT_EQ(data[limit / 2], 'c');
}

// A thread that joins another one lets no elements go, and that one waited for them for ever.
TEST(ManagedPtr, ElementsOfAThreadThatJoinsAnotherOneDoNotHoldThatOneUpForEver) {
  managedPtr<double> p(5 * kDoubles), q(5 * kDoubles), r(5 * kDoubles), s(5 * kDoubles);  // 5 MiB each, of 16
  p[0] = q[0] = 1;
  std::atomic<bool> ended{false};
  std::thread user([&] {
    r[0] = 2;
    EXPECT_THROW(s[0] = 3, memoryException);
    ended = true;
  });
  EndsOrElse([&] { return ended.load(); });
  user.join();
  EXPECT_EQ(p[0] + q[0], 2);
}

// Another thread had waited for memory, and went first: the object left in the middle of std::swap(p[0], p[1]), and its references named another one's data.
TEST(ManagedPtr, AReferenceStaysGoodWhenTheSameObjectIsUsedAgain) {
  using std::chrono::milliseconds;
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  others.emplace_back([&] {  // holds half of the memory, ...
    managedPtr<double> half(8 * kDoubles);
    while (!stop) {
      {
        adhereTo<double> glue(half);
        static_cast<void>(static_cast<double*>(glue));
        std::this_thread::sleep_for(milliseconds(200));
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
  });
  others.emplace_back([&] {  // ... and this one wants more than that, and waits
    std::vector<ramspan::managedPtr<double>> many;
    for (int i = 0; i < 10; ++i) many.emplace_back(kDoubles, 2.0);
    while (!stop) {
      try {
        static_cast<void>(ramspan::adhereAll(std::as_const(many)));
      } catch (const ramspan::OutOfMemory&) {
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  std::vector<managedPtr<double>> objects;
  for (int i = 0; i < 24; ++i) objects.emplace_back(kDoubles);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  for (unsigned round = 0; std::chrono::steady_clock::now() < until && !HasFailure(); ++round) {
    managedPtr<double>& p = objects[round % objects.size()];
    try {
      const double& read = std::as_const(p)[0];
      std::this_thread::sleep_for(milliseconds(20 + round * 37 % 100));
      p[1] = 3;
      EXPECT_EQ(&read, &std::as_const(p)[0]) << "in round " << round;
    } catch (const memoryException&) {
    }
  }
  stop = true;
  for (std::thread& one : others) one.join();
}

TEST(ManagedPtr, ElementsOfLargeObjectsDoNotFillTheMemory) {
  const uint64_t limit = ramspan::MemoryLimit();
  std::vector<managedPtr<char>> some;
  for (int i = 0; i < 8; ++i) {
    some.emplace_back(limit / 10, 'x');
    EXPECT_EQ(some[i][i], 'x');
  }
  ramspan::managedPtr<char> other(limit / 2, 'y');  // its pulls know nothing of what operator[] holds
  ramspan::adhereTo<char> glue(other);
  EXPECT_EQ(static_cast<char*>(glue)[0], 'y');
}

// A pin that stays behind would hold the next object of the same descriptor.
TEST(ManagedPtr, ElementsThatAreGoneAreNotHeld) {
  const auto use_and_destroy = [] {
    std::vector<managedPtr<double>> some;
    for (int i = 0; i < 4; ++i) {
      some.emplace_back(kDoubles, 1.0 * i);
      EXPECT_EQ(some[i][9], i);
    }
  };
  use_and_destroy();
  std::thread(use_and_destroy).join();
  std::vector<managedPtr<double>> next;
  for (int i = 0; i < 4; ++i) next.emplace_back(kDoubles, 7.0);
  const uint64_t limit = ramspan::MemoryLimit();
  EXPECT_NO_THROW(ramspan::SetMemoryLimit(2 << 20));
  ramspan::SetMemoryLimit(limit);
}

// They stayed in their thread's table, which held the objects for ever and left no places to the next owner's elements.
TEST(ManagedPtr, ElementsThatAThreadsLastDestructorsUseAreNotHeld) {
  constexpr int kObjects = 8;  // as many as a thread holds
  struct UsesAtItsEnd {
    ~UsesAtItsEnd() {
      for (managedPtr<char>& one : *objects) one[9] += 1;
    }
    std::vector<managedPtr<char>>* objects = nullptr;
  };
  const uint64_t limit = ramspan::MemoryLimit();
  for (char round = 1; round <= 3; ++round) {
    std::vector<managedPtr<char>> objects;
    for (int i = 0; i < kObjects; ++i) objects.emplace_back(limit / 16, round);
    std::thread([&objects] {
      static thread_local UsesAtItsEnd last;  // before elements' own, so that it goes after that
      last.objects = &objects;
      objects[0][9] += 1;
    }).join();
    EXPECT_EQ(objects[0][9], round + 2);
    EXPECT_EQ(objects[7][9], round + 1);
    ramspan::managedPtr<char> most(limit / 4 * 3);  // they must leave
    ramspan::adhereTo<char> glue(most);
    EXPECT_NO_THROW(static_cast<void>(static_cast<char*>(glue)));
  }
}

// Destructors of the program's thread-specific data (pthread_key_create) may run when Ramspan's has given the thread's table up.
// What the thread held by then was unpinned by way of no table, which crashed, or took the place of what it used afterwards.
class ElementsAfterTheirTable : public ::testing::Test {
 protected:
  // On a thread one of whose last destructors uses `first`.
  template <class Last>
  void RunLast(managedPtr<double>& first, Last last) {
    static std::function<void()> at_key_end;
    at_key_end = last;
    struct UsesAtItsEnd {
      ~UsesAtItsEnd() { (*first)[0] += 1; }
      managedPtr<double>* first = nullptr;
    };
    pthread_key_t key;  // made after Ramspan's, because `first` was filled, so its destructor comes later, too
    ASSERT_EQ(pthread_key_create(&key, [](void*) { at_key_end(); }), 0);
    std::thread([&] {
      static thread_local UsesAtItsEnd user;  // before elements' own, so that it goes after that
      user.first = &first;
      first[0] += 1;
      pthread_setspecific(key, &key);
    }).join();
    pthread_key_delete(key);
  }
};

TEST_F(ElementsAfterTheirTable, AnArrayIsDestroyed) {
  auto array = std::make_unique<managedPtr<double>>(kDoubles, 1.0);
  RunLast(*array, [&array] { array.reset(); });
  EXPECT_EQ(array, nullptr);
}

TEST_F(ElementsAfterTheirTable, WhatIsUsedThenIsHeld) {
  auto first = std::make_unique<managedPtr<double>>(kDoubles, 1.0);
  managedPtr<double> second(3 * kDoubles, 1.0);
  const uint64_t limit = ramspan::MemoryLimit();
  RunLast(*first, [&] {
    double& element = second[0];
    first.reset();
    EXPECT_THROW(ramspan::SetMemoryLimit(2 << 20), ramspan::Error);  // `second` would have to leave
    element = 7;
  });
  ramspan::SetMemoryLimit(limit);
  EXPECT_EQ(second[0], 7);
}

TEST(ManagedPtr, SetUseHoldsTheDataWhereItIs) {
  managedPtr<double> p(kDoubles, 2.0);
  ASSERT_TRUE(p.setUse());
  double* data = p.getLocPtr();
  data[5] = 1.0;
  FillMemory();
  EXPECT_EQ(p.getLocPtr(), data);
  EXPECT_EQ(p.getConstLocPtr(), data);
  EXPECT_EQ(data[5], 1.0);
  EXPECT_TRUE(p.setUse(false));
  EXPECT_TRUE(p.unsetUse(2));
  EXPECT_THROW(p.unsetUse(), memoryException);
  FillMemory();
  EXPECT_EQ(p.getConstLocPtr()[5], 1.0);
  bool tracker = false;
  EXPECT_TRUE(p.setUse(true, &tracker));
  EXPECT_TRUE(tracker);
  EXPECT_FALSE(p.setUse(true, &tracker));
  EXPECT_TRUE(p.unsetUse());
}

// Small objects share what is pinned, not who pins it.
TEST(ManagedPtr, SetUseOfASmallObjectIsItsOwn) {
  managedPtr<double> p(2, 1.0), neighbour(2, 2.0);
  ASSERT_TRUE(p.setUse());
  EXPECT_THROW(neighbour.unsetUse(), memoryException);
  ASSERT_TRUE(neighbour.setUse(false));
  EXPECT_TRUE(neighbour.unsetUse());
  double* data = p.getLocPtr();
  data[1] = 3.0;
  FillMemory();
  EXPECT_EQ(p.getLocPtr(), data);
  EXPECT_EQ(data[1], 3.0);
  EXPECT_TRUE(p.unsetUse());
  EXPECT_THROW(p.unsetUse(), memoryException);
}

TEST(AdhereTo, FromReferenceAndPointerNowOrWhenPulled) {
  managedPtr<double> p(kDoubles, 1.5);
  FillMemory();
  adhereTo<double> now(p), later(p, false), from_pointer(&p), pointer_later(&p, false);
  double* a = now;
  double* b = later;
  const double* c = from_pointer;
  const double* d = pointer_later;
  EXPECT_EQ(a, b);
  EXPECT_EQ(c, d);
  EXPECT_EQ(a, c);
  EXPECT_EQ(a[kDoubles - 1], 1.5);
}

TEST(AdhereTo, CopyAndAssignmentHoldTheData) {
  managedPtr<double> p(kDoubles, 1.5), q(kDoubles, 2.5);
  const double* data;
  auto first = std::make_unique<adhereTo<double>>(p);
  data = *first;
  adhereTo<double> copy(*first);
  first.reset();
  FillMemory();
  EXPECT_EQ(data[7], 1.5);  // held by the copy
  adhereTo<double> other(q);
  double* q_data = other;
  copy = other;
  FillMemory();
  EXPECT_EQ(q_data[7], 2.5);
  double* again = copy;
  EXPECT_EQ(again, q_data);
  const auto& same = copy;
  copy = same;
  again = copy;
  EXPECT_EQ(again, q_data);
}

// Each object is written when it first leaves, and never again however often it is read.
TEST(AdhereTo, ConstPullsCostNoWrite) {
  managedMemory::defaultManager->resetSwapstats();
  std::vector<managedPtr<double>> field;
  for (int i = 0; i < 32; ++i) field.emplace_back(kDoubles, i);
  double sum = 0;
  for (int sweep = 0; sweep < 6; ++sweep) {
    for (auto& row : field) {
      ADHERETOLOCCONST(double, row, data);
      sum += data[0];
    }
  }
  EXPECT_LE(managedMemory::defaultManager->getTotalSwappedOutBytes(), 32.0 * mib);
  EXPECT_GE(managedMemory::defaultManager->getTotalSwappedInBytes(), 5 * 16.0 * mib);
  EXPECT_EQ(sum, 6 * 31 * 16);
}

TEST(AdhereTo, OneIsSharedByThreads) {
  managedPtr<int> p(1 << 18, 0);
  FillMemory();
  for (int round = 0; round < 20; ++round) {
    adhereTo<int> glue(p, false);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        int* data = glue;
        data[t]++;
        if (data[t] != round + 1) ++wrong;
      });
    }
    for (auto& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
  }
}

class Holder {
 public:
  Holder() : data(16, 1.0) {}
  double Sum() const {
    ADHERETOCONST(double, data);
    double sum = 0;
    for (int i = 0; i < 16; ++i) sum += data[i];
    return sum;
  }
  void Set() {
    ADHERETO(double, data);
    data[0] = 10;
    EXPECT_NE(&data_glue, nullptr);  // the name that Rambrain gives it
  }

 private:
  managedPtr<double> data;
};

TEST(Macros, ShadowMembers) {
  Holder holder;
  holder.Set();
  EXPECT_EQ(holder.Sum(), 25.0);
}

TEST(Ingredients, ControlClassLocksByHandAndByScope) {
  std::atomic<int> inside{0};
  std::atomic<int> worst{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const auto work = [&] {
          const int now = ++inside;
          if (now > worst) worst = now;
          std::this_thread::yield();
          --inside;
        };
        if (t % 2 == 0) {
          LISTOFINGREDIENTS
          work();
        } else {
          rambrainGlobalCriticalSectionControl control(true);
          control.start();
          work();
          control.stop();
          control.start();
          work();
          control.stop();
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(worst, 1);
}

struct alignas(64) Avx512 {
  double lanes[8];
};
struct alignas(4096) Page {
  char bytes[4096];
};

TEST(Alignment, StructuresLieAsTheyAskAlsoAfterSwapping) {
  managedPtr<Avx512> wide(1000);
  managedPtr<Page> pages(3);
  managedPtr<long double> plain(5);
  for (int round = 0; round < 2; ++round) {
    ADHERETOLOC(Avx512, wide, w);
    ADHERETOLOC(Page, pages, p);
    ADHERETOLOC(long double, plain, l);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 4096, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(l) % alignof(long double), 0u);
    FillMemory();
  }
}

// Rambrain derived privately from std::exception and returned a dangling text.
TEST(Exceptions, ArePublicStdExceptionsWithALivingMessage) {
  const auto what = [](auto&& f) {
    try {
      f();
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(what([] { throw memoryException("full"); }), "Memory exception: full");
  EXPECT_EQ(what([] { throw incompleteSetupException("x"); }), "Incomplete setup of objects: x");
  EXPECT_EQ(what([] { throw unexpectedStateException("x"); }), "Unexpected state detected: x");
  EXPECT_EQ(what([] { throw unfinishedCodeException("x"); }), "Unfinished code section encountered: x");
  EXPECT_THROW(throw memoryException("a"), rambrainException);
  EXPECT_THROW(throw memoryException("a"), ramspan::Error);
}

TEST(Exceptions, TooMuchPulledIsAMemoryExceptionThatHelpsAndDestroysNothing) {
  std::vector<managedPtr<double>> field;
  for (int i = 0; i < 20; ++i) field.emplace_back(kDoubles, i);
  std::vector<adhereTo<double>> glues(field.begin(), field.end());
  std::string message;
  int pulled = 0;
  try {
    for (auto& glue : glues) {
      double* data = glue;
      EXPECT_EQ(data[0], pulled++);
    }
  } catch (const memoryException& e) {
    message = e.what();
  }
  EXPECT_NE(message.find("adhereTos pin"), std::string::npos) << message;
  EXPECT_GE(pulled, 10);
  glues.clear();
  for (int i = 0; i < 20; ++i) {
    ROWCONST(double, field[i], data);
    EXPECT_EQ(data[kDoubles - 1], i);
  }
  EXPECT_THROW(managedPtr<double>(100 * kDoubles), memoryException);
}

// Rambrain blocked for ever when each of several threads held what the others waited for.
TEST(Threads, WaitForEachOtherAndADeadlockIsAnException) {
  const bool old = managedMemory::defaultManager->setOutOfSwapIsFatal(false);
  std::vector<managedPtr<double>> field;
  for (int i = 0; i < 4; ++i) field.emplace_back(5 * kDoubles, i);  // three of 5 MiB fit into 16 MiB
  std::atomic<int> threw{0}, both{0};
  std::atomic<int> first_held{0};
  const auto work = [&](int mine, int other) {
    try {
      adhereTo<double> a(field[mine], false), b(field[other], false);
      double* p = a;
      ++first_held;
      while (first_held < 2) std::this_thread::yield();
      double* q = b;
      if (p[0] == mine && q[0] == other) ++both;
    } catch (const memoryException&) {
      ++threw;
    }
  };
  std::thread t1(work, 0, 2), t2(work, 1, 3);
  t1.join();
  t2.join();
  EXPECT_EQ(both + threw, 2);
  EXPECT_GE(both, 1);
  managedMemory::defaultManager->setOutOfSwapIsFatal(old);
}

TEST(Threads, WhoMustNotWaitGetsAnExceptionAtOnce) {
  const bool old = managedMemory::defaultManager->setOutOfSwapIsFatal(true);
  managedPtr<double> a(10 * kDoubles), b(10 * kDoubles);  // one of 10 MiB fits into 16 MiB
  std::atomic<bool> held{false}, done{false};
  std::thread other([&] {
    adhereTo<double> glue(a);
    double* data = glue;
    data[0] = 1;
    held = true;
    while (!done) std::this_thread::yield();
  });
  while (!held) std::this_thread::yield();
  {
    adhereTo<double> glue(b, false);
    EXPECT_THROW(static_cast<void>(static_cast<double*>(glue)), memoryException);
  }
  done = true;
  other.join();
  ADHERETOLOC(double, b, data);
  EXPECT_EQ(data[0], 0.0);
  EXPECT_TRUE(managedMemory::defaultManager->setOutOfSwapIsFatal(old));
}

TEST(Exceptions, AConstructorThatThrowsLeavesNothing) {
  static int alive;
  alive = 0;
  struct Picky {
    explicit Picky(int limit) {
      if (alive == limit) throw std::string("enough");
      ++alive;
    }
    ~Picky() { --alive; }
  };
  EXPECT_THROW(managedPtr<Picky>(5, 3), std::string);
  EXPECT_EQ(alive, 0);
}

TEST(Common, SizesAndSmallThings) {
  EXPECT_EQ(kib * kib, mib);
  EXPECT_EQ(gig, mib * 1024);
  EXPECT_EQ(sqr(3), 9);
  global_bytesize bytes = 5;
  EXPECT_EQ(sizeof bytes, 8u);
}

}  // namespace
