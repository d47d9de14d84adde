// Link: the stream between one client and one memory server. It begins with the handshake, seals every frame after it (each
// is encrypted and authenticated, and none can be repeated, dropped or swapped without notice: crypto_secretstream), and passes
// descriptors over Unix sockets. Nothing here waits; the owner polls the socket and has all the deadlines.
//
// What a peer can cost is bounded: kInputBytes of input and kUnsentFramesMax frames of output. A peer that breaks the protocol, or
// does not take what is sent to it, loses the link.
//
// Thread-safety: none; the owner guards it. Ownership: of the socket, and of descriptors until they are handed out.
#pragma once

#include <sodium.h>

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "common/descriptor.h"
#include "common/handshake.h"
#include "common/link_frame.h"
#include "common/status.h"

namespace ramspan {

class Link {
 public:
  Link(Descriptor socket, Handshake::Role role, const Secret& secret);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int descriptor() const { return socket_.number(); }
  bool is_trusted() const { return trusted_ && !is_closed(); }
  bool is_closed() const { return !closed_.ok(); }
  const Status& why_closed() const { return closed_; }  // kUnavailable: it ended; kFailedPrecondition: it broke the protocol
  Handshake::Role peer_role() const { return peer_role_; }  // REQUIRES: is_trusted()
  bool wants_to_write() const { return !unsent_.empty(); }
  // Whether many frames may be sent now: who has more to say than a peer takes at once waits until there is. True of a closed link.
  bool has_room() const { return unsent_.size() < kUnsentFramesMax / 2; }
  // How often something has come: tells that the peer lives.
  uint64_t arrivals() const { return arrivals_; }

  // Reads and writes what can be without waiting. Call it when the socket is ready.
  void Progress();
  // The next whole frame, in order. *descriptor: what came with it, if the frame says so; empty if this process had too many
  // open files to take it. Reads on where the input was full.
  bool Next(LinkFrame* frame, Descriptor* descriptor);
  // Allocates what the next Send needs, whether or not the socket is full; it throws nothing then. A closed link needs nothing.
  void PrepareToSend();
  // False: the link is closed, or the peer has not taken kUnsentFramesMax frames, which closes it. Allocates only after the socket
  // was full. std::bad_alloc: nothing is sent, and the link goes on. `descriptor` stays the caller's (Unix sockets only); false, and the link goes on, when this process has too many open
  // files to keep it until it is sent. REQUIRES: is_trusted().
  bool Send(const LinkFrame& frame, int descriptor = -1);
  // Closes this process's copy of the socket and says nothing to the peer: it is the parent's link. Calls close alone, so it may
  // run in a child of a process with threads.
  void CloseInForkedChild() { socket_.Close(); }
  // In place of the destructor where somebody still looks at the reason.
  void Close(Status why);

 private:
  static constexpr size_t kSealBytes = crypto_secretstream_xchacha20poly1305_ABYTES;
  static constexpr size_t kHeaderBytes = crypto_secretstream_xchacha20poly1305_HEADERBYTES;
  static constexpr size_t kSealedBytesMax = kFrameBytesMax + kSealBytes;
  static constexpr size_t kInputBytes = 4 * kSealedBytesMax;
  static constexpr size_t kUnsentFramesMax = 256;
  static constexpr size_t kDescriptorsMax = 16;

  struct Unsent {
    std::array<std::byte, kSealedBytesMax + 2> bytes;
    size_t begin = 0, end = 0;
    Descriptor descriptor;
  };

  bool TakeNext(LinkFrame* frame, Descriptor* descriptor);
  bool Read();
  void TakeDescriptors(void* message);
  void Greet();
  void BeginSealing();
  bool TakePeersHeader();
  ssize_t Write(std::span<const std::byte> bytes, int descriptor);
  bool SendBytes(std::span<const std::byte> bytes, Descriptor descriptor);
  void Flush();
  std::span<const std::byte> input() const { return {input_.data() + input_begin_, input_end_ - input_begin_}; }

  Descriptor socket_;
  const Handshake::Role role_;
  Handshake::Role peer_role_ = Handshake::Role::kServer;
  std::unique_ptr<Handshake> handshake_;  // null when it is over
  Status closed_;
  bool trusted_ = false, peers_header_known_ = false;
  bool ended_ = false;  // the peer sends no more
  crypto_secretstream_xchacha20poly1305_state seal_{}, unseal_{};
  SealKeys keys_;
  uint64_t arrivals_ = 0;

  std::array<std::byte, kInputBytes> input_;
  size_t input_begin_ = 0, input_end_ = 0;
  std::vector<Descriptor> descriptors_;  // came, not yet named by a frame; has room for all that may come at once
  // Of frames that wait. A frame that is sealed has to be sent, else the peer takes the next one for a forgery: so there is a spare
  // place before one is sealed.
  std::list<Unsent> unsent_, spare_;
};

}  // namespace ramspan
