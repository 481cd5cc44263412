// Parts of a placement that can be solved apart from each other.
#pragma once

#include <vector>

#include "core/placement/placement.hpp"

namespace ullage {

// A set of buffers above `base`. Times are counted in moments: between two of them something ended, then something
// began, so that buffers overlap exactly if they share a moment.
struct Section {
  std::vector<Buffer> buffers;
  std::vector<std::size_t> row;  // of each buffer, in the caller's list
  std::vector<Bytes> live;       // by moment, its live sum
  Bytes base = 0;
  Bytes bound = 0;  // the largest live sum
  // The best so far.
  std::vector<Bytes> offset;
  Bytes height = 0;
};

// Parts the buffers where nothing is live. A buffer that lives throughout its section lies at its base, which costs
// nothing, and may part it further. `settled` receives the offsets of those; it is indexed like `buffers`.
std::vector<Section> sections_of(const std::vector<Buffer>& buffers, std::vector<Bytes>& settled);

}  // namespace ullage
