// SpanRecord: a vectorSpan whose elements are a copy, among those of its thread, so that such spans are what they would be in one array: those that lie in
// another one share its copy. Private to Ramspan although installed (resident.h). Thread-safety: a record belongs to its span's thread.
#pragma once

#include <cstddef>
#include <memory>

#include "ramspan/detail/object.h"
#include "ramspan/detail/resident.h"

namespace ramspan::detail {

struct SpanRecord {
  Object vector;  // its first block
  size_t first = 0, count = 0;  // elements
  bool writes = false;
  std::shared_ptr<void> copy;   // of elements [copy_first, copy_first + copy_count); null: the span lies in one block, and in no other span
  size_t copy_first = 0, copy_count = 0;
  SpanRecord* next = nullptr;
};

// The thread's records that have a copy.
extern RAMSPAN_API __thread SpanRecord* t_spans __attribute__((tls_model("initial-exec")));

// Takes the copy of another span of the thread, if one has all elements of `record`. Whether that is newer than the blocks: a span for writing shares it. Throws Error
// where a span with another copy has some of these elements, and one of both is for writing.
RAMSPAN_API bool FindCopy(SpanRecord* record);
RAMSPAN_API void BeginSpan(SpanRecord* record) noexcept;
RAMSPAN_API void EndSpan(SpanRecord* record) noexcept;

}  // namespace ramspan::detail
