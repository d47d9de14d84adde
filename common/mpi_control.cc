#include "common/mpi_control.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/repeated_mapping.h"
#include "common/running_clock.h"

namespace ramspan {
namespace {

constexpr std::chrono::milliseconds kLastSends{100};
// Messages of a wrong length are received in units of this, so that an int counts 2 PiB.
constexpr int kUnitBytes = 1 << 20;

Status DropMessage(MPI_Comm comm, const MPI_Status& status, MPI_Count bytes) {
  // MPI cannot say how long some messages are; 64 GiB would have to be sent in one call for that.
  constexpr MPI_Count kUnknownBytes = MPI_Count{1} << 36;
  if (bytes == MPI_UNDEFINED || bytes < 0) bytes = kUnknownBytes;
  Result<RepeatedMapping> sink = RepeatedMapping::Make(static_cast<uint64_t>(bytes) + kUnitBytes);
  if (!sink.ok()) return sink.status();
  MPI_Datatype unit = MPI_DATATYPE_NULL;
  if (MPI_Type_contiguous(kUnitBytes, MPI_BYTE, &unit) != MPI_SUCCESS || MPI_Type_commit(&unit) != MPI_SUCCESS) {
    return Unavailable("MPI_Type_contiguous failed");
  }
  const auto units = static_cast<int>((bytes + kUnitBytes - 1) / kUnitBytes);
  const int error = MPI_Recv(sink.value().data(), units, unit, status.MPI_SOURCE, status.MPI_TAG, comm, MPI_STATUS_IGNORE);
  MPI_Type_free(&unit);
  return error == MPI_SUCCESS ? Status() : Unavailable("MPI_Recv failed");
}

Status Take(MPI_Comm comm, const MPI_Status& status, ControlMessage* message) {
  message->source = status.MPI_SOURCE;
  message->tag = status.MPI_TAG;
  MPI_Count bytes = 0;  // an int could not tell of 2 GiB
  if (MPI_Get_elements_x(&status, MPI_BYTE, &bytes) != MPI_SUCCESS) return Unavailable("MPI_Get_elements_x failed");
  message->whole = bytes == static_cast<MPI_Count>(kWireBytes);
  if (!message->whole) return DropMessage(comm, status, bytes);
  const int error = MPI_Recv(message->record.data(), kWireBytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm,
                             MPI_STATUS_IGNORE);
  return error == MPI_SUCCESS ? Status() : Unavailable("MPI_Recv failed");
}

}  // namespace

Status ReceiveControl(MPI_Comm comm, int source, ControlMessage* message) {
  message->source = -1;
  int arrived = 0;
  MPI_Status status;
  if (MPI_Iprobe(source, MPI_ANY_TAG, comm, &arrived, &status) != MPI_SUCCESS) return Unavailable("MPI_Iprobe failed");
  return arrived == 0 ? Status() : Take(comm, status, message);
}

Status WaitForControl(MPI_Comm comm, int source, ControlMessage* message) {
  MPI_Status status;
  if (MPI_Probe(source, MPI_ANY_TAG, comm, &status) != MPI_SUCCESS) return Unavailable("MPI_Probe failed");
  return Take(comm, status, message);
}

void ControlSender::Finish() {
  if (unsent_.empty()) return;
  const auto deadline = RunningClock::ProcessNow() + kLastSends;
  while (unsent() != 0 && RunningClock::ProcessNow() < deadline) sched_yield();
  if (unsent_.empty()) return;
  static_cast<void>(new std::deque<Unsent>(std::move(unsent_)));
  unsent_.clear();
}

size_t ControlSender::unsent() {
  int sent = 1;
  while (!unsent_.empty() && MPI_Test(&unsent_.front().request, &sent, MPI_STATUS_IGNORE) == MPI_SUCCESS && sent != 0) {
    unsent_.pop_front();
  }
  return unsent_.size();
}

Status ControlSender::Send(int rank, const WireMessage& message) {
  unsent();
  Unsent& last = unsent_.emplace_back();
  last.record = Encode(message);
  if (MPI_Isend(last.record.data(), kWireBytes, MPI_BYTE, rank, 0, comm_, &last.request) == MPI_SUCCESS) return {};
  unsent_.pop_back();
  return Unavailable("MPI_Isend failed");
}

}  // namespace ramspan
