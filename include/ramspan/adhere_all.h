// adhereAll(a, b, c): pins several managedPtrs together, all of them or none. Threads that each need several chunks can
// then share a limit without holding half of what they need while they wait for the other half:
//
//   auto [x, y, z] = adhereAll(a, b, std::as_const(c));   // a and b to be written, c to be read
//   double *px = x, *py = y;
//   const double* pz = z;
//
// The results are ordinary adhereTos that have been pulled; each unpins when it goes. A thread that waits here holds none
// of them; threads that wait are served in the order in which they came.
//
// Blocks until all are in memory. Throws OutOfMemory when together they exceed the limit or when no other thread goes
// on to release what is pinned (do not hold other adhereTos meanwhile: those are not given up), and what a pull throws;
// nothing is pinned then. A null managedPtr (n = 0) takes no part.
//
// Thread-safety: any thread; the managedPtrs may be shared by threads that only read them (managed_ptr.h), and must
// outlive the results.
#pragma once

#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ramspan/adhere_to.h"

namespace ramspan {

namespace detail {

struct PinRequest {
  ChunkHead* chunk;  // null: nothing to pin
  uint32_t offset;   // of the elements in the chunk
  bool write;
  unsigned slot = kNoPin;
};

// Pins all or throws with none pinned.
RAMSPAN_API void PinTogether(PinRequest* requests, size_t count, PinTable* table);
// The same in none of the slots beyond the table, for programs that were compiled when there were none.
RAMSPAN_API void PinAll(PinRequest* requests, size_t count, PinTable* table);

struct PinAccess {
  template <typename P>
  static PinRequest Request(P& data) {
    return {data.object_.chunk(), data.object_.offset(), !std::is_const_v<P>};
  }
  template <typename T>
  static adhereTo<T> Pinned(const PinRequest& request, PinTable* table) {
    return adhereTo<T>(request.chunk, request.offset, table, request.slot);
  }
  template <typename... T, size_t... I>
  static std::tuple<adhereTo<T>...> PinnedAll(const PinRequest* requests, PinTable* table, std::index_sequence<I...>) {
    return std::tuple<adhereTo<T>...>{Pinned<T>(requests[I], table)...};
  }
};

template <typename P>
struct IsManagedPtr : std::false_type {};
template <typename T>
struct IsManagedPtr<managedPtr<T>> : std::true_type {};

}  // namespace detail

template <typename... P, std::enable_if_t<(detail::IsManagedPtr<std::remove_const_t<P>>::value && ...), int> = 0>
[[nodiscard]] std::tuple<adhereTo<typename P::element_type>...> adhereAll(P&... data) {
  detail::PinTable* table = detail::ThisThreadPins();
  detail::PinRequest requests[] = {detail::PinAccess::Request(data)...};
  detail::PinTogether(requests, sizeof...(P), table);
  return detail::PinAccess::PinnedAll<typename P::element_type...>(requests, table, std::index_sequence_for<P...>());
}

// All managedPtrs of a range, to be written, or read where they are const.
template <typename Range, typename P = std::remove_reference_t<decltype(*std::begin(std::declval<Range&>()))>,
          std::enable_if_t<detail::IsManagedPtr<std::remove_const_t<P>>::value, int> = 0>
[[nodiscard]] auto adhereAll(Range&& data) {
  using T = typename P::element_type;
  detail::PinTable* table = detail::ThisThreadPins();
  std::vector<detail::PinRequest> requests;
  for (auto& one : data) requests.push_back(detail::PinAccess::Request(one));
  std::vector<adhereTo<T>> pins;
  pins.reserve(requests.size());
  detail::PinTogether(requests.data(), requests.size(), table);
  for (const detail::PinRequest& one : requests) pins.push_back(detail::PinAccess::Pinned<T>(one, table));
  return pins;
}

}  // namespace ramspan
