// What every ServerTransport must do, as one value-parameterised suite: it runs on the one within the process and, under
// mpiexec, on MPI. Link transport_contract.cc into the test executable (as a source or object) and instantiate it:
//
//   INSTANTIATE_TEST_SUITE_P(Local, TransportContract, testing::Values(TransportUnderTest{"far", MakeBed}), TransportName);
//
// Each test gives back what it took. The servers are real ones, and nobody else uses them meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "client/transport/server_groups.h"
#include "client/transport/transport.h"

namespace ramspan {

class TransportBed {
 public:
  virtual ~TransportBed() = default;
  virtual ServerTransport& transport() = 0;
  // False: servers cannot be killed or stopped here.
  virtual bool Kill(uint32_t /*server*/) { return false; }
  virtual bool Freeze(uint32_t /*server*/, bool /*frozen*/) { return false; }
  // Answers get lost here: after so many looks in vain a request is sent again. 0: none gets lost.
  virtual int LooksForAnAnswer() const { return 0; }
};

struct TransportUnderTest {
  std::string name;  // letters, digits and _
  std::function<std::unique_ptr<TransportBed>()> make;
};

// Every second server of another bed's transport, the second one first: a group of servers (server_groups.h) is a transport as well.
class GroupBed final : public TransportBed {
 public:
  explicit GroupBed(std::unique_ptr<TransportBed> all)
      : all_(std::move(all)), groups_(all_->transport(), 2, [](uint32_t number, const ServerTransport::Server&) { return number % 2; }) {}
  ServerTransport& transport() override { return groups_.group(1); }
  bool Kill(uint32_t server) override { return all_->Kill(2 * server + 1); }
  bool Freeze(uint32_t server, bool frozen) override { return all_->Freeze(2 * server + 1, frozen); }
  int LooksForAnAnswer() const override { return all_->LooksForAnAnswer(); }

 private:
  const std::unique_ptr<TransportBed> all_;
  ServerGroups groups_;
};

// REQUIRES: it has two servers at least.
inline TransportUnderTest GroupOf(TransportUnderTest all) {
  return {"GroupOf" + all.name, [make = std::move(all.make)] { return std::make_unique<GroupBed>(make()); }};
}

inline void PrintTo(const TransportUnderTest& transport, std::ostream* out) { *out << transport.name; }
inline std::string TransportName(const testing::TestParamInfo<TransportUnderTest>& info) { return info.param.name; }

class TransportContract : public testing::TestWithParam<TransportUnderTest> {
 protected:
  void SetUp() override { bed_ = GetParam().make(); }
  ServerTransport& transport() { return bed_->transport(); }

  std::unique_ptr<TransportBed> bed_;
};

}  // namespace ramspan
