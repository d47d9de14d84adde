#include "common/link_frame.h"

#include <algorithm>

#include "common/bytes.h"

namespace ramspan {
namespace {

class Writer {
 public:
  explicit Writer(FrameBuffer* out) : out_(*out) {}
  template <class T>
  void Number(T value) {
    PutLittle(out_, at_, value);
    at_ += sizeof value;
  }
  void Bytes(std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), out_.begin() + static_cast<ptrdiff_t>(at_));
    at_ += bytes.size();
  }
  void Text(const std::string& text) {
    RS_CHECK(text.size() <= kFrameTextMax, "a text of %zu bytes in a frame", text.size());
    Number(static_cast<uint8_t>(text.size()));
    Bytes(std::as_bytes(std::span(text)));
  }
  size_t at() const { return at_; }

 private:
  FrameBuffer& out_;
  size_t at_ = 0;
};

// Reads past the end give zeros; ok() tells at the end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T Number() {
    const std::span<const std::byte> raw = Bytes(sizeof(T));
    return raw.size() == sizeof(T) ? GetLittle<T>(raw, 0) : T{0};
  }
  std::span<const std::byte> Bytes(size_t n) {
    if (n > bytes_.size() - at_) {
      short_ = true;
      return {};
    }
    at_ += n;
    return bytes_.subspan(at_ - n, n);
  }
  // Printable ASCII only: texts end up in messages on terminals.
  std::string Text() {
    const size_t length = Number<uint8_t>();
    const std::span<const std::byte> raw = Bytes(std::min(length, kFrameTextMax));
    strange_ = strange_ || length > kFrameTextMax || std::any_of(raw.begin(), raw.end(), [](std::byte c) { return c < std::byte{32} || c > std::byte{126}; });
    return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  bool Flag() {
    const auto value = Number<uint8_t>();
    strange_ = strange_ || value > 1;
    return value != 0;
  }
  bool ok() const { return !short_ && !strange_ && at_ == bytes_.size(); }

 private:
  const std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool short_ = false, strange_ = false;
};

void Write(const Introduction& introduction, Writer* out) {
  const FabricAddress& fabric = introduction.fabric;
  RS_CHECK(fabric.bytes.size() <= kFabricAddressBytesMax, "an address of %zu bytes in a frame", fabric.bytes.size());
  out->Number(introduction.instance);
  out->Number(introduction.capacity_bytes);
  out->Number(static_cast<uint8_t>(introduction.near));
  out->Number(fabric.protocol);
  out->Number(fabric.protocol_version);
  out->Number(fabric.format);
  out->Number(static_cast<uint16_t>(fabric.bytes.size()));
  out->Bytes(fabric.bytes);
  out->Text(introduction.local_name);
  out->Text(introduction.label);
  out->Text(introduction.job);
}

bool Read(Reader* in, Introduction* introduction) {
  introduction->instance = in->Number<uint64_t>();
  introduction->capacity_bytes = in->Number<uint64_t>();
  introduction->near = in->Flag();
  FabricAddress& fabric = introduction->fabric;
  fabric.protocol = in->Number<uint32_t>();
  fabric.protocol_version = in->Number<uint32_t>();
  fabric.format = in->Number<uint32_t>();
  const size_t length = in->Number<uint16_t>();
  if (length > kFabricAddressBytesMax || introduction->capacity_bytes > kPoolBytesMax) return false;
  const std::span<const std::byte> address = in->Bytes(length);
  fabric.bytes.assign(address.begin(), address.end());
  introduction->local_name = in->Text();
  introduction->label = in->Text();
  introduction->job = in->Text();
  return true;
}

void Write(const ServiceUsage& usage, Writer* out) {
  for (const uint64_t number : {usage.written_bytes, usage.read_bytes, usage.written_per_second, usage.read_per_second}) out->Number(number);
}

void Read(Reader* in, ServiceUsage* usage) {
  for (uint64_t* number : {&usage->written_bytes, &usage->read_bytes, &usage->written_per_second, &usage->read_per_second}) *number = in->Number<uint64_t>();
}

void Write(const ServiceReport& report, Writer* out) {
  out->Number(static_cast<uint8_t>(report.of));
  out->Number(report.held_bytes);
  out->Number(report.lent_bytes);
  out->Number(report.quota_bytes);
  out->Number(report.clients);
  out->Number(static_cast<uint8_t>(report.draining));
  Write(report.usage, out);
  out->Text(report.label);
  out->Text(report.job);
}

bool Read(Reader* in, ServiceReport* report) {
  report->of = static_cast<ServiceReport::Of>(in->Number<uint8_t>());
  report->held_bytes = in->Number<uint64_t>();
  report->lent_bytes = in->Number<uint64_t>();
  report->quota_bytes = in->Number<uint64_t>();
  report->clients = in->Number<uint32_t>();
  report->draining = in->Flag();
  Read(in, &report->usage);
  report->label = in->Text();
  report->job = in->Text();
  return report->of <= ServiceReport::Of::kQuota;
}

}  // namespace

std::string FrameText(std::string text) {
  for (char& c : text) c = c >= ' ' && c <= '~' ? c : '?';
  return text.substr(0, kFrameTextMax);
}

size_t EncodeFrame(const LinkFrame& frame, FrameBuffer* out) {
  Writer writer(out);
  writer.Number(static_cast<uint8_t>(frame.kind));
  switch (frame.kind) {
    case LinkFrame::Kind::kIntroduction: Write(frame.introduction, &writer); break;
    case LinkFrame::Kind::kRecord: writer.Bytes(frame.record); break;
    case LinkFrame::Kind::kGrant:
      writer.Bytes(frame.record);
      writer.Number(frame.access.key);
      writer.Number(frame.access.address);
      writer.Number(static_cast<uint8_t>(frame.access.has_descriptor));
      break;
    case LinkFrame::Kind::kOrder:
      writer.Number(static_cast<uint8_t>(frame.order.order));
      writer.Number(frame.order.bytes);
      writer.Text(frame.order.job);
      break;
    case LinkFrame::Kind::kReport: Write(frame.report, &writer); break;
    case LinkFrame::Kind::kDraining: writer.Number(static_cast<uint8_t>(frame.draining)); break;
    case LinkFrame::Kind::kGiveBack: writer.Number(frame.bytes); break;
    case LinkFrame::Kind::kUsage: Write(frame.usage, &writer); break;
    case LinkFrame::Kind::kPing:
    case LinkFrame::Kind::kPong: break;
  }
  return writer.at();
}

Status DecodeFrame(std::span<const std::byte> bytes, LinkFrame* frame) {
  Reader reader(bytes);
  const auto kind = reader.Number<uint8_t>();
  frame->kind = static_cast<LinkFrame::Kind>(kind);
  frame->access = {};
  bool good = true;
  switch (frame->kind) {
    case LinkFrame::Kind::kIntroduction: good = Read(&reader, &frame->introduction); break;
    case LinkFrame::Kind::kRecord:
    case LinkFrame::Kind::kGrant: {
      const std::span<const std::byte> record = reader.Bytes(kWireBytes);
      std::copy(record.begin(), record.end(), frame->record.begin());
      if (frame->kind == LinkFrame::Kind::kRecord) break;
      frame->access.key = reader.Number<uint64_t>();
      frame->access.address = reader.Number<uint64_t>();
      frame->access.has_descriptor = reader.Flag();
      break;
    }
    case LinkFrame::Kind::kOrder: {
      const auto order = reader.Number<uint8_t>();
      good = order >= 1 && order <= kServiceOrderMax;
      frame->order.order = static_cast<ServiceOrder>(order);
      frame->order.bytes = reader.Number<uint64_t>();
      frame->order.job = reader.Text();
      break;
    }
    case LinkFrame::Kind::kReport: good = Read(&reader, &frame->report); break;
    case LinkFrame::Kind::kDraining: frame->draining = reader.Flag(); break;
    case LinkFrame::Kind::kGiveBack: frame->bytes = reader.Number<uint64_t>(); break;
    case LinkFrame::Kind::kUsage: Read(&reader, &frame->usage); break;
    case LinkFrame::Kind::kPing:
    case LinkFrame::Kind::kPong: break;
    default: good = false;
  }
  if (!good || !reader.ok()) {
    return WithWords(StatusCode::kInvalidArgument,
                     [&] { return "a frame of kind " + std::to_string(kind) + " and " + std::to_string(bytes.size()) + " bytes that cannot be"; },
                     StaticText("a frame that cannot be"));
  }
  return {};
}

}  // namespace ramspan
