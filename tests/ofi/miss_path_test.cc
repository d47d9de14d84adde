// The miss path over real servers, in what is the library's: libfabric takes its own memory by malloc, which is not counted.
#include "tests/support/miss_path.h"

#include <gtest/gtest.h>

#include "client/swap/remote_swap.h"
#include "client/transport/ofi_transport.h"
#include "tests/support/ofi_servers.h"

namespace ramspan {
namespace {

class OverOfi final : public ForwardingTier {
 public:
  explicit OverOfi(bool near)
      : ForwardingTier(&watched_), transport_(OfiTransport::Open({.servers = servers_.names(), .near = near}, TestSecret()).value()),
        real_(*transport_, {}) {}

 private:
  OfiServers servers_{{.servers = 2}};
  const std::unique_ptr<OfiTransport> transport_;
  RemoteSwap real_;
  Uncounted watched_{&real_, false};
};

// Not with buffers that have to be registered: a frame that is new to the network is an entry of the table (ofi_registrations.h).
TEST(MissPath, AllocatesNothingOnceWarmOverLibfabric) {
  EXPECT_EQ(AllocationsOnceWarm(std::make_unique<OverOfi>(true)), 0) << "near";
  EXPECT_EQ(AllocationsOnceWarm(std::make_unique<OverOfi>(false)), 0) << "far";
}

}  // namespace
}  // namespace ramspan
