// What a recorded program asked of its allocator, apart from what that allocator did: the input of every model.
#pragma once

#include <cstdint>
#include <vector>

#include "core/history.hpp"
#include "core/tables.hpp"

namespace ullage {

enum class OpKind : std::uint8_t {
  kRequest,
  kFreeRequested,
  kFreeCompleted,
  kEmptyCache,     // the program gave cached memory back
  kFailedRequest,  // the recorded allocator could not serve it; whoever can gets it back at once
};

struct Op {
  OpKind kind = OpKind::kRequest;
  std::int32_t request = kNone;  // row of RequestStream::size and the other columns
  EventIndex event = kNone;      // where it stands in the recording; kNone: before its first event
  // What a model knows the request by. Names are given again, so what a model keeps by name takes as much room as there
  // are blocks at a time.
  std::int32_t name = kNone;
};

struct RequestStream {
  std::vector<Op> ops;
  // One row a request.
  std::vector<Bytes> size;
  std::vector<std::int64_t> stream;
  std::vector<std::int32_t> pool;  // kNone: the default pool
  std::vector<SiteId> site;
  std::int32_t num_names = 0;
  std::int64_t num_initial = 0;  // requests that stand for blocks from before the recording

  std::size_t num_requests() const { return size.size(); }
};

// Gives each operation its name, from the order that they come in.
void name_requests(RequestStream& stream);

RequestStream request_stream(const Tables& tables, const DeviceTrace& trace, const History& history);

// The same requests, with each free that waited for a stream completing after `factor` times as many operations as
// recorded; 0 is at once. How long a block waits depends on the GPU, so a run under other settings waits otherwise.
RequestStream with_waits_scaled(const RequestStream& stream, double factor);
// How many frees waited for a stream.
std::int64_t num_waiting_frees(const RequestStream& stream);

}  // namespace ullage
