#include "ramspan/detail/span_record.h"

#include <mutex>
#include <string>

#include "common/raise.h"
#include "ramspan/errors.h"

namespace ramspan::detail {

constinit std::atomic<uint32_t> g_span_records{0};

namespace {

// Of all threads: a span may end on another one than its own. Taken for spans that copy, and beside those, for a walk along some tens of records.
constinit std::mutex mutex;
constinit SpanRecord* records = nullptr;

bool AreTogether(const SpanRecord& a, const SpanRecord& b) { return a.blocks == b.blocks && a.thread == b.thread && a.loop == b.loop; }
bool Overlap(const SpanRecord& a, const SpanRecord& b) { return a.first < b.first + b.count && b.first < a.first + a.count; }
bool LiesIn(const SpanRecord& inner, size_t first, size_t count) { return inner.first >= first && inner.first + inner.count <= first + count; }
std::string RangeOf(const SpanRecord& record) { return "[" + std::to_string(record.first) + ", " + std::to_string(record.first + record.count) + ")"; }

template <typename F>
void ForEachBeside(const SpanRecord& record, const F& f) {
  for (const SpanRecord* one = records; one != nullptr; one = one->next) {
    if (AreTogether(*one, record)) f(*one);
  }
}

}  // namespace

ReadFromBlocks FindCopy(SpanRecord* record) {
  // The caller's spans are not those of its calls in a loop: each of these is as on any other thread.
  record->thread = t_pins;
  record->loop = t_loop_failed;
  std::lock_guard lock(mutex);
  const SpanRecord* shared = nullptr;
  int good = 0;  // rather one that has something newer, or lies around it itself: the copy may be of one that has ended
  ForEachBeside(*record, [&](const SpanRecord& one) {
    if (!LiesIn(*record, one.copy_first, one.copy_count)) return;
    const int as_good = one.writes && Overlap(one, *record) ? 3 : LiesIn(*record, one.first, one.count) ? 2 : 1;
    if (as_good <= good) return;
    good = as_good;
    shared = &one;
  });
  ReadFromBlocks from = ReadFromBlocks::kAll;
  ForEachBeside(*record, [&](const SpanRecord& one) {
    if (!one.writes || !Overlap(one, *record)) return;
    const bool is_shared = shared != nullptr && one.copy == shared->copy;
    if (record->writes && !is_shared) {
      Raise(Error("a span for writing of elements " + RangeOf(*record) + " would overlap one of " + RangeOf(one) +
                  " that this thread has. Each would be a copy, as spans across blocks are, and the changes of one be lost: take the larger one first, of which the other is a part then, or end one before the "
                  "other begins"));
    }
    if (from != ReadFromBlocks::kNone) from = is_shared && LiesIn(*record, one.first, one.count) ? ReadFromBlocks::kNone : ReadFromBlocks::kSome;
  });
  if (shared != nullptr) {
    record->copy = shared->copy;
    record->copy_first = shared->copy_first;
    record->copy_count = shared->copy_count;
  }
  return from;
}

const void* NewerElement(const SpanRecord& record, size_t element, size_t element_bytes) {
  std::lock_guard lock(mutex);
  const void* newer = nullptr;
  ForEachBeside(record, [&](const SpanRecord& one) {
    if (one.writes && element - one.first < one.count) newer = static_cast<const char*>(one.copy.get()) + (element - one.copy_first) * element_bytes;
  });
  return newer;
}

void BeginSpan(SpanRecord* record) {
  std::lock_guard lock(mutex);
  record->next = records;
  if (records != nullptr) records->before = record;
  records = record;
  g_span_records.fetch_add(1, std::memory_order_relaxed);
}

void EndSpan(SpanRecord* record) noexcept {
  std::lock_guard lock(mutex);
  (record->before != nullptr ? record->before->next : records) = record->next;
  if (record->next != nullptr) record->next->before = record->before;
  g_span_records.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace ramspan::detail
