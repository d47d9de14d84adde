#include "client/transport/server_groups.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace ramspan {

// Its lists are guarded by the locks of all groups, since each thread may find something for each group.
class ServerGroups::Group final : public ServerTransport {
 public:
  Group(ServerGroups& all, size_t index) : all_(all), index_(index) {}
  ~Group() override { RS_CHECK(in_flight_ == 0, "a group of servers ends with %zu transfers in flight", in_flight_); }

  Capabilities capabilities() const override { return to().capabilities(); }
  uint32_t self() const override { return to().self(); }

  // A server that came while the heap had no more is seen the next time.
  uint32_t servers() const override {
    MutexLock lock(all_.mutex_);
    WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return all_.NoteNew(), true; }, false);
    return static_cast<uint32_t>(members_.size());
  }
  Server server(uint32_t number) const override { return to().server(NumberOf(number)); }
  ServerState state(uint32_t number) const override { return to().state(NumberOf(number)); }

  void Start(std::span<const Transfer> batch) override {
    for (const Transfer& transfer : batch) StartOne(transfer);
  }
  bool Collect(std::vector<Completion>* done) override;
  void Send(uint32_t server, const WireMessage& message) override {
    MutexLock lock(all_.talk_);
    to().Send(NumberOf(server), message);
  }
  std::optional<Control> Receive() override;

  void Prepare(uint32_t server, uint64_t offset, uint64_t bytes) override { to().Prepare(NumberOf(server), offset, bytes); }
  uint64_t AskedBack(uint32_t server) override { return to().AskedBack(NumberOf(server)); }
  void TellUsage(uint32_t server, uint64_t written_bytes, uint64_t read_bytes) override { to().TellUsage(NumberOf(server), written_bytes, read_bytes); }
  Result<std::function<void()>> PrepareServers(const std::string& names) override { return to().PrepareServers(names); }
  std::string server_names() const override { return to().server_names(); }
  void EndMeetings() noexcept override { to().EndMeetings(); }
  void ForgetMemory(std::span<std::byte> memory) noexcept override { to().ForgetMemory(memory); }
  void Upkeep() override { to().Upkeep(); }
  Registered registered() const override { return index_ == 0 ? to().registered() : Registered{}; }

 private:
  friend class ServerGroups;

  // At the end of a Collect, however it is left: what has ended goes to those whose it is. Needs no heap, since StartOne has seen to it.
  class SortAtEnd {
   public:
    SortAtEnd(Group& group, std::vector<Completion>* done) : group_(group), done_(*done), before_(done->size()) {}
    ~SortAtEnd() { group_.Sort(done_, before_); }
    SortAtEnd(const SortAtEnd&) = delete;
    SortAtEnd& operator=(const SortAtEnd&) = delete;

   private:
    Group& group_;
    std::vector<Completion>& done_;
    const size_t before_;
  };

  ServerTransport& to() const { return all_.transport_; }
  uint32_t NumberOf(uint32_t number) const {
    MutexLock lock(all_.mutex_);
    RS_CHECK(number < members_.size(), "server %u of a group of %zu", number, members_.size());
    return members_[number];
  }
  void StartOne(Transfer transfer);
  void Sort(std::vector<Completion>& done, size_t before);

  ServerGroups& all_;
  const size_t index_;
  // Guarded by all_.mutex_.
  std::vector<uint32_t> members_;  // by the group's numbers: the transport's
  size_t in_flight_ = 0;           // begun, and not returned by Collect
  std::vector<Completion> ended_;  // found by a Collect of another group; has room for all that is in flight
  // Guarded by all_.talk_.
  std::vector<Control> records_;   // found by a Receive of another group; has room for one more
};

// One by one, so that it is known which of them has not been begun where the heap has no more: what is in flight is counted.
void ServerGroups::Group::StartOne(Transfer transfer) {
  {
    MutexLock lock(all_.mutex_);
    RS_CHECK(transfer.server < members_.size(), "server %u of a group of %zu", transfer.server, members_.size());
    if (ended_.capacity() <= in_flight_) ended_.reserve(2 * in_flight_ + 16);
    transfer.server = members_[transfer.server];
    ++in_flight_;
  }
  try {
    to().Start({&transfer, 1});
  } catch (...) {
    MutexLock lock(all_.mutex_);
    --in_flight_;
    throw;
  }
}

bool ServerGroups::Group::Collect(std::vector<Completion>* done) {
  {
    MutexLock lock(all_.mutex_);
    if (!ended_.empty()) {
      done->insert(done->end(), ended_.begin(), ended_.end());
      in_flight_ -= ended_.size();
      ended_.clear();
      return true;
    }
    if (in_flight_ == 0) return false;  // others' transfers are not this group's to wait for
  }
  const SortAtEnd sort(*this, done);
  return to().Collect(done);
}

void ServerGroups::Group::Sort(std::vector<Completion>& done, size_t before) {
  MutexLock lock(all_.mutex_);
  size_t own = before;
  for (size_t i = before; i < done.size(); ++i) {
    Completion completion = done[i];
    const Place place = all_.places_[completion.server];
    completion.server = place.number;
    Group& group = *all_.groups_[place.group];
    if (&group == this) {
      --in_flight_;
      done[own++] = completion;
    } else {
      group.ended_.push_back(completion);
    }
  }
  done.resize(own);
}

std::optional<ServerTransport::Control> ServerGroups::Group::Receive() {
  MutexLock talk(all_.talk_);
  if (!records_.empty()) {
    const Control first = records_.front();
    records_.erase(records_.begin());
    return first;
  }
  // Before a record is taken that would be lost without heap. Few wait here: each group takes its own every few ms.
  for (const auto& group : all_.groups_) group->records_.reserve(group->records_.size() + 1);
  while (std::optional<Control> control = to().Receive()) {
    Place place;
    {
      MutexLock lock(all_.mutex_);
      if (control->server >= all_.places_.size()) continue;  // no group knows it, so nobody has asked it
      place = all_.places_[control->server];
    }
    control->server = place.number;
    if (place.group == index_) return control;
    Group& group = *all_.groups_[place.group];
    group.records_.push_back(*control);
    group.records_.reserve(group.records_.size() + 1);
  }
  return std::nullopt;
}

ServerGroups::ServerGroups(ServerTransport& transport, size_t groups, GroupOf group_of) : transport_(transport), group_of_(std::move(group_of)) {
  RS_CHECK(groups > 0, "no groups of servers");
  for (size_t i = 0; i < groups; ++i) groups_.push_back(std::make_unique<Group>(*this, i));
  MutexLock lock(mutex_);
  NoteNew();
}

ServerGroups::~ServerGroups() = default;

ServerTransport& ServerGroups::group(size_t i) { return *groups_[i]; }

void ServerGroups::NoteNew() {
  for (uint32_t i = static_cast<uint32_t>(places_.size()); i < transport_.servers(); ++i) {
    const size_t index = group_of_(i, transport_.server(i));
    RS_CHECK(index < groups_.size(), "server %u is in group %zu of %zu", i, index, groups_.size());
    std::vector<uint32_t>& members = groups_[index]->members_;
    places_.reserve(places_.size() + 1);  // before one of the two lists knows it
    members.push_back(i);
    places_.push_back({index, static_cast<uint32_t>(members.size() - 1)});
  }
}

}  // namespace ramspan
