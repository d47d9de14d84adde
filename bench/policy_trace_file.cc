#include "bench/policy_trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/policy/trace_format.h"

namespace ramspan::bench {
namespace {

constexpr uint64_t kObjectBytesMax = uint64_t{1} << 46;  // as large as a limit may be
constexpr size_t kObjectsMax = UINT32_MAX, kThreadsMax = UINT16_MAX;

// Chunks by their ids at the time, threads by the order of their coming.
class Parser {
 public:
  explicit Parser(const std::string& name) { trace_.name = name; }

  // What is wrong with the record here; null: nothing.
  const char* Take(const TraceRecord& record) {
    const auto found = live_.find(record.value);
    const bool lives = found != live_.end();
    switch (record.kind) {
      case TraceKind::kCreate:
        if (lives) return "an object is made that is there already";
        if (record.bytes == 0 || record.bytes > kObjectBytesMax) return "an object has an impossible size";
        if (trace_.bytes.size() == kObjectsMax) return "there are too many objects";
        live_[record.value] = {trace_.Create(record.bytes), kNone};
        return nullptr;
      case TraceKind::kThread:
        if (threads_.size() == kThreadsMax && !threads_.contains(record.value)) return "there are too many threads";
        thread_ = record.value;
        return nullptr;
      case TraceKind::kFree:
        if (!lives) return "an object ends that is not there";
        trace_.Free(found->second.object);
        live_.erase(found);
        return nullptr;
      case TraceKind::kRead:
      case TraceKind::kWrite:
        if (!lives) return "an object is touched that is not there";
        found->second.last_touch = trace_.events.size();
        trace_.Touch(found->second.object, record.kind == TraceKind::kWrite, threads_.emplace(thread_, static_cast<uint16_t>(threads_.size())).first->second);
        return nullptr;
      case TraceKind::kDirty:
        if (!lives) return "an object is written that is not there";
        if (found->second.last_touch != kNone) trace_.events[found->second.last_touch].write = true;
        return nullptr;
    }
    return "a record is of no known kind";
  }

  void CutShort(size_t bytes) { trace_.bytes_cut = bytes; }

  PolicyTrace Result() {
    trace_.threads = std::max<uint32_t>(1, static_cast<uint32_t>(threads_.size()));
    return std::move(trace_);
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Live {
    uint32_t object;
    size_t last_touch;  // among the events
  };
  PolicyTrace trace_;
  std::unordered_map<uint32_t, Live> live_;
  std::unordered_map<uint32_t, uint16_t> threads_;
  uint32_t thread_ = 0;
};

}  // namespace

PolicyTrace ParseTrace(std::span<const std::byte> file, const std::string& name) {
  if (!trace_format::HasMagic(file)) throw std::runtime_error(name + " is no trace: RAMSPAN_TRACE=FILE writes one");
  if (const uint32_t version = trace_format::VersionOf(file); version != trace_format::kVersion) {
    throw std::runtime_error(name + " is a trace of version " + std::to_string(version) + "; this program reads version " + std::to_string(trace_format::kVersion));
  }
  Parser parser(name);
  trace_format::Ids ids;
  for (size_t at = trace_format::kHeaderBytes; at < file.size();) {
    TraceRecord record;
    size_t bytes = 0;
    const trace_format::Taken taken = trace_format::TakeRecord(file.subspan(at), &ids, &record, &bytes);
    if (taken == trace_format::Taken::kCutShort) {
      parser.CutShort(file.size() - at);
      break;
    }
    const char* const wrong = taken == trace_format::Taken::kGarbled ? "this is no record" : parser.Take(record);
    if (wrong != nullptr) throw std::runtime_error(name + " is garbled at byte " + std::to_string(at) + ": " + wrong);
    at += bytes;
  }
  PolicyTrace trace = parser.Result();
  if (trace.touches() == 0) throw std::runtime_error(name + " holds no access");
  return trace;
}

PolicyTrace ReadTraceFile(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw std::runtime_error(path + " is a folder: give the traces that are in it (" + path + "/*)");
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : -1;
  std::vector<std::byte> bytes(size > 0 ? static_cast<size_t>(size) : 0);
  if (size < 0 || !in.seekg(0) || (size > 0 && !in.read(reinterpret_cast<char*>(bytes.data()), size))) {
    throw std::runtime_error("cannot read " + path + ": " + std::strerror(errno != 0 ? errno : EIO));
  }
  return ParseTrace(bytes, path);
}

}  // namespace ramspan::bench
