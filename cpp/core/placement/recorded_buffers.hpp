// The buffers of a recording.
#pragma once

#include <vector>

#include "core/models/request_stream.hpp"
#include "core/placement/placement.hpp"

namespace ullage {

inline constexpr Bytes kRecordedAlignment = 512;  // PyTorch hands out blocks in steps of it

// One a request, from its place in the stream of operations to the completion of its free; to the end where there is
// none. Requests of blocks from before the recording begin at 0. Sizes are rounded up to 512 bytes.
std::vector<Buffer> recorded_buffers(const RequestStream& stream);

}  // namespace ullage
