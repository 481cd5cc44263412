// Where each block is drawn when live bytes are shown over time as a stack of rectangles.
//
//   bytes
//     6                               +-------+      A block keeps its offset for life, so that it is one rectangle
//     5       +-------------------+   |       |      and not a polygon with a corner for every free below it. The
//             |         C         |   |   F   |      price is gaps, as in memory: the stack stands higher than the
//     4       |                   +---+---+---+      sum of live bytes (1.00 to 1.34 times at its highest, over the
//             |                   |   D   |          recordings in tests/data).
//     3       +-------+-----------+-------+---+
//             |   E   |           B           |      What lives long lies low: the longest-lived blocks are placed
//     2   +---+-------+-----------------------+      first (A, then B), each as low as it is free for its whole life;
//         |                 A                 |      what comes and goes is on top of them, or below what comes later
//     0   +-----------------------------------+      (E).
//             0   1   2   3   4   5   6   7   8 -> events
#pragma once

#include <vector>

#include "core/history.hpp"

namespace ullage {

struct Drawing {
  // By row of BlockLifetimes: the lower edge; 0 for what is not drawn: a block without bytes or without a moment, or,
  // in a damaged file, one that would be higher than any memory.
  std::vector<Bytes> offset;
  Bytes height = 0;  // of the whole stack
};

// Linear in the events, and a search in an ordered list for each block.
Drawing draw_blocks(const BlockLifetimes& blocks, EventIndex num_events);

}  // namespace ullage
