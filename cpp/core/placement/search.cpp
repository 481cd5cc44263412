#include "core/placement/search.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace ullage {

Search::Search(const Section& section) : section_(section) {
  const std::vector<Buffer>& all = section.buffers;
  by_begin_.resize(all.size());
  std::iota(by_begin_.begin(), by_begin_.end(), 0U);
  std::stable_sort(by_begin_.begin(), by_begin_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return all[a].begin < all[b].begin; });
  overlapping_.resize(all.size());
  for (std::uint32_t a = 0; a < all.size(); ++a) {
    for (std::uint32_t b = 0; b < all.size(); ++b) {
      if (a != b && all[a].begin < all[b].end && all[b].begin < all[a].end) overlapping_[a].push_back(b);
    }
  }
  above_.resize(section.live.size());
}

SearchEnd Search::run(Bytes capacity, const std::vector<std::uint32_t>& rank, std::int64_t max_steps) {
  capacity_ = capacity;
  rank_ = &rank;
  num_steps_ = 0;
  max_steps_ = max_steps;
  trail_.clear();
  lowest_.assign(section_.buffers.size(), 0);
  offset_.assign(section_.buffers.size(), 0);
  if (place_all(by_begin_, 0)) return SearchEnd::kFound;
  return num_steps_ > max_steps_ ? SearchEnd::kOutOfSteps : SearchEnd::kNoneExists;
}

// `waiting` is in the order of begins, and its times hang together.
bool Search::place_all(const Indices& waiting, Bytes frontier) {
  if (waiting.empty()) return true;
  if (!can_fit(waiting, frontier)) return false;
  const Indices tried = candidates(waiting, frontier);
  for (std::size_t k = 0; k < tried.size(); ++k) {
    const auto is_same = [&](std::uint32_t other) { return is_twin(other, tried[k]); };
    if (std::any_of(tried.begin(), tried.begin() + static_cast<std::ptrdiff_t>(k), is_same)) continue;
    if (try_candidate(waiting, tried[k], lowest(tried[k], frontier))) return true;
    if (num_steps_ > max_steps_) return false;
  }
  return false;
}

// Whether at each moment, and for each set of waiting buffers there that cannot lie below some offset, the room above
// that offset holds them: the bound for jobs with release dates on one machine.
bool Search::can_fit(const Indices& waiting, Bytes frontier) {
  from_top_ = waiting;
  std::stable_sort(from_top_.begin(), from_top_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return lowest_[a] > lowest_[b]; });
  std::int64_t end = 0;
  for (const std::uint32_t i : waiting) end = std::max(end, section_.buffers[i].end);
  std::fill(above_.begin() + section_.buffers[waiting.front()].begin, above_.begin() + end, Bytes{0});
  for (const std::uint32_t i : from_top_) {
    const Buffer& buffer = section_.buffers[i];
    const Bytes room = capacity_ - lowest(i, frontier);
    Bytes most = 0;
    for (auto t = static_cast<std::size_t>(buffer.begin); t < static_cast<std::size_t>(buffer.end); ++t) {
      above_[t] += buffer.size;
      most = std::max(most, above_[t]);
    }
    num_steps_ += buffer.end - buffer.begin + 8;
    if (most > room) return false;
  }
  return true;
}

// What could come next. A buffer above which another would fit whole has to wait: that other can come first.
Search::Indices Search::candidates(const Indices& waiting, Bytes frontier) const {
  Bytes below = std::numeric_limits<Bytes>::max();
  for (const std::uint32_t i : waiting) below = std::min(below, lowest(i, frontier) + section_.buffers[i].size);
  Indices found;
  for (const std::uint32_t i : waiting) {
    if (lowest(i, frontier) < below) found.push_back(i);
  }
  std::sort(found.begin(), found.end(), [&](std::uint32_t a, std::uint32_t b) {
    const Bytes low_a = lowest(a, frontier), low_b = lowest(b, frontier);
    return low_a != low_b ? low_a < low_b : (*rank_)[a] < (*rank_)[b];
  });
  return found;
}

bool Search::try_candidate(const Indices& waiting, std::uint32_t chosen, Bytes offset) {
  const std::size_t mark = trail_.size();
  const Bytes top = offset + section_.buffers[chosen].size;
  offset_[chosen] = offset;
  for (const std::uint32_t other : overlapping_[chosen]) {
    if (lowest_[other] >= top) continue;
    trail_.push_back({other, lowest_[other]});
    lowest_[other] = top;
  }
  num_steps_ += static_cast<std::int64_t>(overlapping_[chosen].size());
  bool is_done = true;
  for (const Indices& part : apart(waiting, chosen)) {
    is_done = place_all(part, offset);
    if (!is_done) break;
  }
  for (; trail_.size() > mark; trail_.pop_back()) lowest_[trail_.back().index] = trail_.back().before;
  return is_done;
}

// The parts that share no moment, smallest first: it fails soonest.
std::vector<Search::Indices> Search::apart(const Indices& waiting, std::uint32_t without) const {
  std::vector<Indices> parts;
  std::int64_t end = -1;
  for (const std::uint32_t i : waiting) {
    if (i == without) continue;
    if (section_.buffers[i].begin >= end) parts.emplace_back();
    end = std::max(end, section_.buffers[i].end);
    parts.back().push_back(i);
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Indices& a, const Indices& b) { return a.size() < b.size(); });
  return parts;
}

bool Search::is_twin(std::uint32_t a, std::uint32_t b) const {
  const Buffer &one = section_.buffers[a], &two = section_.buffers[b];
  return one.begin == two.begin && one.end == two.end && one.size == two.size && lowest_[a] == lowest_[b];
}

}  // namespace ullage
