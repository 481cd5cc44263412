#include "core/verification.hpp"

#include "core/error.hpp"

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

bool sum_of_file(const Tables& tables, std::int32_t device, CounterValues& out) {
  if (!tables.has_segments) return false;
  const SegmentTable& segments = tables.segments;
  const BlockTable& blocks = tables.blocks;
  for (std::size_t row = 0; row < segments.size_rows(); ++row) {
    if (segments.device[row] != device) continue;
    out[static_cast<std::size_t>(Counter::kReserved)] += segments.total_size[row];
    for (std::int64_t i = segments.blocks_begin[row]; i < segments.blocks_end[row]; ++i) {
      const auto block = static_cast<std::size_t>(i);
      if (blocks.state[block] == BlockState::kInactive) continue;
      out[static_cast<std::size_t>(Counter::kActive)] += blocks.size[block];
      out[static_cast<std::size_t>(Counter::kRequested)] += blocks.requested_size[block];
      if (blocks.state[block] == BlockState::kActiveAllocated) {
        out[static_cast<std::size_t>(Counter::kAllocated)] += blocks.size[block];
      }
    }
    for (const Bytes sum : out) {
      if (sum > (Bytes{1} << 61)) throw TraceError(0, "final segments of less than 2**61 bytes together", "more");
    }
  }
  return true;
}

}  // namespace ullage
