// Together: several clients of one benchmark (`--clients`), each a process of its own, that measure at the same time and add up what
// they found. They meet in a file that all of them have mapped; the job makes it (bench/network_job.h).
// Thread-safety: none; the main thread's.
#pragma once

#include <string>

namespace ramspan::bench {

class Together {
 public:
  // Makes the file for so many. Throws std::runtime_error.
  static void Make(const std::string& path, int clients);
  // What the environment of one of them says.
  static std::string Environment(const std::string& path, int number) { return std::to_string(number) + ":" + path; }
  static constexpr const char* kVariable = "RSBENCH_TOGETHER";

  // This process's; alone where it is the only client.
  static Together& Get();

  int clients() const;
  int number() const { return number_; }  // 0: the one that prints
  // Returns when all are here. Throws std::runtime_error when one of them will not come (Leave), or has not for three minutes.
  void Wait();
  // The same, and the sum of what each brought.
  double Sum(double mine);
  // This one has failed and will not come again; the others need not wait for it.
  void Leave();

 private:
  struct Shared;
  Together();

  Shared* shared_ = nullptr;  // null: alone
  int number_ = 0;
  unsigned turns_ = 0;  // how often this one has waited
};

}  // namespace ramspan::bench
