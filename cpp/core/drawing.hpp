// Where each block is drawn when live bytes are shown over time as a stack of rectangles.
//
//   bytes                                    A block keeps its offset for life, so that it is one rectangle and not a
//     |         +---+      +---+             polygon with a corner for every free below it. The price is gaps, as in
//     any |      +--+ D |   +--+ F |             memory: the stack stands higher than the sum of live bytes (1.00
//     to 1.12 |      | C|   |   | E|   |             times at its highest, over the recordings in tests/data). |
//     +---+--+---+---+--+---+-- |  |  B                               What lives long lies low: the longest-lived
//     blocks are placed first, each in
//     +--+-------------------------> events  the lowest gap that is free for its whole life, so that what leaks or
//     stays
//        |  A                                is a staircase, and what comes and goes is on top of it.
#pragma once

#include <vector>

#include "core/history.hpp"

namespace ullage {

struct Drawing {
  std::vector<Bytes> offset;  // by row of BlockLifetimes: the lower edge
  Bytes height = 0;           // of the whole stack
};

// Linear in the events, and a search in an ordered list for each block.
Drawing draw_blocks(const BlockLifetimes& blocks, EventIndex num_events);

}  // namespace ullage
