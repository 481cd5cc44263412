#include "core/layout_table.hpp"

namespace ullage {

LayoutTable table_of(const Layout& layout) {
  LayoutTable table;
  for (const auto& [address, segment] : layout.segments()) {
    const LayoutSegment& row = layout.segment(segment);
    table.segment_lifetime.push_back(row.lifetime);
    table.segment_address.push_back(address);
    table.segment_size.push_back(row.size);
    table.blocks_begin.push_back(static_cast<std::int64_t>(table.address.size()));
    for (std::int32_t walk = row.first_block; walk != kNone; walk = layout.block(walk).next) {
      const LayoutBlock& block = layout.block(walk);
      table.address.push_back(block.address);
      table.size.push_back(block.size);
      table.requested_size.push_back(block.requested);
      table.state.push_back(block.state);
      table.lifetime.push_back(block.lifetime);
    }
    table.blocks_end.push_back(static_cast<std::int64_t>(table.address.size()));
  }
  return table;
}

}  // namespace ullage
