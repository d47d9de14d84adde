// Control messages over MPI, the same for clients and servers: records of kWireBytes on MpiWorld::control().
//
// What a peer sends is believed by nobody here: a message of another length is received all the same, because MPICH
// leaves a rendezvous that the receiver truncated unfinished on both sides, which then hang in MPI_Finalize; but into
// memory that does not grow with it (RepeatedMapping), and also where an int cannot count its bytes.
//
// Thread-safety: of the functions, one receiving thread at a time; ControlSender: none.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>

#include "common/status.h"
#include "common/wire.h"

namespace ramspan {

struct ControlMessage {
  int source = -1;     // the sender's rank; -1: no message has come
  int tag = 0;
  bool whole = false;  // `record` holds what was sent; else the message had another length and is gone
  WireRecord record{};
};

// Receives the next message of `source` (or MPI_ANY_SOURCE) if one has come; does not wait. Gives MPI progress.
// kUnavailable: MPI failed. kResourceExhausted: no memory even for dropping a message.
Status ReceiveControl(MPI_Comm comm, int source, ControlMessage* message);
// The same, waiting for it.
Status WaitForControl(MPI_Comm comm, int source, ControlMessage* message);

// Sends records without waiting, in order, and keeps them until they have gone.
class ControlSender {
 public:
  explicit ControlSender(MPI_Comm comm) : comm_(comm) {}
  ~ControlSender() { Finish(); }
  ControlSender(const ControlSender&) = delete;
  ControlSender& operator=(const ControlSender&) = delete;

  // kUnavailable: MPI refuses; nothing was kept.
  Status Send(int rank, const WireMessage& message);
  size_t unsent();
  // Waits for 100 ms at most. What is unsent then is for a dead peer and stays where MPI may look at it.
  void Finish();

 private:
  struct Unsent {
    WireRecord record;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  MPI_Comm comm_;
  std::deque<Unsent> unsent_;  // a deque: a record in flight may not move
};

}  // namespace ramspan
