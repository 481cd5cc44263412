// What a drawing must be, checked in the plainest way. The drawing that defines the words is in core/drawing.hpp.
#pragma once

#include <algorithm>
#include <string>

#include "core/drawing.hpp"

namespace ullage::test {

// Names the first thing that is wrong with a drawing; empty if nothing is. Every block is compared with every other.
inline std::string broken_drawing(const BlockLifetimes& blocks, EventIndex num_events, const Drawing& drawing) {
  if (drawing.offset.size() != blocks.size_rows()) return "not every block has an offset";
  const auto end = [&](std::size_t row) {
    const EventIndex death = blocks.death[row];
    return death < 0 || death > num_events ? num_events : death;
  };
  const auto is_drawn = [&](std::size_t row) { return blocks.size[row] > 0 && blocks.birth[row] < end(row); };
  Bytes sum = 0, highest = 0;
  for (std::size_t row = 0; row < blocks.size_rows(); ++row) {
    const Bytes offset = drawing.offset[row];
    if (offset < 0 || offset > kSizeLimit) return "a block has no place";
    if (!is_drawn(row)) continue;
    sum += blocks.size[row];
    if (sum > kSizeLimit) return "";  // more than any memory: not all of it is drawn
    highest = std::max(highest, offset + blocks.size[row]);
  }
  if (drawing.height != highest) return "the height is not the highest upper edge";
  for (std::size_t a = 0; a < blocks.size_rows(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const bool share_bytes = drawing.offset[a] < drawing.offset[b] + blocks.size[b] &&
                               drawing.offset[b] < drawing.offset[a] + blocks.size[a];
      const bool share_time = blocks.birth[a] < end(b) && blocks.birth[b] < end(a);
      if (share_bytes && share_time && is_drawn(a) && is_drawn(b)) {
        return "blocks " + std::to_string(b) + " and " + std::to_string(a) + " overlap";
      }
    }
  }
  return "";
}

}  // namespace ullage::test
