// The handshake, byte by byte, between two ends that know the same secret, different ones, or none.
#include "common/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "tests/support/ofi_servers.h"

namespace ramspan {
namespace {

using Bytes = std::vector<std::byte>;
using Role = Handshake::Role;
using State = Handshake::State;

Bytes Given(Handshake& from) {
  const std::span<const std::byte> bytes = from.Give();
  return {bytes.begin(), bytes.end()};
}

// Passes on what both say until nobody says any more; returns all that the server said.
Bytes Converse(Handshake& client, Handshake& server, size_t step = 1000) {
  Bytes said;
  for (bool silent = false; !silent;) {
    const Bytes to_server = Given(client), to_client = Given(server);
    said.insert(said.end(), to_client.begin(), to_client.end());
    silent = to_server.empty() && to_client.empty();
    for (size_t at = 0; at < to_server.size(); at += step) server.Take(std::span(to_server).subspan(at, std::min(step, to_server.size() - at)));
    for (size_t at = 0; at < to_client.size(); at += step) client.Take(std::span(to_client).subspan(at, std::min(step, to_client.size() - at)));
  }
  return said;
}

TEST(Handshake, WhoKnowsTheSameSecretIsTrustedAndHasTheSameKeys) {
  for (const size_t step : {size_t{1}, size_t{7}, size_t{1000}}) {
    Handshake client(Role::kClient, TestSecret()), server(Role::kServer, TestSecret());
    Converse(client, server, step);
    ASSERT_EQ(client.state(), State::kTrusted);
    ASSERT_EQ(server.state(), State::kTrusted);
    EXPECT_EQ(client.keys().to_server, server.keys().to_server);
    EXPECT_EQ(client.keys().to_client, server.keys().to_client);
    EXPECT_NE(client.keys().to_client, client.keys().to_server);
  }
}

TEST(Handshake, WithAnotherSecretTheServerFailsAndProvesNothing) {
  Handshake client(Role::kClient, TestSecret("one secret of the two")), server(Role::kServer, TestSecret("the other of the two"));
  const Bytes said = Converse(client, server);
  EXPECT_EQ(server.state(), State::kFailed);
  EXPECT_THAT(server.failure().message(), testing::HasSubstr("another secret"));
  EXPECT_NE(client.state(), State::kTrusted);
  EXPECT_EQ(said.size(), kHelloBytes) << "its challenge, and no proof";
}

TEST(Handshake, AServerThatDoesNotKnowTheSecretIsNotTrusted) {
  Handshake client(Role::kClient, TestSecret());
  Handshake liar(Role::kServer, TestSecret("what somebody else knows"));
  liar.Take(Given(client));
  client.Take(Given(liar));
  ASSERT_EQ(Given(client).size(), kProofBytes);
  client.Take(Bytes(kProofBytes, std::byte{7}));
  EXPECT_EQ(client.state(), State::kFailed);
}

TEST(Handshake, AProofThatWasHeardBeforeProvesNothing) {
  Handshake client(Role::kClient, TestSecret()), server(Role::kServer, TestSecret());
  const Bytes hello = Given(client);
  server.Take(hello);
  client.Take(Given(server));
  const Bytes proof = Given(client);
  server.Take(proof);
  ASSERT_EQ(server.state(), State::kTrusted);
  Handshake again(Role::kServer, TestSecret());
  again.Take(hello);
  Given(again);
  again.Take(proof);
  EXPECT_EQ(again.state(), State::kFailed) << "its challenge is another one";
}

// Who knows nothing could send a server what another connection to it, or the server itself, has said.
TEST(Handshake, ASideCannotBeAnsweredWithItsOwnWords) {
  Handshake server(Role::kServer, TestSecret()), client(Role::kClient, TestSecret());
  const Bytes hello = Given(client);
  EXPECT_EQ(client.Take(hello), kHelloBytes);
  EXPECT_EQ(client.state(), State::kFailed) << "a client's hello is no server's";
  Handshake honest(Role::kClient, TestSecret());
  server.Take(Given(honest));
  honest.Take(Given(server));
  server.Take(Given(honest));
  const Bytes servers_proof = Given(server);
  ASSERT_EQ(servers_proof.size(), kProofBytes);
  Handshake other(Role::kServer, TestSecret());
  other.Take(hello);
  Given(other);
  other.Take(servers_proof);
  EXPECT_EQ(other.state(), State::kFailed);
}

TEST(Handshake, AnotherVersionIsNamedOnBothSides) {
  Handshake client(Role::kClient, TestSecret()), server(Role::kServer, TestSecret());
  Bytes hello = Given(client);
  hello[4] ^= std::byte{0x40};
  server.Take(hello);
  EXPECT_THAT(server.failure().message(), testing::HasSubstr("use one Ramspan version"));
  Bytes challenge = Given(server);
  ASSERT_EQ(challenge.size(), kHelloBytes) << "so that the client can say so";
  challenge[4] ^= std::byte{0x40};
  client.Take(challenge);
  EXPECT_THAT(client.failure().message(), testing::HasSubstr("use one Ramspan version"));
}

TEST(Handshake, BytesBehindItAreLeftToWhatFollows) {
  Handshake client(Role::kClient, TestSecret()), server(Role::kServer, TestSecret());
  server.Take(Given(client));
  client.Take(Given(server));
  Bytes proof = Given(client);
  proof.resize(proof.size() + 100);
  EXPECT_EQ(server.Take(proof), kProofBytes);
  EXPECT_EQ(server.state(), State::kTrusted);
}

TEST(HandshakeFuzz, NoGarbageIsTrustedOrMakesASideSayMoreThanItsHello) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 5000; ++i) {
    const Role role = random() % 2 == 0 ? Role::kClient : Role::kServer;
    Handshake side(role, TestSecret()), peer(role == Role::kClient ? Role::kServer : Role::kClient, TestSecret());
    peer.Take(Given(side));
    Bytes input = Given(peer);
    input.resize(input.size() + random() % 100);
    for (std::byte& b : input) b = random() % 3 != 0 ? b : static_cast<std::byte>(random());
    size_t said = 0;
    for (size_t at = 0; at < input.size() && side.state() == State::kGoesOn;) {
      at += side.Take(std::span(input).subspan(at, std::min<size_t>(1 + random() % 50, input.size() - at)));
      said += Given(side).size();
    }
    ASSERT_NE(side.state(), State::kTrusted);
    ASSERT_LE(said, kHelloBytes + kProofBytes);
  }
}

// Two hosts that share a home may have processes of the same number, and both make the key file.
TEST(SecretFile, IsMadeAlthoughAnotherHostsProcessOfTheSameNumberIsMakingIt) {
  std::string folder = testing::TempDir() + "ramspan-secret-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/key";
  std::ofstream(path + "." + std::to_string(getpid())) << "";
  const Result<Secret> made = Secret::FromFileOrNew(path);
  EXPECT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()), 2) << "the key, and what the other is making";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ramspan
