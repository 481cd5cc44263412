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
  living_.resize(section.live.size());
  for (std::uint32_t a = 0; a < all.size(); ++a) {
    for (std::uint32_t b = 0; b < all.size(); ++b) {
      if (a != b && all[a].begin < all[b].end && all[b].begin < all[a].end) overlapping_[a].push_back(b);
    }
    for (auto t = static_cast<std::size_t>(all[a].begin); t < static_cast<std::size_t>(all[a].end); ++t) {
      living_[t].push_back(a);
    }
  }
  looked_at_.assign(section.live.size(), 0);
  num_candidates_.assign(section.live.size(), 0);
  gap_.assign(section.live.size(), kNone);
  weight_.assign(section.live.size(), 1);
}

SearchEnd Search::run(Bytes capacity, const std::vector<std::uint32_t>& rank, std::int64_t max_steps) {
  capacity_ = capacity;
  rank_ = &rank;
  num_steps_ = 0;
  max_steps_ = max_steps;
  lowest_before_.clear();
  height_before_.clear();
  checked_ = 0;
  depth_ = 0;
  lowest_.assign(section_.buffers.size(), 0);
  offset_.assign(section_.buffers.size(), 0);
  is_placed_.assign(section_.buffers.size(), 0);
  height_.assign(section_.live.size(), 0);
  rest_ = section_.live;
  for (double& weight : weight_) weight = 1 + (weight - 1) * kForget;
  if (section_.bound > capacity) return SearchEnd::kNoneExists;
  if (place_all(by_begin_)) return SearchEnd::kFound;
  return num_steps_ > max_steps_ ? SearchEnd::kOutOfSteps : SearchEnd::kNoneExists;
}

// `waiting` is in the order of begins, and its times hang together.
bool Search::place_all(const Indices& waiting) {
  if (waiting.empty()) return true;
  if (++depth_ > kDeepest) num_steps_ = max_steps_ + 1;
  const bool is_done = num_steps_ <= max_steps_ && go_on(waiting);
  --depth_;
  return is_done;
}

bool Search::go_on(const Indices& waiting) {
  Choice choice;
  if (!choose(waiting, choice)) return false;
  for (std::size_t k = 0; k < choice.buffers.size(); ++k) {
    const std::uint32_t one = choice.buffers[k];
    const auto is_same = [&](std::uint32_t other) { return is_twin(other, one); };
    const auto tried_end = choice.buffers.begin() + static_cast<std::ptrdiff_t>(k);
    if (std::any_of(choice.buffers.begin(), tried_end, is_same)) continue;
    if (try_buffer(waiting, one, choice.height)) return true;
    if (num_steps_ > max_steps_) return false;
  }
  return choice.may_leave_gap && try_gap(waiting, choice);
}

// The lowest height at which something is to be placed, and there the moment with the fewest ways to go on. False if
// some moment has none.
bool Search::choose(const Indices& waiting, Choice& choice) {
  const auto begin = static_cast<std::size_t>(section_.buffers[waiting.front()].begin);
  std::int64_t last = 0;
  for (const std::uint32_t i : waiting) last = std::max(last, section_.buffers[i].end);
  const auto end = static_cast<std::size_t>(last);
  choice.height = *std::min_element(height_.begin() + static_cast<std::ptrdiff_t>(begin),
                                    height_.begin() + static_cast<std::ptrdiff_t>(end));
  std::fill(num_candidates_.begin() + static_cast<std::ptrdiff_t>(begin),
            num_candidates_.begin() + static_cast<std::ptrdiff_t>(end), 0);
  for (const std::uint32_t i : waiting) {
    if (lowest_[i] != choice.height) continue;
    const Buffer& buffer = section_.buffers[i];
    for (auto t = static_cast<std::size_t>(buffer.begin); t < static_cast<std::size_t>(buffer.end); ++t) {
      ++num_candidates_[t];
    }
    num_steps_ += buffer.end - buffer.begin;
  }
  const double fewest = choose_moment(begin, end, choice);
  num_steps_ += static_cast<std::int64_t>(2 * (end - begin) + 2 * waiting.size());
  if (fewest == 0) {
    blame(choice.moment);
    return false;
  }
  for (const std::uint32_t i : living_[choice.moment]) {
    if (is_placed_[i] == 0 && lowest_[i] == choice.height) choice.buffers.push_back(i);
  }
  std::sort(choice.buffers.begin(), choice.buffers.end(),
            [&](std::uint32_t a, std::uint32_t b) { return (*rank_)[a] < (*rank_)[b]; });
  return true;
}

// Sets the moment and whether a gap may be left there; returns the ways to go on over the moment's weight. Whether a
// gap is possible is only worked out for the moment that looks best, until it stays the best.
double Search::choose_moment(std::size_t begin, std::size_t end, Choice& choice) {
  for (std::size_t t = begin; t < end; ++t) gap_[t] = capacity_ - height_[t] - rest_[t] > 0 ? kMayBe : kNone;
  for (;;) {
    double fewest = std::numeric_limits<double>::max();
    for (std::size_t t = begin; t < end; ++t) {
      if (height_[t] != choice.height) continue;
      const double score = (num_candidates_[t] + (gap_[t] != kNone ? 1 : 0)) / weight_[t];
      if (score >= fewest) continue;
      fewest = score;
      choice.moment = t;
    }
    Gap& gap = gap_[choice.moment];
    if (gap == kMayBe && next_above(choice.moment, choice.height) + rest_[choice.moment] > capacity_) {
      gap = kNone;
      continue;
    }
    choice.may_leave_gap = gap != kNone;
    return fewest;
  }
}

bool Search::try_buffer(const Indices& waiting, std::uint32_t chosen, Bytes offset) {
  const std::size_t lowest_mark = lowest_before_.size(), height_mark = height_before_.size();
  const Buffer& buffer = section_.buffers[chosen];
  const Bytes top = offset + buffer.size;
  offset_[chosen] = offset;
  is_placed_[chosen] = 1;
  for (auto t = static_cast<std::size_t>(buffer.begin); t < static_cast<std::size_t>(buffer.end); ++t) {
    set_height(t, top);
    rest_[t] -= buffer.size;
  }
  for (const std::uint32_t other : overlapping_[chosen]) {
    if (is_placed_[other] == 0 && lowest_[other] < top) raise(other, top);
  }
  num_steps_ += static_cast<std::int64_t>(overlapping_[chosen].size());
  bool is_done = raised_ones_fit();
  if (is_done) {
    for (const Indices& part : apart(waiting, chosen)) {
      is_done = place_all(part);
      if (!is_done) break;
    }
  }
  if (is_done) return true;
  for (const std::uint32_t i : waiting) {  // a part may have been done before another failed
    if (is_placed_[i] == 0) continue;
    is_placed_[i] = 0;
    const Buffer& gone = section_.buffers[i];
    for (auto t = static_cast<std::size_t>(gone.begin); t < static_cast<std::size_t>(gone.end); ++t)
      rest_[t] += gone.size;
  }
  undo(lowest_mark, height_mark);
  return false;
}

// Nothing lies at the place. What could have is kept from sinking back by something in its way: by something that does
// not live at the moment, or by something else that does, and that lies where the gap ends or above.
bool Search::try_gap(const Indices& waiting, const Choice& choice) {
  const std::size_t lowest_mark = lowest_before_.size(), height_mark = height_before_.size();
  const Bytes next = next_above(choice.moment, choice.height);
  const Indices& living = living_[choice.moment];
  for (const std::uint32_t i : living) {
    if (is_placed_[i] != 0 || lowest_[i] != choice.height) continue;
    Bytes to = raised_above(i, choice.moment, choice.height);
    for (const std::uint32_t other : living) {
      if (other != i && is_placed_[other] == 0) to = std::min(to, next + section_.buffers[other].size);
    }
    raise(i, to);
  }
  if (next + rest_[choice.moment] > capacity_) {
    blame(choice.moment);
  } else {
    set_height(choice.moment, next);
    if (raised_ones_fit() && place_all(waiting)) return true;
  }
  undo(lowest_mark, height_mark);
  return false;
}

Bytes Search::raised_above(std::uint32_t i, std::size_t moment, Bytes height) {
  Bytes least = capacity_ + 1;
  for (const std::uint32_t other : overlapping_[i]) {
    if (is_placed_[other] != 0 || lives_at(other, moment)) continue;
    if (lowest_[other] >= height + section_.buffers[i].size) continue;
    least = std::min(least, lowest_[other] + section_.buffers[other].size);
  }
  num_steps_ += static_cast<std::int64_t>(overlapping_[i].size());
  return least;
}

// How high the next thing at a moment lies, if not at `height`.
Bytes Search::next_above(std::size_t moment, Bytes height) {
  Bytes next = std::numeric_limits<Bytes>::max();
  for (const std::uint32_t i : living_[moment]) {
    if (is_placed_[i] != 0) continue;
    next = std::min(next, lowest_[i] > height ? lowest_[i] : raised_above(i, moment, height));
  }
  num_steps_ += static_cast<std::int64_t>(living_[moment].size());
  return next;
}

void Search::raise(std::uint32_t i, Bytes to) {
  lowest_before_.push_back({i, lowest_[i]});
  lowest_[i] = to;
}

void Search::set_height(std::size_t moment, Bytes height) {
  height_before_.push_back({static_cast<std::uint32_t>(moment), height_[moment]});
  height_[moment] = height;
}

void Search::undo(std::size_t lowest_mark, std::size_t height_mark) {
  for (; lowest_before_.size() > lowest_mark; lowest_before_.pop_back()) {
    lowest_[lowest_before_.back().index] = lowest_before_.back().value;
  }
  for (; height_before_.size() > height_mark; height_before_.pop_back()) {
    height_[height_before_.back().index] = height_before_.back().value;
  }
  checked_ = std::min(checked_, lowest_mark);
}

// Whether the moments of the buffers that were raised since the last look still hold what is to be placed there.
bool Search::raised_ones_fit() {
  ++look_;
  for (; checked_ < lowest_before_.size(); ++checked_) {
    const Buffer& buffer = section_.buffers[lowest_before_[checked_].index];
    for (auto t = static_cast<std::size_t>(buffer.begin); t < static_cast<std::size_t>(buffer.end); ++t) {
      if (looked_at_[t] == look_) continue;
      looked_at_[t] = look_;
      if (!fits(t)) {
        blame(t);
        return false;
      }
    }
  }
  return true;
}

// Whether, for each set of waiting buffers that cannot lie below some offset, the room above that offset holds them:
// the bound for jobs with release dates on one machine.
bool Search::fits(std::size_t moment) {
  pieces_.clear();
  for (const std::uint32_t i : living_[moment]) {
    if (is_placed_[i] == 0) pieces_.push_back({lowest_[i], section_.buffers[i].size});
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.lowest > b.lowest; });
  num_steps_ += static_cast<std::int64_t>(living_[moment].size() + 4 * pieces_.size());
  Bytes above = 0;
  for (const Piece& piece : pieces_) {
    above += piece.size;
    if (piece.lowest + above > capacity_) return false;
  }
  return true;
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
