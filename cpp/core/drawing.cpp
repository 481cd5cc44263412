#include "core/drawing.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "core/free_list.hpp"

namespace ullage {
namespace {

constexpr std::size_t kMostPillars = 3000;      // placed before the others; their number squared is what it costs
constexpr std::int64_t kMostMeetingsEach = 16;  // pillars that rise while a block lives, on average: each is looked at
constexpr std::int64_t kMostMeetings = 1 << 22;
constexpr int kMostTries = 64;  // gaps that are tried for a block before it goes on top

// A block as it is drawn: [low, high) in bytes, [begin, end) in events.
struct Box {
  Bytes low = 0, high = 0;
  EventIndex begin = 0, end = 0;
};

// The lowest place from `low` on for `size` bytes that meets none of the boxes, which are in order of their lower
// edges.
Bytes lowest_free(Bytes low, Bytes size, const std::vector<Box>& in_the_way) {
  for (const Box& box : in_the_way) {
    if (box.low >= low + size) break;
    low = std::max(low, box.high);
  }
  return low;
}

// The stack at one moment: gaps below its top, by offset and by size.
class Stack {
 public:
  // The place of a block that must stay clear of what comes while it lives.
  Bytes fit(Bytes size, const std::vector<Box>& coming) const {
    FreeList::Cursor cursor = by_size_.at_least(size);
    for (int tries = 0; cursor != by_size_.end() && tries < kMostTries; cursor = by_size_.next(cursor), ++tries) {
      const FreeEntry& gap = by_size_.at(cursor);
      const Bytes low = static_cast<Bytes>(gap.address);
      const Bytes place = lowest_free(low, size, coming);
      if (place + size <= low + gap.size) return place;
    }
    return lowest_free(top_, size, coming);
  }

  void take(Bytes low, Bytes size) {
    const Bytes high = low + size;
    if (low >= top_) {
      if (low > top_) insert(top_, low - top_);
      top_ = high;
      height_ = std::max(height_, high);
      return;
    }
    const auto gap = std::prev(by_offset_.upper_bound(low));
    const Bytes gap_low = gap->first;
    const Bytes gap_high = gap_low + gap->second;
    erase(gap);
    if (low > gap_low) insert(gap_low, low - gap_low);
    if (gap_high > high) insert(high, gap_high - high);
  }

  void give_back(Bytes low, Bytes size) {
    Bytes high = low + size;
    auto next = by_offset_.lower_bound(low);
    if (next != by_offset_.end() && next->first == high) {
      high += next->second;
      next = erase(next);
    }
    if (next != by_offset_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == low) {
        low = before->first;
        erase(before);
      }
    }
    if (high == top_) {
      top_ = low;
    } else {
      insert(low, high - low);
    }
  }

  Bytes height() const { return height_; }

 private:
  using Gaps = std::map<Bytes, Bytes>;

  void insert(Bytes low, Bytes size) {
    by_offset_.emplace(low, size);
    by_size_.insert({size, static_cast<Address>(low), kNone});
  }
  Gaps::iterator erase(Gaps::iterator gap) {
    by_size_.erase(FreeEntry{gap->second, static_cast<Address>(gap->first), kNone});
    return by_offset_.erase(gap);
  }

  Gaps by_offset_;
  FreeList by_size_;
  Bytes top_ = 0, height_ = 0;
};

// The rows that end at each event, as lists threaded through the rows.
class RowsByEnd {
 public:
  RowsByEnd(const Column<EventIndex>& ends, EventIndex num_events)
      : first_(static_cast<std::size_t>(num_events), kNone), next_(ends.size(), kNone) {
    for (std::size_t row = 0; row < ends.size(); ++row) {
      if (ends[row] < 0 || ends[row] >= num_events) continue;
      std::int32_t& first = first_[static_cast<std::size_t>(ends[row])];
      next_[row] = first;
      first = static_cast<std::int32_t>(row);
    }
  }
  std::int32_t first(EventIndex event) const { return first_[static_cast<std::size_t>(event)]; }
  std::int32_t next(std::int32_t row) const { return next_[static_cast<std::size_t>(row)]; }

 private:
  std::vector<std::int32_t> first_, next_;
};

class Artist {
 public:
  Artist(const BlockLifetimes& blocks, EventIndex num_events)
      : blocks_(blocks), num_events_(num_events), is_drawn_(blocks.size_rows(), 0) {
    drawing_.offset.resize(blocks.size_rows());
  }

  Drawing draw() {
    raise_pillars();
    fill_in();
    drawing_.height = stack_.height();
    return std::move(drawing_);
  }

 private:
  using Row = std::size_t;

  EventIndex end(Row row) const {
    const EventIndex death = blocks_.death[row];
    return death < 0 || death > num_events_ ? num_events_ : death;
  }
  EventIndex life(Row row) const { return end(row) - blocks_.birth[row]; }
  // What has no bytes or no moment takes no place; a size above the limit could overflow.
  bool is_drawable(Row row) const { return blocks_.size[row] > 0 && blocks_.size[row] <= kSizeLimit && life(row) > 0; }

  void place(Row row, Bytes low) {
    // Higher than any memory: only a damaged file has that.
    if (low > kSizeLimit) return;
    drawing_.offset[row] = low;
    is_drawn_[row] = 1;
  }

  // The blocks that live longest, the longest first.
  std::vector<Row> longest_lived() const {
    std::vector<Row> order = drawable_rows();
    const auto lives_longer = [&](Row a, Row b) { return life(a) != life(b) ? life(a) > life(b) : a < b; };
    const std::size_t count = std::min(order.size(), kMostPillars);
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), lives_longer);
    order.resize(count);
    std::sort(order.begin(), order.end(), lives_longer);
    while (num_meetings(order) > kMostMeetings + kMostMeetingsEach * static_cast<std::int64_t>(blocks_.size_rows())) {
      order.resize(order.size() / 2);
    }
    return order;
  }

  std::vector<Row> drawable_rows() const {
    std::vector<Row> rows;
    rows.reserve(blocks_.size_rows());
    for (Row row = 0; row < blocks_.size_rows(); ++row) {
      if (is_drawable(row)) rows.push_back(row);
    }
    return rows;
  }

  // How many of these rise while a block lives, over all blocks.
  std::int64_t num_meetings(const std::vector<Row>& pillars) const {
    std::vector<std::int32_t> risen(static_cast<std::size_t>(num_events_) + 1, 0);  // before each event
    for (const Row row : pillars) {
      if (blocks_.birth[row] >= 0) ++risen[static_cast<std::size_t>(blocks_.birth[row]) + 1];
    }
    std::partial_sum(risen.begin(), risen.end(), risen.begin());
    std::int64_t meetings = 0;
    for (Row row = 0; row < blocks_.size_rows(); ++row) {
      if (!is_drawable(row)) continue;
      const EventIndex next = std::max(blocks_.birth[row] + 1, 0);
      meetings += risen[static_cast<std::size_t>(end(row))] - risen[static_cast<std::size_t>(next)];
    }
    return meetings;
  }

  // Places the blocks that live longest, each as low as it goes.
  void raise_pillars() {
    std::vector<Box> placed;  // in order of their lower edges
    std::vector<Box> met;
    for (const Row row : longest_lived()) {
      met.clear();
      for (const Box& box : placed) {
        if (box.begin < end(row) && blocks_.birth[row] < box.end) met.push_back(box);
      }
      const Bytes low = lowest_free(0, blocks_.size[row], met);
      place(row, low);
      if (is_drawn_[row] == 0) continue;
      const Box box{low, low + blocks_.size[row], blocks_.birth[row], end(row)};
      placed.insert(std::upper_bound(placed.begin(), placed.end(), box, is_lower), box);
    }
    pillars_ = std::move(placed);
    std::stable_sort(pillars_.begin(), pillars_.end(), [](const Box& a, const Box& b) { return a.begin < b.begin; });
    is_pillar_ = is_drawn_;
  }

  static bool is_lower(const Box& a, const Box& b) { return a.low < b.low; }

  // Places the others in the order of their births, around the pillars.
  void fill_in() {
    const RowsByEnd ends(blocks_.death, num_events_);
    EventIndex now = 0;  // what ends before this event is gone
    std::size_t next_pillar = 0;
    for (const Row row : in_order_of_birth()) {
      for (; now <= blocks_.birth[row]; ++now) {
        for (std::int32_t ended = ends.first(now); ended != kNone; ended = ends.next(ended)) {
          const auto gone = static_cast<Row>(ended);
          if (is_drawn_[gone] == 2) stack_.give_back(drawing_.offset[gone], blocks_.size[gone]);
        }
      }
      if (is_pillar_[row] != 0) {
        stack_.take(drawing_.offset[row], blocks_.size[row]);
        is_drawn_[row] = 2;
        continue;
      }
      while (next_pillar < pillars_.size() && pillars_[next_pillar].begin <= blocks_.birth[row]) ++next_pillar;
      const Bytes low = stack_.fit(blocks_.size[row], coming(next_pillar, end(row)));
      place(row, low);
      if (is_drawn_[row] == 0) continue;
      stack_.take(low, blocks_.size[row]);
      is_drawn_[row] = 2;
    }
  }

  // By birth; of those from before the recording, the pillars first: they stand already.
  std::vector<Row> in_order_of_birth() const {
    std::vector<Row> order = drawable_rows();
    std::stable_sort(order.begin(), order.end(), [&](Row a, Row b) {
      return blocks_.birth[a] != blocks_.birth[b] ? blocks_.birth[a] < blocks_.birth[b] : is_pillar_[a] > is_pillar_[b];
    });
    return order;
  }

  // The pillars from one on that rise before an event, in order of their lower edges.
  const std::vector<Box>& coming(std::size_t first, EventIndex before) {
    coming_.clear();
    for (; first < pillars_.size() && pillars_[first].begin < before; ++first) coming_.push_back(pillars_[first]);
    std::sort(coming_.begin(), coming_.end(), is_lower);
    return coming_;
  }

  const BlockLifetimes& blocks_;
  EventIndex num_events_;
  Drawing drawing_;
  std::vector<std::uint8_t> is_drawn_;  // 1: it has a place; 2: and stands in the stack
  std::vector<std::uint8_t> is_pillar_;
  std::vector<Box> pillars_, coming_;  // pillars in order of birth
  Stack stack_;
};

}  // namespace

Drawing draw_blocks(const BlockLifetimes& blocks, EventIndex num_events) { return Artist(blocks, num_events).draw(); }

}  // namespace ullage
