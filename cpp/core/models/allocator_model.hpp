// The interface of every allocator model, and what running a request stream through one yields.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/layout_table.hpp"
#include "core/models/request_stream.hpp"
#include "core/models/waste.hpp"

namespace ullage {

struct ModelRequest {
  std::int32_t id = kNone;  // the caller's name for the block, until its free completes; small, for it may be an index
  Bytes size = 0;
  std::int64_t stream = 0;
  std::int32_t pool = kNone;
};

struct ModelCounters {
  Bytes allocated = 0, active = 0, reserved = 0;
  std::int64_t num_device_alloc = 0, num_device_free = 0, num_retries = 0;
};

class AllocatorModel {
 public:
  virtual ~AllocatorModel() = default;

  // False if the request cannot be served; the state is then what the attempt left behind (caches may be gone).
  virtual bool request(const ModelRequest& request) = 0;
  // The program gave the block up. It can be handed out again once its free completes.
  virtual void free_requested(std::int32_t id) = 0;
  virtual void free_completed(std::int32_t id) = 0;
  virtual void empty_cache() = 0;
  virtual const ModelCounters& counters() const = 0;
  virtual LayoutTable layout() const = 0;
  // Where reserved memory goes, as somebody sees it who asks on `stream`.
  virtual Waste waste(std::int64_t stream) const = 0;
};

struct FirstOom {
  EventIndex event = kNone;
  Bytes size = 0;
  SiteId site = kNone;
  Bytes reserved = 0, allocated = 0;
};

struct Outcome {
  Bytes peak_reserved = 0, peak_allocated = 0, peak_active = 0;
  EventIndex peak_reserved_event = kNone;
  std::size_t peak_reserved_op = 0;  // index into the stream's operations
  Bytes end_reserved = 0, end_allocated = 0;
  std::int64_t num_device_alloc = 0, num_device_free = 0, num_retries = 0, num_ooms = 0;
  FirstOom first_oom;
  std::vector<Bytes> reserved_after;  // after each op, if asked for
};

struct RunOptions {
  bool stop_at_oom = true;     // a program seldom lives on after its first failed request
  bool keep_reserved = false;  // fill Outcome::reserved_after
  std::size_t last_op = std::numeric_limits<std::size_t>::max();  // stop behind this one
};

Outcome run(AllocatorModel& model, const RequestStream& stream, const RunOptions& options);

}  // namespace ullage
