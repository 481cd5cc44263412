// Places buffers one after another, each into the lowest gap that holds it.
#pragma once

#include <vector>

#include "core/placement/section.hpp"

namespace ullage {

using Order = std::vector<std::uint32_t>;  // indices into Section::buffers

// The orders worth trying, as rows of what `greedy_orders` returns; the live sum met is the largest during a buffer's
// life.
enum OrderRow : std::uint8_t { kByArea, kByDuration, kByLiveMet, kBySize, kByBegin };
std::vector<Order> greedy_orders(const Section& section);

// Finds the placed buffers that share a moment with another, in time that grows with how many there are.
class PlacedBuffers {
 public:
  explicit PlacedBuffers(const Section& section);
  void clear();
  // Places one in the lowest gap; returns its offset.
  Bytes place(std::uint32_t index);
  // How many overlaps were looked at so far: what the work is measured in.
  std::int64_t num_looked_at() const { return num_looked_at_; }

 private:
  void collect(std::size_t node, std::size_t first, std::size_t width, std::size_t limit, std::int64_t begin);

  struct Range {
    Bytes low, high;
  };
  const Section& section_;
  std::vector<std::uint32_t> by_begin_;
  std::vector<std::uint32_t> rank_;
  std::vector<std::int64_t> begins_;
  std::size_t width_ = 1;
  std::vector<std::int64_t> latest_end_;  // a tree over ranks: the latest end of a placed buffer below each node
  std::vector<Bytes> offset_;
  std::vector<Range> taken_;
  std::int64_t num_looked_at_ = 0;
};

// Places all in an order; keeps the result if it is the lowest so far. Returns its height.
Bytes place_in_order(Section& section, PlacedBuffers& placed, const Order& order, std::vector<Bytes>& offset);

}  // namespace ullage
