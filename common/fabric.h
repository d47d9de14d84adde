// Fabric: what clients and memory servers need of libfabric, and nothing else of it: a domain, endpoints for one-sided
// transfers (FI_EP_RDM), and memory that peers may reach. The provider is whichever fi_getinfo names first that can do what
// is asked for; none is known here by its name. A provider for one host only (shm) is not asked for: when a process dies in
// it, it may leave a lock held in memory that both share, and the other one would spin for ever. So a provider has to
// reach other hosts (FI_REMOTE_COMM), also where the peer happens to be on this one.
//
// Thread-safety: any thread, any call (FI_THREAD_SAFE is asked for), but nobody may be inside an object that is destroyed.
// Ownership: endpoints and regions share the domain. Closing an endpoint ends its transfers: afterwards the network touches none
// of their buffers. That is the only way to get them back from a peer which is silent, so a client has one for each server.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/reserve_addresses.h"
#include "common/status.h"

struct fi_info;
struct fid_fabric;
struct fid_domain;
struct fid_ep;
struct fid_av;
struct fid_cq;
struct fid_mr;

namespace ramspan {

inline constexpr size_t kFabricAddressBytesMax = 256;

// Where an endpoint is reached, and by which protocol: numbers of libfabric's.
struct FabricAddress {
  uint32_t protocol = 0;
  uint32_t protocol_version = 0;
  uint32_t format = 0;
  std::vector<std::byte> bytes;  // at most kFabricAddressBytesMax
  bool operator==(const FabricAddress&) const = default;
};

struct FabricOptions {
  // Only this provider, as fi_info calls it ("tcp;ofi_rxm", "verbs;ofi_rxm"). Empty: the first that can.
  std::string provider;
  // Local buffers are registered whether the provider asks for it (FI_MR_LOCAL) or not. For tests.
  bool register_local = false;
  // So many bytes of local buffers can be registered, as a limit of locked memory would have it. 0: as many as the system grants. For tests.
  uint64_t local_bytes_max = 0;
};

class FabricDomain : public std::enable_shared_from_this<FabricDomain> {
 public:
  // On the interface that has this numeric address of this host, for an endpoint to be found there. kUnavailable: no
  // provider works there; the message says what to look at.
  static Result<std::shared_ptr<FabricDomain>> OpenAt(const std::string& host, const FabricOptions& options);
  // On an interface from which the peer can be reached, speaking its protocol. The same errors.
  static Result<std::shared_ptr<FabricDomain>> OpenTowards(const FabricAddress& peer, const FabricOptions& options);
  ~FabricDomain();
  FabricDomain(const FabricDomain&) = delete;
  FabricDomain& operator=(const FabricDomain&) = delete;

  // One domain serves both: same provider, fabric and interface.
  bool IsSame(const FabricDomain& other) const;
  const char* provider() const;
  size_t transfer_bytes_max() const;
  // Whether transfers need the descriptors of their local buffers.
  bool needs_local_registration() const { return register_local_; }
  // Takes those off the list's begin that want local memory registered with one endpoint: a client has an endpoint for each server, and a
  // frame may go to any of them. What is left may be null.
  static fi_info* WithoutUnusable(fi_info* list);

 private:
  friend class FabricEndpoint;
  friend class FabricRegion;
  FabricDomain() = default;
  static Result<std::shared_ptr<FabricDomain>> Open(fi_info* hints, const char* host, const FabricOptions& options);

  // Constant after Open.
  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  bool register_local_ = false;
  uint64_t local_bytes_max_ = 0;

  std::atomic<uint64_t> local_bytes_{0};  // registered; publishes nothing
};

// One transfer between one run of local memory and one of a peer's.
struct FabricTransfer {
  bool is_write = false;
  std::span<std::byte> local;
  void* descriptor = nullptr;          // of the local memory; null where none is needed
  uint64_t peer = 0;                   // what AddPeer said
  uint64_t address = 0, key = 0;       // in the peer's memory
  void* context = nullptr;             // to at least kFabricContextBytes, the provider's until the transfer has ended
};
inline constexpr size_t kFabricContextBytes = 64;

struct FabricCompletion {
  void* context = nullptr;
  bool ok = false;
};

class FabricEndpoint {
 public:
  static Result<std::unique_ptr<FabricEndpoint>> Open(std::shared_ptr<FabricDomain> domain);
  ~FabricEndpoint();
  FabricEndpoint(const FabricEndpoint&) = delete;
  FabricEndpoint& operator=(const FabricEndpoint&) = delete;

  const FabricAddress& address() const { return address_; }
  // kInvalidArgument: an address that this endpoint cannot use.
  Result<uint64_t> AddPeer(const FabricAddress& address);
  void RemovePeer(uint64_t peer);

  // Keeps the addresses (ulimit -v) that the provider will want at the first Post, where it would answer kAgain for ever if there were none.
  // kResourceExhausted: there are too few. To be called by who will Post, before that.
  Status KeepAddresses();
  // Does not wait. kAgain: no room, or no connection yet; goes on with Poll. A write ends when its bytes are in the peer's
  // memory (FI_DELIVERY_COMPLETE). kFailed: the peer cannot be reached; nothing was begun.
  enum class Posted { kYes, kAgain, kFailed };
  Posted Post(const FabricTransfer& transfer) noexcept;

  // What has ended; gives the provider what it needs to make progress. Does not wait. *broken: the queue itself has failed,
  // and nothing more will come.
  size_t Poll(std::span<FabricCompletion> done, bool* broken);

  // A descriptor that becomes readable when Poll has something to do; -1 where the provider has none. MayWait has to be true
  // right before each wait for it.
  int wait_descriptor() const { return wait_descriptor_; }
  bool MayWait();

 private:
  friend class FabricRegion;
  explicit FabricEndpoint(std::shared_ptr<FabricDomain> domain) : domain_(std::move(domain)) {}
  Status Make();
  void GiveAddressesBack();
  void MarkDescriptors();
  void EndTransfers();
  size_t TakeError(FabricCompletion* done, bool* broken);

  // Constant after Open.
  const std::shared_ptr<FabricDomain> domain_;
  fid_av* av_ = nullptr;
  fid_cq* cq_ = nullptr;
  fid_ep* ep_ = nullptr;
  int wait_descriptor_ = -1;
  FabricAddress address_;

  // Publish nothing: they are for the destructor, when nobody else is here.
  std::atomic<int64_t> under_way_{0};  // transfers
  std::atomic<uint64_t> last_peer_{0};  // of Post

  // How far the first transfer had come when descriptors were marked: the connection's socket is opened by the first that is tried, and is
  // there for certain when one was taken. Publishes nothing.
  enum class Begun { kNo, kTried, kTaken };
  std::atomic<Begun> begun_{Begun::kNo};
  AddressRange kept_;  // for the first transfer; who posts is alone with it
};

// Registered memory: for local buffers, or for a peer that has the key. Must go before the endpoint that it was made for.
class FabricRegion {
 public:
  // `endpoint`: where the transfers will be; some providers bind regions to one.
  static Result<FabricRegion> ForLocal(const std::shared_ptr<FabricDomain>& domain, std::span<std::byte> memory);
  static Result<FabricRegion> ForPeer(FabricEndpoint& endpoint, std::span<std::byte> memory);
  FabricRegion() = default;
  ~FabricRegion() { Close(); }
  FabricRegion(FabricRegion&& other) noexcept;
  FabricRegion& operator=(FabricRegion&& other) noexcept;

  void* descriptor() const;
  uint64_t key() const { return key_; }
  uint64_t address() const { return address_; }  // of its first byte, as a peer has to call it

 private:
  Status Register(FabricDomain& domain, std::span<std::byte> memory, uint64_t access, FabricEndpoint* endpoint);
  void Close();

  std::shared_ptr<FabricDomain> domain_;
  fid_mr* region_ = nullptr;
  uint64_t key_ = 0, address_ = 0;
  uint64_t local_bytes_ = 0;  // as the domain has counted them
};

}  // namespace ramspan
