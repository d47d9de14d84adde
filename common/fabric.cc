#include "common/fabric.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "common/close_on_exec.h"
#include "common/default_variable.h"
#include "common/limit_of_files.h"
#include "common/signal_handlers_kept.h"
#include "common/signals_blocked.h"
#include "common/socket_address.h"
#include "common/units.h"

namespace ramspan {
namespace {

const uint32_t kApiVersion = FI_VERSION(1, 17);
// All that Register and the callers of it can do; a provider takes what it needs of them.
constexpr int kMemoryModes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
// Transfers that may be under way on one endpoint: more than a client starts at a time, so that Post seldom says kAgain.
// Few messages come (only what providers send to each other), and each costs a buffer of 16 KiB.
constexpr size_t kQueueTransfers = 256, kQueueMessages = 32;
constexpr int kKeyTries = 8;
// What ofi_rxm maps when the first transfer begins, rounded up: two pools of 1024 buffers of 16 KiB (docs/architecture.md), and what connects.
constexpr uint64_t kFirstTransferAddresses = uint64_t{40} << 20;
// Until a connection that was ended has ended all its transfers; it is a matter of microseconds.
constexpr std::chrono::seconds kEndOfConnectionMax{2};

static_assert(sizeof(fi_context2) <= kFabricContextBytes);

std::string Words(int error) {
  const int number = error < 0 ? -error : error;
  return std::string(fi_strerror(number)) + (number == FI_ENOMEM ? " (see `ulimit -v` and `ulimit -d`, then what memory is free)" : LimitOfFiles(number));
}

fi_info* NewHints() {
  fi_info* hints = fi_allocinfo();
  RS_CHECK(hints != nullptr, "no memory for libfabric's %s", "hints");
  hints->caps = FI_MSG | FI_RMA | FI_REMOTE_COMM;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = kMemoryModes;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  hints->tx_attr->size = kQueueTransfers;
  hints->rx_attr->size = kQueueMessages;
  return hints;
}

Status NoProvider(const std::string& where, const FabricOptions& options, int error) {
  const std::string which = options.provider.empty() ? "" : " \"" + options.provider + "\" (fabricProvider)";
  return Unavailable("no provider" + which + " of libfabric for one-sided transfers " + where + ": " + Words(error) +
                     "; `fi_info -t FI_EP_RDM -c FI_RMA` lists what there is, and the environment variable FI_PROVIDER may hide some");
}

// Once, by the first who opens a domain: later another thread of the program might be reading the environment.
void StartLibfabric() {
  static const bool started = [] {
    const DefaultVariable no_handlers("IPATH_NO_BACKTRACE", "1");  // of a libinfinipath that is only loaded now (ofi_door.cc)
    // ofi_rxm over tcp posts 4096 buffers of 16 KiB for messages that may come, 64 MiB for each endpoint. Here none come but the few by
    // which it connects. 128 is what it posts over other networks, so those do not change. It reads this once in a process.
    const DefaultVariable few("FI_OFI_RXM_MSG_RX_SIZE", "128");
    fi_info* any = nullptr;
    if (fi_getinfo(kApiVersion, nullptr, nullptr, 0, nullptr, &any) == 0) fi_freeinfo(any);
    return true;
  }();
  static_cast<void>(started);
}

}  // namespace

// ---- Domain ----

fi_info* FabricDomain::WithoutUnusable(fi_info* list) {
  constexpr int kBoth = FI_MR_LOCAL | FI_MR_ENDPOINT;
  while (list != nullptr && (list->domain_attr->mr_mode & kBoth) == kBoth) {
    fi_info* const rest = std::exchange(list->next, nullptr);
    fi_freeinfo(list);
    list = rest;
  }
  return list;
}

Result<std::shared_ptr<FabricDomain>> FabricDomain::Open(fi_info* hints, const char* host, const FabricOptions& options) {
  if (!options.provider.empty()) hints->fabric_attr->prov_name = strdup(options.provider.c_str());
  auto domain = std::shared_ptr<FabricDomain>(new FabricDomain);
  const SignalsBlocked blocked;  // providers may start threads. What comes meanwhile is for the program's handlers, so they are back first
  const SignalHandlersKept kept;
  StartLibfabric();
  const int found = fi_getinfo(kApiVersion, host, nullptr, host == nullptr ? 0 : FI_SOURCE, hints, &domain->info_);
  fi_freeinfo(hints);
  const std::string where = host == nullptr ? "reaches this server" : "works at " + std::string(host);
  if (found != 0) return NoProvider(where, options, found);
  domain->info_ = WithoutUnusable(domain->info_);
  if (domain->info_ == nullptr) {
    return Unavailable("each provider of libfabric that " + where + " wants local memory registered with one endpoint (FI_MR_LOCAL and FI_MR_ENDPOINT), which "
                       "Ramspan does not do; choose another one (fabricProvider)");
  }
  domain->local_bytes_max_ = options.local_bytes_max;
  domain->register_local_ = options.register_local || (domain->info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
  int error = fi_fabric(domain->info_->fabric_attr, &domain->fabric_, nullptr);
  if (error == 0) error = fi_domain(domain->fabric_, domain->info_, &domain->domain_, nullptr);
  if (error != 0) return NoProvider(where, options, error);
  return domain;
}

Result<std::shared_ptr<FabricDomain>> FabricDomain::OpenAt(const std::string& host, const FabricOptions& options) {
  return Open(NewHints(), host.c_str(), options);
}

Result<std::shared_ptr<FabricDomain>> FabricDomain::OpenTowards(const FabricAddress& peer, const FabricOptions& options) {
  fi_info* hints = NewHints();
  hints->ep_attr->protocol = peer.protocol;
  hints->ep_attr->protocol_version = peer.protocol_version;
  hints->addr_format = peer.format;
  hints->dest_addrlen = peer.bytes.size();
  // fi_freeinfo frees it. As long as any address: libfabric reads as many bytes as its format has, whatever length the peer has told.
  hints->dest_addr = std::calloc(1, kFabricAddressBytesMax + 1);
  RS_CHECK(hints->dest_addr != nullptr, "no memory for an address of %zu bytes", peer.bytes.size());
  std::memcpy(hints->dest_addr, peer.bytes.data(), peer.bytes.size());
  return Open(hints, nullptr, options);
}

FabricDomain::~FabricDomain() {
  if (domain_ != nullptr) fi_close(&domain_->fid);
  if (fabric_ != nullptr) fi_close(&fabric_->fid);
  if (info_ != nullptr) fi_freeinfo(info_);
}

bool FabricDomain::IsSame(const FabricDomain& other) const {
  const auto same = [](const char* a, const char* b) { return std::strcmp(a, b) == 0; };
  return same(info_->fabric_attr->prov_name, other.info_->fabric_attr->prov_name) &&
         same(info_->fabric_attr->name, other.info_->fabric_attr->name) &&
         same(info_->domain_attr->name, other.info_->domain_attr->name) &&
         info_->ep_attr->protocol == other.info_->ep_attr->protocol;
}

const char* FabricDomain::provider() const { return info_->fabric_attr->prov_name; }
size_t FabricDomain::transfer_bytes_max() const { return info_->ep_attr->max_msg_size; }

// ---- Endpoint ----

Result<std::unique_ptr<FabricEndpoint>> FabricEndpoint::Open(std::shared_ptr<FabricDomain> domain) {
  auto endpoint = std::unique_ptr<FabricEndpoint>(new FabricEndpoint(std::move(domain)));
  if (Status made = endpoint->Make(); !made.ok()) return made;
  return endpoint;
}

Status FabricEndpoint::Make() {
  const SignalsBlocked blocked;  // providers may start threads
  fi_info* info = domain_->info_;
  fi_av_attr av_attributes{};
  av_attributes.type = info->domain_attr->av_type == FI_AV_MAP ? FI_AV_MAP : FI_AV_TABLE;
  fi_cq_attr cq_attributes{};
  cq_attributes.format = FI_CQ_FORMAT_CONTEXT;
  cq_attributes.wait_obj = FI_WAIT_FD;
  cq_attributes.size = kQueueTransfers + kQueueMessages;
  int error = fi_av_open(domain_->domain_, &av_attributes, &av_, nullptr);
  if (error == 0) {
    error = fi_cq_open(domain_->domain_, &cq_attributes, &cq_, nullptr);
    if (error != 0) {
      cq_attributes.wait_obj = FI_WAIT_NONE;  // then who waits has to poll
      error = fi_cq_open(domain_->domain_, &cq_attributes, &cq_, nullptr);
    }
  }
  if (error == 0) error = fi_endpoint(domain_->domain_, info, &ep_, nullptr);
  if (error == 0) error = fi_ep_bind(ep_, &av_->fid, 0);
  if (error == 0) error = fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = fi_enable(ep_);
  if (error != 0) return Unavailable("an endpoint of " + std::string(domain_->provider()) + ": " + Words(error));
  int descriptor = -1;
  if (cq_attributes.wait_obj == FI_WAIT_FD && fi_control(&cq_->fid, FI_GETWAIT, &descriptor) == 0) wait_descriptor_ = descriptor;
  size_t length = kFabricAddressBytesMax;
  address_ = {info->ep_attr->protocol, info->ep_attr->protocol_version, info->addr_format, std::vector<std::byte>(length)};
  error = fi_getname(&ep_->fid, address_.bytes.data(), &length);
  if (error != 0) return Unavailable("the address of an endpoint of " + std::string(domain_->provider()) + ": " + Words(error));
  address_.bytes.resize(length);
  MarkDescriptors();
  return {};
}

// libfabric (up to 2.6) opens all without close-on-exec. Its providers over sockets wait for them in the set of the completion queue, which
// takes in what is new when it is asked whether one may wait.
void FabricEndpoint::MarkDescriptors() {
  if (wait_descriptor_ < 0) return;
  MayWait();
  CloseOnExec(wait_descriptor_);
}

Status FabricEndpoint::KeepAddresses() {
  kept_ = ReserveAddresses(kFirstTransferAddresses, kFirstTransferAddresses);
  if (kept_.begin != nullptr) return {};
  return ResourceExhausted(std::string(domain_->provider()) + " takes " + FormatBytes(kFirstTransferAddresses) +
                           " of addresses for the buffers of a server of another host, and this process may not have as many more: raise `ulimit -v` (or `ulimit -d`)");
}

void FabricEndpoint::GiveAddressesBack() {
  if (kept_.begin != nullptr) munmap(std::exchange(kept_, {}).begin, kFirstTransferAddresses);
}

FabricEndpoint::~FabricEndpoint() {
  GiveAddressesBack();
  if (under_way_.load(std::memory_order_relaxed) > 0) EndTransfers();
  if (ep_ != nullptr) fi_close(&ep_->fid);
  if (cq_ != nullptr) fi_close(&cq_->fid);
  if (av_ != nullptr) fi_close(&av_->fid);
}

// The tcp provider of libfabric before 1.18 ends a read twice whose answer is half way when its endpoint is closed, and fi_close
// then follows a null pointer (mended there by "prov/tcp: Suspicion of bug where RX entry is freed twice"). A connection that has
// ended takes another way, which is right. Over networks without sockets there is none to end, and closing is all that is done.
void FabricEndpoint::EndTransfers() {
  if (address_.format != FI_SOCKADDR_IN && address_.format != FI_SOCKADDR_IN6 && address_.format != FI_SOCKADDR) return;
  SocketAddress peer;
  size_t length = sizeof peer.storage;
  if (fi_av_lookup(av_, last_peer_.load(std::memory_order_relaxed), &peer.storage, &length) != 0) return;
  peer.length = static_cast<socklen_t>(std::min(length, sizeof peer.storage));
  if (!HangUp(peer)) return;
  // What the system has taken in already is still read, then comes the end, which ends all.
  const auto give_up = std::chrono::steady_clock::now() + kEndOfConnectionMax;
  std::array<FabricCompletion, 16> done;
  for (bool broken = false; !broken && under_way_.load(std::memory_order_relaxed) > 0 && std::chrono::steady_clock::now() < give_up;) {
    if (Poll(done, &broken) == 0) std::this_thread::yield();
  }
}

Result<uint64_t> FabricEndpoint::AddPeer(const FabricAddress& address) {
  const bool speaks_the_same = address.protocol == address_.protocol && address.format == address_.format;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  // The provider reads as many bytes as its own addresses have, wherever they end.
  if (!speaks_the_same || address.bytes.size() != address_.bytes.size() ||
      fi_av_insert(av_, address.bytes.data(), 1, &peer, 0, nullptr) != 1) {
    return InvalidArgument("an address that " + std::string(domain_->provider()) + " cannot use: protocol " +
                           std::to_string(address.protocol) + ", here " + std::to_string(address_.protocol) +
                           "; set fabricProvider alike on both sides");
  }
  return uint64_t{peer};
}

void FabricEndpoint::RemovePeer(uint64_t peer) {
  fi_addr_t address = peer;
  fi_av_remove(av_, &address, 1, 0);
}

FabricEndpoint::Posted FabricEndpoint::Post(const FabricTransfer& transfer) noexcept {
  const iovec local{transfer.local.data(), transfer.local.size()};
  void* descriptor = transfer.descriptor;
  const fi_rma_iov remote{.addr = transfer.address, .len = local.iov_len, .key = transfer.key};
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = transfer.peer;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = transfer.context;
  GiveAddressesBack();
  under_way_.fetch_add(1, std::memory_order_relaxed);  // it may end before the call does
  last_peer_.store(transfer.peer, std::memory_order_relaxed);
  // Without FI_INJECT: no transfer is as small as it takes (docs/architecture.md, what is not used).
  const ssize_t posted = transfer.is_write ? fi_writemsg(ep_, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)
                                           : fi_readmsg(ep_, &message, FI_COMPLETION);
  if (posted != 0) under_way_.fetch_sub(1, std::memory_order_relaxed);
  if (begun_.load(std::memory_order_relaxed) != Begun::kTaken) {
    const Begun now = posted == 0 ? Begun::kTaken : Begun::kTried;
    // Without heap the next Post tries it again: what the network has taken is under way, whatever comes of the marks.
    const bool marked = begun_.load(std::memory_order_relaxed) == now || WithinHeap([this] { return MarkDescriptors(), true; }, false);
    if (marked) begun_.store(now, std::memory_order_relaxed);
  }
  return posted == 0 ? Posted::kYes : posted == -FI_EAGAIN ? Posted::kAgain : Posted::kFailed;
}

size_t FabricEndpoint::Poll(std::span<FabricCompletion> done, bool* broken) {
  std::array<fi_cq_entry, 16> entries;
  *broken = false;
  const ssize_t n = fi_cq_read(cq_, entries.data(), std::min(entries.size(), done.size()));
  if (n == -FI_EAVAIL) return TakeError(done.data(), broken);
  if (n < 0) {
    *broken = n != -FI_EAGAIN;
    return 0;
  }
  under_way_.fetch_sub(n, std::memory_order_relaxed);
  for (ssize_t i = 0; i < n; ++i) done[static_cast<size_t>(i)] = {entries[static_cast<size_t>(i)].op_context, true};
  return static_cast<size_t>(n);
}

size_t FabricEndpoint::TakeError(FabricCompletion* done, bool* broken) {
  fi_cq_err_entry error{};
  const ssize_t n = fi_cq_readerr(cq_, &error, 0);
  if (n <= 0) {
    *broken = n != -FI_EAGAIN && n != 0;
    return 0;
  }
  if (error.op_context == nullptr) return 0;  // of something that the provider did by itself
  under_way_.fetch_sub(1, std::memory_order_relaxed);
  *done = {error.op_context, false};
  return 1;
}

bool FabricEndpoint::MayWait() {
  fid* queue = &cq_->fid;
  return fi_trywait(domain_->fabric_, &queue, 1) == FI_SUCCESS;
}

// ---- Region ----

Status FabricRegion::Register(FabricDomain& domain, std::span<std::byte> memory, uint64_t access, FabricEndpoint* endpoint) {
  const int modes = domain.info_->domain_attr->mr_mode;
  const size_t key_bytes = domain.info_->domain_attr->mr_key_size;
  int error = 0;
  for (int i = 0; i < kKeyTries; ++i) {
    // Where the provider does not choose the key, nobody shall guess it.
    uint64_t key = 0;
    if (getrandom(&key, sizeof key, 0) != sizeof key) return Unavailable("the system has no random numbers");
    if (key_bytes > 0 && key_bytes < sizeof key) key &= (uint64_t{1} << (8 * key_bytes)) - 1;
    error = fi_mr_reg(domain.domain_, memory.data(), memory.size(), access, 0, key, 0, &region_, nullptr);
    if (error != -FI_ENOKEY) break;
  }
  if (error == 0 && endpoint != nullptr && (modes & FI_MR_ENDPOINT) != 0) {
    error = fi_mr_bind(region_, &endpoint->ep_->fid, 0);
    if (error == 0) error = fi_mr_enable(region_);
  }
  if (error != 0) {
    Close();
    return ResourceExhausted("memory of " + std::to_string(memory.size()) + " bytes cannot be registered with " +
                             domain.provider() + ": " + Words(error) + "; see the limit of locked memory (ulimit -l)");
  }
  key_ = fi_mr_key(region_);
  address_ = (modes & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<uint64_t>(memory.data()) : 0;
  return {};
}

Result<FabricRegion> FabricRegion::ForLocal(const std::shared_ptr<FabricDomain>& domain, std::span<std::byte> memory) {
  FabricRegion region;
  // As the kernel counts: who fails takes no room from others meanwhile.
  uint64_t before = domain->local_bytes_.load(std::memory_order_relaxed);
  do {
    if (domain->local_bytes_max_ > 0 && before + memory.size() > domain->local_bytes_max_) return ResourceExhausted("more local memory than the test's limit cannot be registered");
  } while (!domain->local_bytes_.compare_exchange_weak(before, before + memory.size(), std::memory_order_relaxed));
  region.domain_ = domain;
  region.local_bytes_ = memory.size();
  const Status made = region.Register(*domain, memory, FI_READ | FI_WRITE, nullptr);
  if (!made.ok()) return made;
  return region;
}

Result<FabricRegion> FabricRegion::ForPeer(FabricEndpoint& endpoint, std::span<std::byte> memory) {
  FabricRegion region;
  region.domain_ = endpoint.domain_;
  const Status made = region.Register(*region.domain_, memory, FI_REMOTE_READ | FI_REMOTE_WRITE, &endpoint);
  if (!made.ok()) return made;
  return region;
}

FabricRegion::FabricRegion(FabricRegion&& other) noexcept { *this = std::move(other); }

FabricRegion& FabricRegion::operator=(FabricRegion&& other) noexcept {
  if (this == &other) return *this;
  Close();
  domain_ = std::move(other.domain_);
  region_ = std::exchange(other.region_, nullptr);
  key_ = other.key_;
  address_ = other.address_;
  local_bytes_ = std::exchange(other.local_bytes_, 0);
  return *this;
}

void FabricRegion::Close() {
  if (domain_ != nullptr) domain_->local_bytes_.fetch_sub(std::exchange(local_bytes_, 0), std::memory_order_relaxed);
  if (region_ != nullptr) fi_close(&std::exchange(region_, nullptr)->fid);
}

void* FabricRegion::descriptor() const { return region_ == nullptr ? nullptr : fi_mr_desc(region_); }

}  // namespace ramspan
