// Where each buffer of a program would lie in one arena, its whole history known: packing in time and space.
//
//   offset
//     ^   +-------------+           A buffer is a rectangle: [begin, end) in time, size in space. No two may overlap.
//     |   |      B      |   +---+   The height is the highest top; the largest live sum, the most bytes that are live
//     |   +------+------+   | D |   at once, is its bound from below.
//     |   |   A  |  | C |   +---+
//     +---+------+--+---+---+---+--> time
//
// The method: docs/placement.md.
#pragma once

#include <cstdint>
#include <vector>

#include "core/units.hpp"

namespace ullage {

struct Buffer {
  Bytes size = 0;
  std::int64_t begin = 0, end = 0;  // half-open; an empty buffer (no bytes, or no time) lies at 0
};

struct PlaceOptions {
  Bytes alignment = 1;  // offsets are multiples of it, sizes are rounded up to it
  Bytes enough = 0;     // a height that needs no improving, such as a capacity
  // How long to search on, in steps that a core makes about 4 x 10^8 of in a second: a count, and no clock, so that a
  // plan is the same wherever it is made.
  std::int64_t max_steps = 1'000'000'000;
};

struct Plan {
  std::vector<Bytes> offset;  // one a buffer
  Bytes height = 0;           // of the highest top, with sizes rounded up
  Bytes largest_live = 0;     // likewise
};

// Throws std::invalid_argument for a negative size, an alignment below 1, or sizes whose sum passes 2^60.
Plan place(const std::vector<Buffer>& buffers, const PlaceOptions& options);

}  // namespace ullage
