#include "core/placement/recorded_buffers.hpp"

namespace ullage {

std::vector<Buffer> recorded_buffers(const RequestStream& stream) {
  std::vector<Buffer> buffers(stream.num_requests());
  const auto num_ops = static_cast<std::int64_t>(stream.ops.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Bytes size = stream.size[i];
    buffers[i].size = (size + kRecordedAlignment - 1) / kRecordedAlignment * kRecordedAlignment;
  }
  for (std::int64_t now = 0; now < num_ops; ++now) {
    const Op& op = stream.ops[static_cast<std::size_t>(now)];
    if (op.request == kNone) continue;
    Buffer& buffer = buffers[static_cast<std::size_t>(op.request)];
    if (op.kind == OpKind::kRequest) {
      buffer.begin = op.request < stream.num_initial ? 0 : now;
      buffer.end = num_ops;
    } else if (op.kind == OpKind::kFailedRequest) {
      buffer.begin = buffer.end = now;  // never served: it needs no place
    } else if (op.kind == OpKind::kFreeCompleted) {
      buffer.end = now;
    }
  }
  return buffers;
}

}  // namespace ullage
