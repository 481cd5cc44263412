#include "core/models/waste.hpp"

#include <algorithm>

namespace ullage {
namespace {

// The part of a free block that could go back to the driver although live blocks lie beside it.
Bytes returnable(const LayoutSegment& segment, const LayoutBlock& block, const AllocatorSettings& settings) {
  if (!segment.is_expandable) return 0;
  const Bytes granule = segment.pool_size == PoolSize::kSmall ? kSmallBuffer : settings.large_segment_size;
  const auto begin = static_cast<Bytes>(block.address - segment.address);
  const Bytes first = (begin + granule - 1) / granule;
  const Bytes last = (begin + block.size) / granule;
  return std::max<Bytes>(last - first, 0) * granule;
}

}  // namespace

Waste waste_of(const Layout& layout, std::int64_t stream, const AllocatorSettings& settings) {
  Waste out;
  for (const auto& [address, row] : layout.segments()) {
    const LayoutSegment& segment = layout.segment(row);
    const bool is_whole = layout.block(segment.first_block).next == kNone;
    for (std::int32_t walk = segment.first_block; walk != kNone; walk = layout.block(walk).next) {
      const LayoutBlock& block = layout.block(walk);
      if (block.state == BlockState::kActiveAllocated) {
        out.requested += block.requested;
        out.rounding += block.size - block.requested;
      } else if (block.state == BlockState::kActivePendingFree) {
        out.pending += block.size;
      } else if (segment.pool != kNone) {
        out.private_pool += block.size;
      } else if (segment.stream != stream) {
        out.other_stream += block.size;
      } else {
        const Bytes back = is_whole ? block.size : returnable(segment, block, settings);
        out.cached += back;
        (segment.pool_size == PoolSize::kSmall ? out.small_pool : out.stranded) += block.size - back;
      }
    }
  }
  return out;
}

}  // namespace ullage
