// Where reserved memory goes in a layout, beyond what was asked for: the same causes as the waterfall of `explain`.
#pragma once

#include "core/allocator_rules.hpp"
#include "core/layout.hpp"

namespace ullage {

struct Waste {
  Bytes requested = 0;     // asked for by live blocks; the rest is waste
  Bytes rounding = 0;      // rounding, and tails too small to split off
  Bytes pending = 0;       // freed, waiting for a stream
  Bytes stranded = 0;      // free beside live blocks, large pool
  Bytes small_pool = 0;    // free beside live blocks, small pool
  Bytes other_stream = 0;  // free, but on another stream than the one asked about
  Bytes private_pool = 0;  // free inside private pools
  Bytes cached = 0;        // free whole segments, and whole granules of expandable ones
};

Waste waste_of(const Layout& layout, std::int64_t stream, const AllocatorSettings& settings);

}  // namespace ullage
