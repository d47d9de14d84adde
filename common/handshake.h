// Handshake: how a client and a memory server that meet on a stream find out that both know the same secret, before either
// says anything else. Pure: bytes in, bytes out; whoever has the socket also has the deadline.
//
//   client -> server  hello      magic, version, role, nonce of 32 bytes
//   server -> client  challenge  the same of its own
//   client -> server  proof      MAC(secret, "client" | hello | challenge)
//   server -> client  proof      MAC(secret, "server" | hello | challenge)
//
// A server that has no descriptors left for who comes says so in place of all that (SentAway), and closes the stream. That proves nothing, so it is
// believed as far as words go: who hears it tells it, and may try again.
//
// The client proves first, so a stranger who knocks at a server learns nothing but that something is there. Each proof covers both
// nonces, so it is of no use in another conversation, and the role, so it cannot be thrown back. All messages have fixed
// lengths: a peer can make the other side keep less than a hundred bytes. What follows is sealed with keys that both sides derive
// from the secret and the nonces, one for each direction (SealKeys).
//
// Thread-safety: none. Keyed BLAKE2b (crypto_generichash), compared in constant time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "common/secret.h"
#include "common/status.h"

namespace ramspan {

inline constexpr size_t kHelloBytes = 40;  // magic u32, version u16, role u16, nonce
inline constexpr size_t kProofBytes = 32;
// Of everything that client and server say to each other on such a stream.
inline constexpr uint16_t kLinkVersion = 2;

struct SealKeys {
  std::array<std::byte, 32> to_server{}, to_client{};
};

class Handshake {
 public:
  // A controller is the other end of a server, as a client is, and may give orders.
  enum class Role : uint16_t { kClient = 1, kServer = 2, kController = 3 };
  enum class State {
    kGoesOn,   // more bytes are awaited
    kTrusted,  // the peer knows the secret; bytes behind what was consumed are the first of what follows
    kFailed,   // see failure()
  };

  Handshake(Role role, const Secret& secret);
  // What a server without descriptors sends to who comes.
  static std::array<std::byte, kHelloBytes> SentAway();

  // Takes bytes of the peer, as far as they belong to the handshake; returns how many those were.
  size_t Take(std::span<const std::byte> bytes);
  // What has to be sent now; valid until the next call of Take. Each byte is given out once.
  std::span<const std::byte> Give();

  State state() const { return state_; }
  const Status& failure() const { return failure_; }  // kUnavailable: the server has no descriptors left now; kFailedPrecondition: no peer of ours
  Role peer_role() const { return peer_role_; }  // REQUIRES: kTrusted
  SealKeys keys() const;  // REQUIRES: kTrusted

 private:
  size_t awaited() const { return peer_hello_known_ ? kProofBytes : kHelloBytes; }
  void TakeHello();
  void TakeProof();
  void Send(std::span<const std::byte> bytes);
  std::array<std::byte, 32> Mac(const char* what) const;
  void Fail(Status why);
  void Fail(std::string why) { Fail(FailedPrecondition(std::move(why))); }

  const Role role_;
  Role peer_role_ = Role::kServer;
  const Secret secret_;
  State state_ = State::kGoesOn;
  Status failure_;
  bool peer_hello_known_ = false;
  std::array<std::byte, kHelloBytes> mine_{}, peers_{};
  std::array<std::byte, kHelloBytes> in_{};
  size_t in_length_ = 0;
  std::array<std::byte, kHelloBytes + kProofBytes> out_{};
  size_t out_length_ = 0;
};

}  // namespace ramspan
