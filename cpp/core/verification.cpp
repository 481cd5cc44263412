#include "core/verification.hpp"

namespace ullage {

void compare_with_file(const Tables& tables, std::int32_t device, const Layout& layout, Verification& out) {
  const SegmentTable& segments = tables.segments;
  for (std::size_t row = 0; row < segments.size_rows(); ++row) {
    if (segments.device[row] != device) continue;
    ++out.segments;
    const auto found = layout.segments().find(segments.address[row]);
    bool same = found != layout.segments().end();
    Bytes allocated = 0, active = 0, requested = 0;
    if (same) {
      const LayoutSegment& rebuilt = layout.segment(found->second);
      for (std::int32_t walk = rebuilt.first_block; walk != kNone; walk = layout.block(walk).next) {
        const LayoutBlock& block = layout.block(walk);
        if (block.state == BlockState::kActiveAllocated) allocated += block.size;
        if (block.state != BlockState::kInactive) active += block.size, requested += block.requested;
      }
      const auto agrees = [](Bytes recorded, Bytes sum) { return recorded == kNone || recorded == sum; };
      same = rebuilt.size == segments.total_size[row] && rebuilt.stream == segments.stream[row] &&
             agrees(segments.allocated_size[row], allocated) && agrees(segments.active_size[row], active) &&
             agrees(segments.requested_size[row], requested);
    }
    out.segment_matches += same;
    for (std::int64_t i = segments.blocks_begin[row]; i < segments.blocks_end[row]; ++i) {
      const auto block_row = static_cast<std::size_t>(i);
      ++out.final_blocks;
      const std::int32_t block = layout.block_at(tables.blocks.address[block_row]);
      if (block == kNone) continue;
      const LayoutBlock& rebuilt = layout.block(block);
      const bool is_free = rebuilt.state == BlockState::kInactive;
      out.final_block_matches += rebuilt.size == tables.blocks.size[block_row] &&
                                 rebuilt.state == tables.blocks.state[block_row] &&
                                 (is_free || rebuilt.requested == tables.blocks.requested_size[block_row]);
    }
  }
}

}  // namespace ullage
