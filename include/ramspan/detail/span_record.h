// SpanRecord: a vectorSpan whose elements are a copy, among those of its thread, so that one that lies in another one is as in an array: it shares that one's
// copy. Private to Ramspan although installed (resident.h). Thread-safety: any thread may end a record; else its thread's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ramspan/detail/resident.h"

namespace ramspan::detail {

struct SpanRecord {
  const void* blocks = nullptr;  // the table of the vector's or array's blocks
  size_t first = 0, count = 0;   // elements
  bool writes = false;
  std::shared_ptr<void> copy;    // of elements [copy_first, copy_first + copy_count); null: the span lies in one block, and in no other span
  size_t copy_first = 0, copy_count = 0;
  // The rest is FindCopy's.
  const void* thread = nullptr;
  const void* loop = nullptr;
  SpanRecord *next = nullptr, *before = nullptr;
};

// How many records there are. Relaxed: a thread sees its own.
extern RAMSPAN_API std::atomic<uint32_t> g_span_records;

// Takes the copy of another span of the thread, if one has all elements of `record`. Which of them are to be read from the blocks: those of which no span for writing has something
// newer. Throws Error where it overlaps one with another copy, and both are for writing.
enum class ReadFromBlocks { kAll, kNone, kSome };
RAMSPAN_API ReadFromBlocks FindCopy(SpanRecord* record);
// For kSome: where a span of the thread for writing has the element; null: none has.
RAMSPAN_API const void* NewerElement(const SpanRecord& record, size_t element, size_t element_bytes);
RAMSPAN_API void BeginSpan(SpanRecord* record);
RAMSPAN_API void EndSpan(SpanRecord* record) noexcept;

}  // namespace ramspan::detail
