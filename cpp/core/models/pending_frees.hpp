// The names of blocks that were freed and wait for the GPU, oldest first. Each operation is a step, but for take().
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/units.hpp"

namespace ullage {

class PendingFrees {
 public:
  // The name must not be there.
  void add(std::int32_t name) {
    const auto row = static_cast<std::size_t>(name);
    if (row >= links_.size()) links_.resize(std::max(row + 1, 2 * links_.size()));
    links_[row] = {last_, kNone, true};
    (last_ == kNone ? first_ : at(last_).next) = name;
    last_ = name;
  }

  // Does nothing if the name is not there.
  void remove(std::int32_t name) {
    if (static_cast<std::size_t>(name) >= links_.size() || !at(name).is_there) return;
    const Link gone = at(name);
    (gone.previous == kNone ? first_ : at(gone.previous).next) = gone.next;
    (gone.next == kNone ? last_ : at(gone.next).previous) = gone.previous;
    at(name).is_there = false;
  }

  // All of them; none is left.
  std::vector<std::int32_t> take() {
    std::vector<std::int32_t> names;
    while (first_ != kNone) {
      names.push_back(first_);
      remove(first_);
    }
    return names;
  }

 private:
  struct Link {
    std::int32_t previous = kNone;
    std::int32_t next = kNone;
    bool is_there = false;
  };
  Link& at(std::int32_t name) { return links_[static_cast<std::size_t>(name)]; }

  std::vector<Link> links_;  // by name
  std::int32_t first_ = kNone, last_ = kNone;
};

}  // namespace ullage
