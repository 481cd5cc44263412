// A layout written out as tables.
#pragma once

#include <vector>

#include "core/layout.hpp"
#include "core/units.hpp"

namespace ullage {

// The layout at one instant, as tables.
struct LayoutTable {
  std::vector<std::int32_t> segment_lifetime;
  std::vector<Address> segment_address;
  std::vector<Bytes> segment_size;
  std::vector<std::int64_t> blocks_begin, blocks_end;  // by segment
  std::vector<Address> address;
  std::vector<Bytes> size, requested_size;
  std::vector<BlockState> state;
  std::vector<std::int32_t> lifetime;
};

LayoutTable table_of(const Layout& layout);

}  // namespace ullage
