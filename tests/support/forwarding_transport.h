// ForwardingTransport: passes every call of the port on to another transport. Tests derive from it and change the calls that they are
// about. Thread-safety: the transport's. Ownership: owns it.
#pragma once

#include <memory>
#include <utility>

#include "client/transport/transport.h"

namespace ramspan {

class ForwardingTransport : public ServerTransport {
 public:
  explicit ForwardingTransport(std::unique_ptr<ServerTransport> to) : to_(std::move(to)) {}

  Capabilities capabilities() const override { return to_->capabilities(); }
  uint32_t self() const override { return to_->self(); }
  uint32_t servers() const override { return to_->servers(); }
  Server server(uint32_t number) const override { return to_->server(number); }
  ServerState state(uint32_t number) const override { return to_->state(number); }
  void Start(std::span<const Transfer> batch) override { to_->Start(batch); }
  bool Collect(std::vector<Completion>* done) override { return to_->Collect(done); }
  void Send(uint32_t server, const WireMessage& message) override { to_->Send(server, message); }
  std::optional<Control> Receive() override { return to_->Receive(); }
  void Prepare(uint32_t server, uint64_t offset, uint64_t bytes) override { to_->Prepare(server, offset, bytes); }
  uint64_t AskedBack(uint32_t server) override { return to_->AskedBack(server); }
  void TellUsage(uint32_t server, uint64_t written_bytes, uint64_t read_bytes) override { to_->TellUsage(server, written_bytes, read_bytes); }
  Result<std::function<void()>> PrepareServers(const std::string& names) override { return to_->PrepareServers(names); }
  std::string server_names() const override { return to_->server_names(); }
  void EndMeetings() noexcept override { to_->EndMeetings(); }
  void ForgetMemory(std::span<std::byte> memory) noexcept override { to_->ForgetMemory(memory); }
  void Upkeep() override { to_->Upkeep(); }
  Registered registered() const override { return to_->registered(); }

 protected:
  ServerTransport& to() { return *to_; }
  const ServerTransport& to_const() const { return *to_; }

 private:
  const std::unique_ptr<ServerTransport> to_;
};

}  // namespace ramspan
