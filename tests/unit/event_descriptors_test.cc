#include "common/event_descriptors.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace ramspan {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

// An epoll set that watches one counter, as a library would have one that watches its sockets.
class Watched {
 public:
  Watched() {
    epoll_event event{.events = EPOLLIN, .data = {}};
    epoll_ctl(set_, EPOLL_CTL_ADD, counter_, &event);
  }
  ~Watched() { CloseSet(), close(counter_); }
  void Say() { eventfd_write(counter_, 1); }
  void Hear() {
    eventfd_t value = 0;
    eventfd_read(counter_, &value);
  }
  void CloseSet() {
    if (set_ >= 0) close(set_);
    set_ = -1;
  }

 private:
  int counter_ = eventfd(0, EFD_CLOEXEC);
  int set_ = epoll_create1(EPOLL_CLOEXEC);
};

TEST(EventDescriptors, AProcessWithoutEpollHasNone) {
  EventDescriptors events = EventDescriptors::OfThisProcess();
  EXPECT_TRUE(events.empty());
  EXPECT_FALSE(events.Wait(microseconds(0)));
}

TEST(EventDescriptors, ReadyIsWhatNobodyHasDealtWith) {
  Watched quiet, watched;
  EventDescriptors events = EventDescriptors::OfThisProcess();
  ASSERT_FALSE(events.empty());
  EXPECT_FALSE(events.Wait(microseconds(0)));
  watched.Say();
  EXPECT_TRUE(events.Wait(microseconds(0)));
  EXPECT_TRUE(events.Wait(microseconds(0)));  // looking takes nothing away
  watched.Hear();
  EXPECT_FALSE(events.Wait(microseconds(0)));
}

TEST(EventDescriptors, AWaitEndsWhenSomethingComes) {
  Watched watched;
  EventDescriptors events = EventDescriptors::OfThisProcess();
  std::thread other([&] { watched.Say(); });
  EXPECT_TRUE(events.Wait(seconds(60)));
  other.join();
}

TEST(EventDescriptors, AWaitForNothingEnds) {
  Watched watched;
  EventDescriptors events = EventDescriptors::OfThisProcess();
  EXPECT_FALSE(events.Wait(microseconds(1500)));
}

TEST(EventDescriptors, OneThatItsLibraryHasClosedIsNotReadyForEver) {
  Watched watched;
  EventDescriptors events = EventDescriptors::OfThisProcess();
  watched.CloseSet();
  events.Wait(microseconds(0));
  EXPECT_FALSE(events.Wait(microseconds(0)));
  EXPECT_TRUE(events.empty());
}

}  // namespace
}  // namespace ramspan
