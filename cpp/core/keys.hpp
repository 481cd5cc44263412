// The words of the snapshot format. They are interned first, so that a key's StringId is its place in this list.
#pragma once

#include <array>
#include <string_view>

#include "core/units.hpp"

namespace ullage {

// clang-format off
enum class Key : StringId {
  kAction, kAddr, kSize, kStream, kTimeUs, kFrames, kCompileContext, kUserMetadata, kPoolId, kCategory, kDeviceFree,
  kTotalSize, kAllocatedSize, kActiveSize, kRequestedSize, kSegmentType, kSegmentPoolId, kIsExpandable, kBlocks,
  kDevice, kAddress, kState, kHistory, kRealSize,
  kFilename, kLine, kName,
  kStage,
  kSegments, kDeviceTraces, kAllocatorSettings, kExternalAnnotations, kHostSegments, kHostTraces, kTorchVersion,
  kCount,
};
// clang-format on

// clang-format off
inline constexpr std::array<std::string_view, static_cast<std::size_t>(Key::kCount)> kKeyTexts = {
    "action", "addr", "size", "stream", "time_us", "frames", "compile_context", "user_metadata", "pool_id",
    "category", "device_free",
    "total_size", "allocated_size", "active_size", "requested_size", "segment_type", "segment_pool_id",
    "is_expandable", "blocks",
    "device", "address", "state", "history", "real_size",
    "filename", "line", "name",
    "stage",
    "segments", "device_traces", "allocator_settings", "external_annotations", "host_segments", "host_traces",
    "torch_version",
};
// clang-format on

constexpr std::uint64_t bit(Key key) { return std::uint64_t{1} << static_cast<int>(key); }

}  // namespace ullage
