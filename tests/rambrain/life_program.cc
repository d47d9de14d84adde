// One life of a program, by its argument. Compiled with -DPARENTAL_CONTROL and -DLOGSTATS, as Rambrain was.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/managedDummySwap.h"
#include "rambrain/managedFileSwap.h"
#include "rambrain/managedPtr.h"
#include "tests/rambrain/row.h"

using namespace rambrain;

namespace {

struct Leaf {
  explicit Leaf(int n) : number(n), data(1 << 15, n) {}
  ~Leaf() {
    ADHERETO(double, data);
    std::printf("leaf %d %g\n", number, data[7]);
  }
  int number;
  managedPtr<double> data;
};

struct Tree {
  explicit Tree(int n) : number(n), leaves(2, 10 * n) {}
  ~Tree() {
    ADHERETOLOCCONST(Leaf, leaves, l);
    std::printf("tree %d with %d\n", number, l[1].number);
  }
  int number;
  managedPtr<Leaf> leaves;
};

// A static object that another object's destructor uses.
struct Logger {
  ~Logger() { alive = false; }
  volatile bool alive = true;  // else its destructor need not write it
};
Logger& TheLogger() {
  static Logger logger;
  return logger;
}
struct Logged {
  ~Logged() { std::printf(TheLogger().alive ? "logged\n" : "too late\n"); }
  int number = 0;
};

struct Block {
  ~Block() { std::printf("block\n"); }
  double values[1 << 17];  // 1 MiB
};

// Another thread ends the program while this one holds nearly all of its 4 MiB, for ever.
[[noreturn]] void ExitWhilePinned() {
  new managedPtr<Block>(1);
  managedPtr<double> large(3 << 17, 1.0), small(3 << 15, 1.0);
  ADHERETOLOC(double, large, p);
  ADHERETOLOC(double, small, q);
  p[0] = q[0] = 2;
  std::thread([] { std::exit(0); }).detach();
  for (;;) pause();
}

// The same, and what is to be destroyed is a static object: that happens before all that Ramspan could have asked to be told.
void ExitWithStaticWhilePinned() {
  static managedPtr<Block> forgotten(1);
  std::promise<void> pinned;
  std::thread([&pinned] {
    managedPtr<double> large(3 << 17, 1.0), small(3 << 15, 1.0);
    ADHERETOLOC(double, large, p);
    ADHERETOLOC(double, small, q);
    p[0] = q[0] = 2;
    pinned.set_value();
    for (;;) pause();
  }).detach();
  pinned.get_future().wait();
  std::exit(0);
}

managedPtr<double>* Swapped() {
  auto* field = new std::vector<managedPtr<double>>;
  for (int i = 0; i < 40; ++i) field->emplace_back(1 << 15, 1.0);
  for (auto& row : *field) {
    ADHERETOLOC(double, row, data);
    data[1] = 2;
  }
  return field->data();
}

// Waits until a file of the program's own has so many lines: what is printed by other threads comes when they get a core.
void AwaitLines(const char* path, long lines) {
  const auto count = [path] {
    std::ifstream file(path);
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  for (int i = 0; i < 6000 && count() < lines; ++i) usleep(10'000);
}

// What goes to standard output goes to a file, so that it can be waited for, and at the end to where it was meant to go.
class Output {
 public:
  Output() : meant_(dup(STDOUT_FILENO)) {
    if (std::freopen(kPath, "w", stdout) == nullptr) std::abort();
  }
  ~Output() {
    std::fflush(stdout);
    dup2(meant_, STDOUT_FILENO);
    close(meant_);
    std::ifstream file(kPath);
    for (std::string line; std::getline(file, line);) std::puts(line.c_str());
  }
  void AwaitLines(long lines) const { ::AwaitLines(kPath, lines); }

 private:
  static constexpr char kPath[] = "output";
  const int meant_;
};

}  // namespace

int main(int, char** argv) {
  const char* life = argv[1];
  if (!std::strcmp(life, "forget")) {
    new managedPtr<Tree>(1, 1);
    static managedPtr<Tree> not_forgotten(1, 2);
    new managedPtr<Tree>(2, 3);
    Swapped();
  } else if (!std::strcmp(life, "logger")) {
    managedPtr<double> first(1 << 15, 1.0);  // Ramspan has started before the logger is made
    TheLogger();
    new managedPtr<Logged>(1);
  } else if (!std::strcmp(life, "exit-while-pinned")) {
    ExitWhilePinned();
  } else if (!std::strcmp(life, "exit-static-while-pinned")) {
    ExitWithStaticWhilePinned();
  } else if (!std::strcmp(life, "leave")) {
    managedMemory::destroyForgotten(false);
    new managedPtr<Tree>(1, 1);
  } else if (!std::strcmp(life, "tree")) {
    managedMemory::destroyForgotten(false);
    auto* tree = new managedPtr<Tree>(1, 1);
    new managedPtr<double>(4);
    managedMemory::defaultManager->printTree();
    managedMemoryChunk chunk;
    chunk.id = managedMemory::idOf(*tree);
    std::printf("%u children\n", managedMemory::defaultManager->getNumberOfChildren(chunk.id));
    managedMemory::defaultManager->printTree(&chunk, 3);
  } else if (!std::strcmp(life, "signal")) {
    managedPtr<double>* field = Swapped();
    const Output output;
    long lines = 0;
    for (int signal : {SIGUSR1, SIGUSR1, SIGUSR2}) {
      kill(getpid(), signal);
      output.AwaitLines(++lines);
    }
    field[0].prepareUse();
  } else if (!std::strcmp(life, "log")) {
    managedPtr<double>* field = Swapped();
    for (int i = 0; i < 40; ++i) {
      ROW(double, field[i], data);
      data[0] = i;
    }
    AwaitLines("rambrain-swapstats.log", 5);
  } else if (!std::strcmp(life, "ask")) {
    for (bool files : {true, false}) {
      managedDummySwap dummy(4 * mib);
      managedFileSwap file(4 * mib, "/tmp/rambrain-life-%d-%d");
      managedSwap& swap = files ? static_cast<managedSwap&>(file) : dummy;
      swap.setSwapPolicy(swapPolicy::interactive);
      cyclicManagedMemory manager(&swap, 4 * mib);
      std::vector<managedPtr<double>> field;
      try {
        for (int i = 0; i < 40; ++i) field.emplace_back(1 << 15, 1.0);
        std::printf("extended\n");
      } catch (const memoryException&) {
        std::printf("full\n");
      }
    }
  } else if (!std::strcmp(life, "console")) {
    const Output output;
    managedMemory::logSwapstats(nullptr, 20);
    Swapped();
    output.AwaitLines(4);
    managedMemory::logSwapstats(nullptr, 0);
    std::printf("quiet\n");
    std::fflush(stdout);
    usleep(100'000);  // five times the interval in which nothing more may come
  }
}
