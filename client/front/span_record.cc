#include "ramspan/detail/span_record.h"

#include <string>

#include "common/raise.h"
#include "ramspan/errors.h"

namespace ramspan::detail {

__thread SpanRecord* t_spans = nullptr;

namespace {

bool Overlap(const SpanRecord& a, const SpanRecord& b) { return a.vector == b.vector && a.first < b.first + b.count && b.first < a.first + a.count; }
bool HoldsAllOf(const SpanRecord& other, const SpanRecord& record) {
  return other.vector == record.vector && record.first >= other.copy_first && record.first + record.count <= other.copy_first + other.copy_count;
}
std::string RangeOf(const SpanRecord& record) { return "[" + std::to_string(record.first) + ", " + std::to_string(record.first + record.count) + ")"; }

}  // namespace

bool FindCopy(SpanRecord* record) {
  const SpanRecord* shared = nullptr;
  for (const SpanRecord* one = t_spans; one != nullptr && shared == nullptr; one = one->next) {
    if (HoldsAllOf(*one, *record)) shared = one;
  }
  bool is_newer = false;
  for (const SpanRecord* one = t_spans; one != nullptr; one = one->next) {
    if (shared != nullptr && one->copy == shared->copy) {
      is_newer |= one->writes;
    } else if ((record->writes || one->writes) && Overlap(*one, *record)) {
      Raise(Error("a span of elements " + RangeOf(*record) + " would overlap one of " + RangeOf(*one) +
                  " that this thread has, and one of them is for writing. Each would be a copy, as spans across blocks are, and not see the other's changes: take the larger one first, of "
                  "which the other is a part then, or end one before the other begins"));
    }
  }
  if (shared == nullptr) return false;
  record->copy = shared->copy;
  record->copy_first = shared->copy_first;
  record->copy_count = shared->copy_count;
  return is_newer;
}

void BeginSpan(SpanRecord* record) noexcept {
  record->next = t_spans;
  t_spans = record;
}

void EndSpan(SpanRecord* record) noexcept {
  SpanRecord** at = &t_spans;
  while (*at != nullptr && *at != record) at = &(*at)->next;
  if (*at != nullptr) *at = record->next;
}

}  // namespace ramspan::detail
