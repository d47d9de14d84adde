#include "tests/support/local_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace ramspan {

class LocalTransport final : public PlainTransport {
 public:
  LocalTransport(LocalServers& all, uint32_t client) : all_(all), client_(client) {}

  Capabilities capabilities() const override { return {.name = "local", .survives_server_death = true}; }
  uint32_t self() const override { return client_; }
  uint32_t servers() const override {
    const std::lock_guard lock(all_.mutex_);
    return static_cast<uint32_t>(all_.servers_.size());
  }
  Server server(uint32_t number) const override {
    const std::lock_guard lock(all_.mutex_);
    LocalServers::Server& server = *all_.servers_[number];
    return {.label = "rank " + std::to_string(100 + number),
            .distance = server.near ? 1 : 2,
            .capacity_bytes = all_.options_.pool_bytes,
            .mapped = server.near ? server.pool.get() : nullptr,
            .drains = server.draining};
  }
  ServerState state(uint32_t number) const override {
    if (all_.options_.before_state) all_.options_.before_state(number);
    const std::lock_guard lock(all_.mutex_);
    const LocalServers::Server& server = *all_.servers_[number];
    return server.dead ? ServerState::kDead : server.draining ? ServerState::kDraining : ServerState::kAlive;
  }

  void Start(std::span<const Transfer> batch) override {
    const std::lock_guard lock(all_.mutex_);
    for (const Transfer& transfer : batch) {
      const uint64_t capacity = all_.options_.pool_bytes;
      RS_CHECK(transfer.bytes <= capacity && transfer.offset <= capacity - transfer.bytes,
               "a transfer of %zu bytes beyond the pool of server %u", transfer.bytes, transfer.server);
      all_.moving_.push_back({client_, transfer, all_.Due()});
    }
  }

  bool Collect(std::vector<Completion>* done) override {
    const std::lock_guard lock(all_.mutex_);
    all_.Step();
    std::vector<LocalServers::Moving>& moving = all_.moving_;
    const auto mine = [&](const LocalServers::Moving& m) { return m.client == client_; };
    if (std::none_of(moving.begin(), moving.end(), mine)) return false;
    // In an order that has nothing to do with that of Start.
    std::shuffle(moving.begin(), moving.end(), all_.random_);
    std::erase_if(moving, [&](const LocalServers::Moving& m) {
      const LocalServers::Server& server = *all_.servers_[m.transfer.server];
      if (!mine(m) || (!server.dead && (server.frozen || m.due > all_.now_))) return false;
      done->push_back({m.transfer.cookie, m.transfer.server, all_.Move(m.transfer)});
      return true;
    });
    return true;
  }

  void Send(uint32_t server, const WireMessage& message) override {
    const std::lock_guard lock(all_.mutex_);
    all_.to_servers_.push_back({server, client_, Encode(message), all_.Due()});
  }

  uint64_t AskedBack(uint32_t server) override {
    const std::lock_guard lock(all_.mutex_);
    return all_.servers_[server]->asked_back;
  }

  std::optional<Control> Receive() override {
    const std::lock_guard lock(all_.mutex_);
    all_.Step();
    const auto due = std::find_if(all_.to_clients_.begin(), all_.to_clients_.end(), [&](const auto& message) {
      return message.client == client_ && message.due <= all_.now_;
    });
    if (due == all_.to_clients_.end()) return std::nullopt;
    const Control control{due->server, due->record};
    all_.to_clients_.erase(due);
    return control;
  }

 private:
  LocalServers& all_;
  const uint32_t client_;
};

LocalServers::LocalServers(LocalServersOptions options) : options_(std::move(options)), random_(options_.seed) {
  for (uint32_t i = 0; i < options_.servers; ++i) AddServer(i < options_.near);
}

LocalServers::~LocalServers() = default;

void LocalServers::AddServer(bool near) {
  auto server = std::make_unique<Server>();
  server->near = near;
  server->pool.reset(static_cast<std::byte*>(std::calloc(1, options_.pool_bytes)));
  RS_CHECK(server->pool != nullptr, "no memory for a pool of %llu bytes", static_cast<unsigned long long>(options_.pool_bytes));
  server->server = std::make_unique<MemServer>(MemServerOptions{.pool_bytes = options_.pool_bytes, .clients = options_.clients});
  servers_.push_back(std::move(server));
}

std::unique_ptr<ServerTransport> LocalServers::Connect(uint32_t client) {
  return std::make_unique<LocalTransport>(*this, client);
}

void LocalServers::Kill(uint32_t server) {
  const std::lock_guard lock(mutex_);
  servers_[server]->dead = true;
}

void LocalServers::Freeze(uint32_t server, bool frozen) {
  const std::lock_guard lock(mutex_);
  servers_[server]->frozen = frozen;
}

void LocalServers::Drain(uint32_t server, bool draining) {
  const std::lock_guard lock(mutex_);
  servers_[server]->draining = draining;
}

void LocalServers::AskBack(uint32_t server, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  servers_[server]->asked_back = bytes;
}

uint32_t LocalServers::Join() {
  const std::lock_guard lock(mutex_);
  AddServer(false);
  return static_cast<uint32_t>(servers_.size() - 1);
}

void LocalServers::KillClient(uint32_t client) {
  const std::lock_guard lock(mutex_);
  std::erase_if(moving_, [&](const Moving& m) { return m.client == client; });
  std::erase_if(to_servers_, [&](const Message& m) { return m.client == client; });
  for (const auto& server : servers_) server->server->NoteDeath(client);
}

void LocalServers::SendGarbage(uint32_t server, uint32_t client, const WireRecord& record) {
  const std::lock_guard lock(mutex_);
  to_clients_.push_back({server, client, record, Due()});
}

// Messages between two ends stay in order, however late the first of them is.
void LocalServers::Step() {
  ++now_;
  std::deque<Message> later;
  while (!to_servers_.empty()) {
    const Message message = to_servers_.front();
    to_servers_.pop_front();
    const Server& server = *servers_[message.server];
    if (server.dead) continue;
    const bool behind = std::any_of(later.begin(), later.end(), [&](const Message& m) {
      return m.server == message.server && m.client == message.client;
    });
    behind || server.frozen || message.due > now_ ? later.push_back(message) : Deliver(message);
  }
  to_servers_ = std::move(later);
}

void LocalServers::Deliver(const Message& message) {
  const std::optional<WireMessage> answer =
      servers_[message.server]->server->Handle(message.client, message.record, MemServer::Clock::time_point{});
  if (answer) Answer(message.server, message.client, *answer);
}

void LocalServers::Answer(uint32_t server, uint32_t client, WireMessage answer) {
  if (std::uniform_real_distribution<>(0, 1)(random_) < options_.lose_answers) {
    ++answers_lost_;
    return;
  }
  if (options_.tamper) options_.tamper(server, &answer);
  to_clients_.push_back({server, client, Encode(answer), Due()});
}

StatusCode LocalServers::Move(const ServerTransport::Transfer& transfer) {
  Server& server = *servers_[transfer.server];
  if (server.dead) return StatusCode::kUnavailable;
  std::byte* there = server.pool.get() + transfer.offset;
  transfer.is_write ? std::memcpy(there, transfer.buffer, transfer.bytes)
                    : std::memcpy(transfer.buffer, there, transfer.bytes);
  return StatusCode::kOk;
}

}  // namespace ramspan
