#include <utility>

#include "core/models/allocator_model.hpp"

namespace ullage {
namespace {

void note(Outcome& out, const ModelCounters& now, EventIndex event, std::size_t op) {
  if (now.reserved > out.peak_reserved) {
    out.peak_reserved = now.reserved;
    out.peak_reserved_event = event;
    out.peak_reserved_op = op;
  }
  if (now.allocated > out.peak_allocated) out.peak_allocated = now.allocated;
  if (now.active > out.peak_active) out.peak_active = now.active;
}

Outcome finished(Outcome& out, const ModelCounters& now) {
  out.end_reserved = now.reserved;
  out.end_allocated = now.allocated;
  out.num_device_alloc = now.num_device_alloc;
  out.num_device_free = now.num_device_free;
  out.num_retries = now.num_retries;
  return std::move(out);
}

}  // namespace

Outcome run(AllocatorModel& model, const RequestStream& stream, const RunOptions& options) {
  Outcome out;
  if (options.keep_reserved) out.reserved_after.reserve(stream.ops.size());
  std::vector<std::uint8_t> is_live(static_cast<std::size_t>(stream.num_names), 0);
  const ModelCounters& now = model.counters();
  for (std::size_t i = 0; i < stream.ops.size() && i <= options.last_op; ++i) {
    const Op& op = stream.ops[i];
    const auto row = static_cast<std::size_t>(op.request);
    const auto name = static_cast<std::size_t>(op.name);
    switch (op.kind) {
      case OpKind::kRequest:
      case OpKind::kFailedRequest: {
        const bool served = model.request({op.name, stream.size[row], stream.stream[row], stream.pool[row]});
        note(out, now, op.event, i);
        if (!served) {
          if (out.num_ooms++ == 0) {
            out.first_oom = {op.event, stream.size[row], stream.site[row], now.reserved, now.allocated};
          }
          if (options.stop_at_oom && op.kind == OpKind::kRequest) return finished(out, now);
        } else if (op.kind == OpKind::kFailedRequest) {
          model.free_requested(op.name);
          model.free_completed(op.name);
        } else {
          is_live[name] = 1;
        }
        break;
      }
      case OpKind::kFreeRequested:
        if (is_live[name]) model.free_requested(op.name);
        break;
      case OpKind::kFreeCompleted:
        if (is_live[name]) model.free_completed(op.name);
        is_live[name] = 0;
        break;
      case OpKind::kEmptyCache: model.empty_cache(); break;
    }
    if (options.keep_reserved) out.reserved_after.push_back(now.reserved);
  }
  return finished(out, now);
}

}  // namespace ullage
