// The loop of one memory server: receives control messages, answers, and polls its endpoint for as long as clients'
// transfers need that. While one is active the loop polls without a pause, and waits for the endpoint's next arrival, at most
// 1 ms, when nothing has come for 1 ms (where the endpoint cannot wait, it yields its core). Otherwise it sleeps between polls, 50 us and then longer: up to 1 ms where transfers need polling, up to 4 ms where all clients copy by
// load/store and only lease requests, which are sent ahead of need, have to be seen (idle: under 1% of a core).
// Leased memory is made resident before a client has it, and in idle time ahead of the next lease (where there is one pool).
// A service, whose endpoint can wait for its network and its clients' sockets, sleeps in that wait instead.
//
// Thread-safety: one thread. Ownership: borrows the endpoint.
#pragma once

#include "common/status.h"
#include "memserver/endpoint.h"

namespace ramspan {

// Serves until every client has said bye or died; a service, until its endpoint says that it should end. True when all of them found everybody alive, so that the job can be
// left together. kUnavailable: the transport failed beneath us. kFailedPrecondition: the clients contradict each other.
Result<bool> Serve(Endpoint& endpoint);

}  // namespace ramspan
