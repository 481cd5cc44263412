// Brings a section's height nearer to its bound.
#pragma once

#include <cstdint>

#include "core/placement/section.hpp"

namespace ullage {

// Tries the greedy orders until the section is no higher than `target`. Returns the steps taken.
std::int64_t place_greedily(Section& section, Bytes target);

// Searches on until the height is `target`, or no lower one exists, or the steps are spent. Returns the steps taken.
// A large section is improved by moving what lies highest to the front of the order; a small one is searched whole.
std::int64_t improve(Section& section, Bytes target, std::int64_t max_steps);

}  // namespace ullage
