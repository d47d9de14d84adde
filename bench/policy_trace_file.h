// Reads what RAMSPAN_TRACE has written (client/policy/trace_format.h). The file is believed nothing: a program may have died while it
// wrote, or it may be another file altogether.
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "bench/policy_trace.h"

namespace ramspan::bench {

// Throws std::runtime_error, with the place in the file, where it is no trace, one of another version, or garbled. One that ends within a record is
// taken without that record. Takes up to eight times the memory of the file.
PolicyTrace ReadTraceFile(const std::string& path);
// `name`: for messages, and the trace's.
PolicyTrace ParseTrace(std::span<const std::byte> file, const std::string& name);

}  // namespace ramspan::bench
