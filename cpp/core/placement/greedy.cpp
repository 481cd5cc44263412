#include "core/placement/greedy.hpp"

#include <algorithm>
#include <numeric>

namespace ullage {
namespace {

template <typename Key>
Order sorted_by(const Section& section, Key key) {
  Order order(section.buffers.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return key(a) > key(b); });
  return order;
}

// For each buffer the largest live sum during its life, by a sparse table over moments.
std::vector<Bytes> live_met(const Section& section) {
  std::vector<std::vector<Bytes>> largest{section.live};
  for (std::size_t span = 2; span <= section.live.size(); span *= 2) {
    const std::vector<Bytes>& half = largest.back();
    std::vector<Bytes> next(section.live.size() - span + 1);
    for (std::size_t i = 0; i < next.size(); ++i) next[i] = std::max(half[i], half[i + span / 2]);
    largest.push_back(std::move(next));
  }
  std::vector<Bytes> met;
  met.reserve(section.buffers.size());
  for (const Buffer& buffer : section.buffers) {
    const auto begin = static_cast<std::size_t>(buffer.begin), end = static_cast<std::size_t>(buffer.end);
    std::size_t level = 0;
    while ((std::size_t{2} << level) <= end - begin) ++level;
    met.push_back(std::max(largest[level][begin], largest[level][end - (std::size_t{1} << level)]));
  }
  return met;
}

}  // namespace

std::vector<Order> greedy_orders(const Section& section) {
  const std::vector<Buffer>& all = section.buffers;
  const std::vector<Bytes> met = live_met(section);
  const auto duration = [&](std::uint32_t i) { return all[i].end - all[i].begin; };
  // Sizes and counts of moments are exact as doubles where it matters: only the order is taken from the product.
  const auto area = [&](std::uint32_t i) {
    return static_cast<double>(all[i].size) * static_cast<double>(duration(i));
  };
  using Pair = std::pair<Bytes, std::int64_t>;
  using Mixed = std::pair<Bytes, double>;
  return {
      sorted_by(section, area),
      sorted_by(section, [&](std::uint32_t i) { return Pair{duration(i), all[i].size}; }),
      sorted_by(section, [&](std::uint32_t i) { return Mixed{met[i], area(i)}; }),
      sorted_by(section, [&](std::uint32_t i) { return Pair{all[i].size, duration(i)}; }),
      sorted_by(section, [&](std::uint32_t i) { return Pair{-all[i].begin, duration(i)}; }),
  };
}

PlacedBuffers::PlacedBuffers(const Section& section) : section_(section) {
  const std::size_t count = section.buffers.size();
  by_begin_ = sorted_by(section, [&](std::uint32_t i) { return -section.buffers[i].begin; });
  rank_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    rank_[by_begin_[i]] = static_cast<std::uint32_t>(i);
    begins_.push_back(section.buffers[by_begin_[i]].begin);
  }
  while (width_ < count) width_ *= 2;
  offset_.resize(count);
  clear();
}

void PlacedBuffers::clear() { latest_end_.assign(2 * width_, -1); }

void PlacedBuffers::collect(std::size_t node, std::size_t first, std::size_t width, std::size_t limit,
                            std::int64_t begin) {
  if (first >= limit || latest_end_[node] <= begin) return;
  if (width == 1) {
    const std::uint32_t other = by_begin_[first];
    taken_.push_back({offset_[other], offset_[other] + section_.buffers[other].size});
    return;
  }
  collect(2 * node, first, width / 2, limit, begin);
  collect(2 * node + 1, first + width / 2, width / 2, limit, begin);
}

Bytes PlacedBuffers::place(std::uint32_t index) {
  const Buffer& buffer = section_.buffers[index];
  taken_.clear();
  const auto limit = std::lower_bound(begins_.begin(), begins_.end(), buffer.end) - begins_.begin();
  collect(1, 0, width_, static_cast<std::size_t>(limit), buffer.begin);
  num_looked_at_ += static_cast<std::int64_t>(taken_.size()) + 1;
  std::sort(taken_.begin(), taken_.end(), [](const Range& a, const Range& b) { return a.low < b.low; });
  Bytes offset = 0;
  for (const Range& range : taken_) {
    if (range.low - offset >= buffer.size) break;
    offset = std::max(offset, range.high);
  }
  offset_[index] = offset;
  for (std::size_t node = width_ + rank_[index]; node >= 1; node /= 2) {
    latest_end_[node] = std::max(latest_end_[node], buffer.end);
  }
  return offset;
}

Bytes place_in_order(Section& section, PlacedBuffers& placed, const Order& order, std::vector<Bytes>& offset) {
  placed.clear();
  offset.resize(order.size());
  Bytes height = 0;
  for (const std::uint32_t i : order) {
    offset[i] = placed.place(i);
    height = std::max(height, offset[i] + section.buffers[i].size);
  }
  if (section.offset.empty() || height < section.height) {
    section.offset = offset;
    section.height = height;
  }
  return height;
}

}  // namespace ullage
