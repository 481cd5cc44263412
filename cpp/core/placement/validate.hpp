// Checks a plan in the plainest way, apart from how plans are made.
#pragma once

#include <string>
#include <vector>

#include "core/placement/placement.hpp"

namespace ullage {

// Says what is wrong with a plan, "" if nothing is: no overlap in space while both live, alignment kept, height and
// largest live sum right. Cost: O(n x live at once).
std::string validate(const std::vector<Buffer>& buffers, const Plan& plan, Bytes alignment);

}  // namespace ullage
