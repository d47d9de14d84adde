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

#include <gtest/gtest.h>

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

inline void PrintTo(const TransportUnderTest& transport, std::ostream* out) { *out << transport.name; }
inline std::string TransportName(const testing::TestParamInfo<TransportUnderTest>& info) { return info.param.name; }

class TransportContract : public testing::TestWithParam<TransportUnderTest> {
 protected:
  void SetUp() override { bed_ = GetParam().make(); }
  ServerTransport& transport() { return bed_->transport(); }

  std::unique_ptr<TransportBed> bed_;
};

}  // namespace ramspan
