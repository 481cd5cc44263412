#include "core/placement/improve.hpp"

#include <algorithm>
#include <random>

#include "core/placement/greedy.hpp"
#include "core/placement/search.hpp"

namespace ullage {
namespace {

constexpr std::size_t kSearchedBuffers = 2000;  // beyond, the search's tables of overlaps grow too large
constexpr std::int64_t kStepsPerLook = 30;      // a greedy look costs as much as these steps of the search
constexpr std::int64_t kShortestTry = 1'000'000;

std::vector<std::uint32_t> ranks_of(const Order& order) {
  std::vector<std::uint32_t> rank(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  return rank;
}

// Swaps some neighbours, so that a later try meets other branches first.
void disturb(Order& order, std::mt19937& random) {
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const std::size_t reach = std::min<std::size_t>(order.size() - i, 8);
    if (random() % 4 == 0) std::swap(order[i], order[i + random() % reach]);
  }
}

// Takes the offsets that a search found.
void take(Section& section, const std::vector<Bytes>& offset) {
  section.offset = offset;
  section.height = 0;
  for (std::size_t i = 0; i < offset.size(); ++i) {
    section.height = std::max(section.height, offset[i] + section.buffers[i].size);
  }
}

// The lengths of Luby's sequence, 1 1 2 1 1 2 4 1 1 2 ...: where some runs are short and most endless, no other way to
// cut them off is better by more than a factor (Luby, Sinclair, Zuckerman 1993).
std::int64_t luby(std::int64_t n) {
  std::int64_t size = 1;
  while (size < n) size = 2 * size + 1;
  while (size != n) {
    size /= 2;
    if (n > size) n -= size;
  }
  return (size + 1) / 2;
}

// How long a run may take. Most problems fall to a short run; every third one is longer, for those that never do.
std::int64_t length_of(std::int64_t run) {
  return run % 3 == 2 ? 6 * kShortestTry : kShortestTry * luby(run - run / 3);
}

// Searches below a capacity from several orders in turn; a search that is unlucky in one order often ends at once in
// another. From the second turn on the orders are disturbed.
SearchEnd search_below(Section& section, Search& search, Bytes capacity, std::int64_t max_steps, std::int64_t& steps) {
  const std::vector<Order> orders = greedy_orders(section);
  std::mt19937 random(1);
  const std::int64_t end = steps + max_steps;
  for (std::size_t run = 1; steps < end; ++run) {
    Order order = orders[run % orders.size()];
    if (run >= orders.size()) disturb(order, random);
    const std::int64_t length = length_of(static_cast<std::int64_t>(run));
    const SearchEnd how = search.run(capacity, ranks_of(order), std::min(length, end - steps));
    steps += search.num_steps() + 1;
    if (how == SearchEnd::kFound) take(section, search.offset());
    if (how != SearchEnd::kOutOfSteps) return how;
  }
  return SearchEnd::kOutOfSteps;
}

// Searches for the target; where that is in vain, halves the span from there up to what is reached.
std::int64_t search_whole(Section& section, Bytes target, std::int64_t max_steps) {
  Search search(section);
  std::int64_t steps = 0;
  search_below(section, search, target, max_steps / 3 * 2, steps);
  Bytes missed = target;
  while (section.height > missed + missed / 1000 && steps < max_steps) {
    const Bytes middle = missed + (section.height - missed) / 2;
    const SearchEnd how = search_below(section, search, middle, (max_steps - steps) / 3 + 1, steps);
    if (how != SearchEnd::kFound) missed = middle;
  }
  return steps;
}

// Moves what passes the target towards the front of the order, and places all anew.
std::int64_t move_forward(Section& section, Bytes target, std::int64_t max_steps) {
  PlacedBuffers placed(section);
  std::mt19937 random(1);
  std::vector<Bytes> offset;
  Order order = greedy_orders(section).front();
  Order best = order;
  std::int64_t last = 0;
  while (section.height > target && placed.num_looked_at() * kStepsPerLook + last < max_steps) {
    const std::int64_t before = placed.num_looked_at();
    const Bytes old = section.height;
    const Bytes height = place_in_order(section, placed, order, offset);
    if (height < old) best = order;
    if (height > old + old / 200) order = best;
    for (std::size_t k = 1; k < order.size(); ++k) {
      const std::uint32_t i = order[k];
      if (offset[i] + section.buffers[i].size <= target) continue;
      const std::size_t to = random() % 2 == 0 ? k / 2 : random() % (k + 1);
      std::rotate(order.begin() + static_cast<std::ptrdiff_t>(to), order.begin() + static_cast<std::ptrdiff_t>(k),
                  order.begin() + static_cast<std::ptrdiff_t>(k) + 1);
    }
    last = (placed.num_looked_at() - before) * kStepsPerLook;
  }
  return placed.num_looked_at() * kStepsPerLook;
}

}  // namespace

std::int64_t place_greedily(Section& section, Bytes target) {
  PlacedBuffers placed(section);
  std::vector<Bytes> offset;
  for (const Order& order : greedy_orders(section)) {
    place_in_order(section, placed, order, offset);
    if (section.height <= target) break;
  }
  return placed.num_looked_at() * kStepsPerLook;
}

std::int64_t improve(Section& section, Bytes target, std::int64_t max_steps) {
  const bool is_small = section.buffers.size() <= kSearchedBuffers;
  std::int64_t steps = move_forward(section, target, is_small ? max_steps / 20 : max_steps);
  if (is_small && section.height > target && steps < max_steps) {
    steps += search_whole(section, target, max_steps - steps);
  }
  return steps;
}

}  // namespace ullage
