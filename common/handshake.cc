#include "common/handshake.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/bytes.h"

namespace ramspan {
namespace {

constexpr uint32_t kMagic = 0x4b4c5352;  // "RSLK"
constexpr uint16_t kSentAwayRole = 4;  // in place of a role
constexpr size_t kNonceBytes = 32, kNonceAt = kHelloBytes - kNonceBytes;

}  // namespace

Handshake::Handshake(Role role, const Secret& secret) : role_(role), secret_(secret) {
  PutLittle(mine_, 0, kMagic);
  PutLittle(mine_, 4, kLinkVersion);
  PutLittle(mine_, 6, static_cast<uint16_t>(role));
  randombytes_buf(mine_.data() + kNonceAt, kNonceBytes);
  if (role != Role::kServer) Send(mine_);
}

std::array<std::byte, kHelloBytes> Handshake::SentAway() {
  std::array<std::byte, kHelloBytes> hello{};
  PutLittle(hello, 0, kMagic);
  PutLittle(hello, 4, kLinkVersion);
  PutLittle(hello, 6, kSentAwayRole);
  return hello;
}

size_t Handshake::Take(std::span<const std::byte> bytes) {
  size_t taken = 0;
  while (state_ == State::kGoesOn && taken < bytes.size()) {
    const size_t n = std::min(bytes.size() - taken, awaited() - in_length_);
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(taken), n, in_.begin() + static_cast<ptrdiff_t>(in_length_));
    taken += n;
    in_length_ += n;
    if (in_length_ < awaited()) break;
    in_length_ = 0;
    peer_hello_known_ ? TakeProof() : TakeHello();
  }
  return taken;
}

std::span<const std::byte> Handshake::Give() { return {out_.data(), std::exchange(out_length_, 0)}; }

void Handshake::TakeHello() {
  const auto version = GetLittle<uint16_t>(in_, 4);
  const auto role = GetLittle<uint16_t>(in_, 6);
  if (GetLittle<uint32_t>(in_, 0) != kMagic) return Fail("it speaks another protocol");
  if (version != kLinkVersion) {
    if (role_ == Role::kServer) Send(mine_);  // so that the client can say so, too
    return Fail("it speaks version " + std::to_string(version) + " of the protocol, this side " + std::to_string(kLinkVersion) +
                ": use one Ramspan version for clients and servers");
  }
  if (role == kSentAwayRole && role_ != Role::kServer) return Fail(Unavailable("it has no descriptors left for clients: raise its limit (ulimit -n)"));
  const bool is_server = role == static_cast<uint16_t>(Role::kServer);
  const bool is_known = is_server || role == static_cast<uint16_t>(Role::kClient) || role == static_cast<uint16_t>(Role::kController);
  if (!is_known || is_server == (role_ == Role::kServer)) return Fail("it is on the same side as this one");
  peer_role_ = static_cast<Role>(role);
  peers_ = in_;
  peer_hello_known_ = true;
  if (role_ == Role::kServer) return Send(mine_);
  Send(Mac("client"));
}

void Handshake::TakeProof() {
  const std::array<std::byte, kProofBytes> right = Mac(role_ == Role::kServer ? "client" : "server");
  if (sodium_memcmp(right.data(), in_.data(), kProofBytes) != 0) {
    return Fail("it has another secret: clients and servers need the same key file (serverKeyFile, --key-file)");
  }
  if (role_ == Role::kServer) Send(Mac("server"));
  state_ = State::kTrusted;
}

void Handshake::Send(std::span<const std::byte> bytes) {
  std::copy(bytes.begin(), bytes.end(), out_.begin() + static_cast<ptrdiff_t>(out_length_));
  out_length_ += bytes.size();
}

std::array<std::byte, 32> Handshake::Mac(const char* what) const {
  const bool is_client = role_ != Role::kServer;
  const auto& hello = is_client ? mine_ : peers_;
  const auto& challenge = is_client ? peers_ : mine_;
  const auto key = secret_.bytes();
  std::array<std::byte, 32> mac;
  crypto_generichash_state state;
  crypto_generichash_init(&state, Raw(key.data()), key.size(), mac.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(what), std::strlen(what) + 1);
  crypto_generichash_update(&state, Raw(hello.data()), hello.size());
  crypto_generichash_update(&state, Raw(challenge.data()), challenge.size());
  crypto_generichash_final(&state, Raw(mac.data()), mac.size());
  return mac;
}

SealKeys Handshake::keys() const {
  RS_CHECK(state_ == State::kTrusted, "keys for a peer that has proved %s", "nothing");
  return {.to_server = Mac("seal to server"), .to_client = Mac("seal to client")};
}

void Handshake::Fail(Status why) {
  state_ = State::kFailed;
  failure_ = std::move(why);
}

}  // namespace ramspan
