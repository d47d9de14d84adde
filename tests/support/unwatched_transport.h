// UnwatchedTransport: servers within the process whose own work, and the transport's, is neither counted nor refused (heap_watch.h).
// Thread-safety: the transport's below; Collect by one thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tests/support/forwarding_transport.h"
#include "tests/support/heap_watch.h"

namespace ramspan {

class UnwatchedTransport : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void Start(std::span<const Transfer> batch) override {
    const UnwatchedHeap unwatched;
    to().Start(batch);
  }
  void Send(uint32_t server, const WireMessage& message) override {
    const UnwatchedHeap unwatched;
    to().Send(server, message);
  }
  std::optional<Control> Receive() override {
    const UnwatchedHeap unwatched;
    return to().Receive();
  }
  // What the caller's list takes is the caller's.
  bool Collect(std::vector<Completion>* done) override {
    {
      const UnwatchedHeap unwatched;
      ended_.clear();
      to().Collect(&ended_);
    }
    done->insert(done->end(), ended_.begin(), ended_.end());
    return !ended_.empty();
  }

 private:
  std::vector<Completion> ended_;
};

}  // namespace ramspan
