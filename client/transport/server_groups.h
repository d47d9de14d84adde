// ServerGroups: one transport as several, each with some of its servers, so that several tiers work beside each other over it: a mirror
// has each of its copies in a group, and no server that dies takes two. Each server is in exactly one group, for good; a group
// numbers its own from 0 and keeps the port's contract. What the transport has for another group than the one that asks (records,
// completions) waits here for that one.
//
// Of all servers, whichever group is asked: the buffers that the network knows (counted in group 0), and their names.
//
// Thread-safety: each group as the port says, and groups beside each other. Ownership: borrows the transport, which nobody else may use
// meanwhile; owns the groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "client/transport/transport.h"
#include "common/mutex.h"

namespace ramspan {

class ServerGroups {
 public:
  // The group of a server of the transport. Asked once for each, when it is seen first, by any thread; must not wait.
  using GroupOf = std::function<size_t(uint32_t number, const ServerTransport::Server& server)>;

  // REQUIRES: groups > 0, and group_of returns less; the transport is no group itself (the locks of both would have one rank).
  ServerGroups(ServerTransport& transport, size_t groups, GroupOf group_of);
  // REQUIRES: nothing in flight.
  ~ServerGroups();
  ServerGroups(const ServerGroups&) = delete;
  ServerGroups& operator=(const ServerGroups&) = delete;

  // REQUIRES: i < size(). Its Receive has to be called now and then, as RemoteSwap's Upkeep does, or what its servers say piles up.
  ServerTransport& group(size_t i);
  size_t size() const { return groups_.size(); }

 private:
  class Group;
  // Where a server of the transport is. A group has numbered it from 0.
  struct Place {
    size_t group = 0;
    uint32_t number = 0;
  };

  void NoteNew() RS_REQUIRES(mutex_);

  // Constant after construction.
  ServerTransport& transport_;
  const GroupOf group_of_;
  std::vector<std::unique_ptr<Group>> groups_;

  Mutex talk_{LockRank::kServerTalk};  // by one thread at a time: Send and Receive, and what has come for other groups
  Mutex mutex_{LockRank::kServerGroups};
  std::vector<Place> places_ RS_GUARDED_BY(mutex_);  // by the transport's numbers
};

}  // namespace ramspan
