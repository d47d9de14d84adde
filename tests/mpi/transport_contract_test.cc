// The contract of every transport, for MPI: near servers and far ones (see CMakeLists.txt). One client, because the tests
// need the servers for themselves.
#include "client/transport/mpi_entry.h"
#include "tests/contract/transport_contract.h"

namespace ramspan {
namespace {

class MpiBed final : public TransportBed {
 public:
  ServerTransport& transport() override { return *JobTransport().value(); }
};

const TransportUnderTest kJob{"job", [] { return std::make_unique<MpiBed>(); }};

INSTANTIATE_TEST_SUITE_P(Mpi, TransportContract, testing::Values(kJob, GroupOf(kJob)), TransportName);

}  // namespace
}  // namespace ramspan
