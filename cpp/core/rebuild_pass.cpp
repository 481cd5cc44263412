#include "core/rebuild_pass.hpp"

#include <algorithm>
#include <span>

#include "core/error.hpp"

namespace ullage {
namespace {
constexpr Bytes kCounterLimit = Bytes{1} << 62;
}

void Pass::add(Counter which, Bytes size) {
  counter(which) += size;
  if (counter(which) > kCounterLimit) throw TraceError(0, "sizes that add up to less than 2**62 bytes", "more");
}

void Pass::record_counters(EventIndex i) {
  if (options_.counters) {
    for (std::size_t which = 0; which < now_.size(); ++which) history_.after[which].push_back(now_[which]);
  }
  for (std::size_t which = 0; which < now_.size(); ++which) {
    if (now_[which] > history_.peak[which]) [[unlikely]] {
      history_.peak[which] = now_[which];
      history_.peak_event[which] = i;
      if (which == static_cast<std::size_t>(Counter::kReserved)) fullest_active_ = -1;
    }
  }
  // Reserved stays at its peak for a while; what counts is how full it got.
  if (counter(Counter::kReserved) == history_.peak.back() && counter(Counter::kActive) > fullest_active_) {
    fullest_active_ = counter(Counter::kActive);
    history_.fullest_event = i;
  }
}

std::int32_t Pass::add_segment_lifetime(EventIndex birth, const LayoutSegment& segment, SiteId site) {
  SegmentLifetimes& table = history_.segments;
  table.birth.push_back(birth);
  table.death.push_back(kNone);
  table.address.push_back(segment.address);
  table.size.push_back(segment.size);
  table.stream.push_back(segment.stream);
  table.pool.push_back(segment.pool);
  table.pool_size.push_back(segment.pool_size);
  table.is_expandable.push_back(segment.is_expandable);
  table.site.push_back(site);
  return static_cast<std::int32_t>(table.size_rows() - 1);
}

std::int32_t Pass::add_lifetime(EventIndex birth, const LayoutBlock& block, Bytes requested, SiteId site) {
  BlockLifetimes& table = history_.blocks;
  table.birth.push_back(birth);
  table.free_requested.push_back(kNone);
  table.death.push_back(kNone);
  table.address.push_back(block.address);
  table.size.push_back(block.size);
  table.requested_size.push_back(requested);
  table.site.push_back(site);
  table.segment.push_back(layout_.segment(block.segment).lifetime);
  table.is_open.push_back(0);
  return static_cast<std::int32_t>(table.size_rows() - 1);
}

// Whether a block still waits for a stream at the end: frees do wait here, then.
bool Pass::ends_pending() const {
  const SegmentTable& segments = tables_.segments;
  for (std::size_t segment = 0; segment < segments.size_rows(); ++segment) {
    if (segments.device[segment] != device_) continue;
    const auto begin = tables_.blocks.state.begin() + segments.blocks_begin[segment];
    const auto end = tables_.blocks.state.begin() + segments.blocks_end[segment];
    if (std::find(begin, end, BlockState::kActivePendingFree) != end) return true;
  }
  return false;
}

void Pass::begin() {
  const std::span actions(events_.action.data() + first_, static_cast<std::size_t>(count_));
  const auto count_of = [&](Action action) { return std::count(actions.begin(), actions.end(), action); };
  completes_at_request_ =
      count_of(Action::kFreeRequested) > 0 && count_of(Action::kFreeCompleted) == 0 && !ends_pending();
  history_.blocks.reserve(initial_.blocks.size() + static_cast<std::size_t>(count_of(Action::kAlloc)));

  for (LayoutSegment segment : initial_.segments) {
    segment.lifetime = add_segment_lifetime(kNone, segment, kNone);
    layout_.add_segment(segment);
    add(Counter::kReserved, segment.size);
  }
  std::int32_t behind = kNone;  // the free block behind the last one placed; they come by address
  for (std::size_t i = 0; i < initial_.blocks.size(); ++i) {
    const InitialBlock& initial = initial_.blocks[i];
    const Bytes size = initial.size + std::max<Bytes>(tails_[i], 0);
    std::int32_t block = behind;
    if (block == kNone ||
        initial.address - layout_.block(block).address >= static_cast<Address>(layout_.block(block).size)) {
      block = layout_.block_covering(initial.address);
    }
    if (block != kNone && layout_.block(block).address < initial.address) {
      block = layout_.split(block, static_cast<Bytes>(initial.address - layout_.block(block).address));
    }
    if (block != kNone && size < layout_.block(block).size) layout_.split(block, size);
    const std::int32_t lifetime = add_lifetime(kNone, layout_.block(block), initial.requested, initial.site);
    history_.blocks.is_open.back() = initial.max_tail > 0 && tails_[i] == kNone;
    layout_.allocate(block, initial.requested, lifetime);
    add(Counter::kRequested, initial.requested);
    add(Counter::kActive, layout_.block(block).size);
    behind = layout_.block(block).next;
    if (initial.is_pending) {
      layout_.set_pending(block);
      history_.blocks.free_requested.back() = kBefore;
    } else {
      add(Counter::kAllocated, layout_.block(block).size);
    }
  }
  history_.num_initial_blocks = static_cast<std::int64_t>(initial_.blocks.size());
  history_.before = now_;
  history_.peak = now_;
  fullest_active_ = counter(Counter::kActive);
  if (options_.counters) {
    for (auto& column : history_.after) column.reserve(static_cast<std::size_t>(count_));
  }
}

void Pass::step(EventIndex i) {
  if (options_.verify) search_check_.look_ahead(i);
  switch (events_.action[row(i)]) {
    case Action::kAlloc: on_alloc(i); break;
    case Action::kFreeRequested:
      on_free_requested(i);
      if (completes_at_request_) on_free_completed(i);
      break;
    case Action::kFree:
      on_free_requested(i);
      on_free_completed(i);
      break;
    case Action::kFreeCompleted: on_free_completed(i); break;
    case Action::kSegmentAlloc: on_segment_alloc(i); break;
    case Action::kSegmentFree: on_segment_free(i); break;
    case Action::kSegmentMap: on_map(i); break;
    case Action::kSegmentUnmap: on_unmap(i); break;
    case Action::kOom: ++history_.num_ooms; break;
    default: break;
  }
  record_counters(i);
}

void Pass::on_alloc(EventIndex i) {
  const Address address = events_.address[row(i)];
  const Bytes requested = events_.size[row(i)];
  const Bytes rounded = round_size(requested, settings_);
  if (wraps(address, rounded)) return note_conflict(i);
  if (options_.verify) {
    ++history_.verification.allocs;
    if (search_check_.alloc_matches(i, address, rounded)) {
      ++history_.verification.address_matches;
    } else if (history_.verification.first_mismatch == kNone) {
      history_.verification.first_mismatch = i;
    }
  }
  std::int32_t block = layout_.block_at(address);
  if (block == kNone || layout_.block(block).state != BlockState::kInactive || layout_.block(block).size < rounded) {
    block = place(i, address, rounded);
  }
  const std::int32_t before = layout_.block(block).previous;
  if (before != kNone && is_open(before)) learn_tail(before, 0);

  const std::int32_t home = layout_.block(block).segment;
  const LayoutSegment& segment = layout_.segment(home);
  if (segment.is_expandable && segment.pool_size == PoolSize::kUnknown) {  // a range that is unmapped by the end
    layout_.set_pool_size(home, is_small(rounded) ? PoolSize::kSmall : PoolSize::kLarge);
    history_.segments.pool_size[static_cast<std::size_t>(segment.lifetime)] = segment.pool_size;
  }
  const bool small_pool =
      segment.pool_size == PoolSize::kUnknown ? is_small(rounded) : segment.pool_size == PoolSize::kSmall;
  const Bytes size = layout_.block(block).size;
  const bool splits = size > rounded && should_split(size, rounded, small_pool, settings_);
  const auto lifetime = static_cast<std::int32_t>(history_.blocks.size_rows());
  layout_.allocate_front(block, splits ? rounded : size, requested, lifetime);
  add_lifetime(i, layout_.block(block), requested, events_.site[row(i)]);
  add(Counter::kRequested, requested);
  add(Counter::kAllocated, layout_.block(block).size);
  add(Counter::kActive, layout_.block(block).size);
}

bool Pass::is_open(std::int32_t block) const {
  const std::int32_t lifetime = layout_.block(block).lifetime;
  return lifetime != kNone && lifetime < history_.num_initial_blocks &&
         history_.blocks.is_open[static_cast<std::size_t>(lifetime)] != 0;
}

// The first request served from the gap behind a block starts where the block ends.
void Pass::learn_tail(std::int32_t block, Bytes tail) {
  const auto lifetime = static_cast<std::size_t>(layout_.block(block).lifetime);
  tails_[lifetime] = tail;
  history_.blocks.is_open[lifetime] = 0;
  if (tail == 0) return;
  learned_ = true;
  layout_.extend(block, tail);
  history_.blocks.size[lifetime] += tail;
  add(Counter::kActive, tail);
  if (layout_.block(block).state == BlockState::kActiveAllocated) add(Counter::kAllocated, tail);
}

// Makes a free block of at least `rounded` bytes, if it can, start at `address` where the rebuilt state has none.
std::int32_t Pass::place(EventIndex i, Address address, Bytes rounded) {
  std::int32_t block = layout_.block_covering(address);
  if (block == kNone) {
    note_conflict(i);
    LayoutSegment implied;
    implied.address = address;
    implied.size = rounded;
    const auto next = layout_.segments().upper_bound(address);
    if (next != layout_.segments().end()) {
      implied.size = static_cast<Bytes>(std::min(static_cast<Address>(rounded), next->first - address));
    }
    implied.stream = events_.stream[row(i)];
    implied.pool_size = is_small(rounded) ? PoolSize::kSmall : PoolSize::kLarge;
    implied.lifetime = add_segment_lifetime(i, implied, events_.site[row(i)]);
    add(Counter::kReserved, implied.size);
    return layout_.segment(layout_.add_segment(implied)).first_block;
  }
  const auto inside = static_cast<Bytes>(address - layout_.block(block).address);
  if (layout_.block(block).state != BlockState::kInactive) {
    note_conflict(i);
    force_free(i, block);
    block = layout_.block_covering(address);
  } else if (inside > 0) {
    const std::int32_t before = layout_.block(block).previous;
    const bool explains = before != kNone && is_open(before) &&
                          inside <= initial_.blocks[static_cast<std::size_t>(layout_.block(before).lifetime)].max_tail;
    if (explains) {
      learn_tail(before, inside);
    } else {
      note_conflict(i);
    }
  } else {
    note_conflict(i);
  }
  if (layout_.block(block).address < address) {
    block = layout_.split(block, static_cast<Bytes>(address - layout_.block(block).address));
  }
  while (layout_.block(block).size < rounded && layout_.block(block).next != kNone) {
    // The free block must end at a live one that the recording has not freed: the live one goes.
    const std::int32_t next = layout_.block(block).next;
    if (layout_.block(next).state == BlockState::kInactive) break;
    const Address start = layout_.block(block).address;
    force_free(i, next);
    block = layout_.block_at(start);
    if (block == kNone) {
      block = layout_.block_covering(start);
      block = layout_.split(block, static_cast<Bytes>(start - layout_.block(block).address));
    }
  }
  return block;
}

void Pass::force_free(EventIndex i, std::int32_t block) {
  const LayoutBlock gone = layout_.block(block);
  const auto lifetime = static_cast<std::size_t>(gone.lifetime);
  counter(Counter::kActive) -= gone.size;
  counter(Counter::kRequested) -= gone.requested;
  if (gone.state == BlockState::kActiveAllocated) counter(Counter::kAllocated) -= gone.size;
  if (history_.blocks.free_requested[lifetime] == kNone) history_.blocks.free_requested[lifetime] = i;
  history_.blocks.death[lifetime] = i;
  layout_.release(block);
}

void Pass::on_free_requested(EventIndex i) {
  const std::int32_t block = layout_.block_at(events_.address[row(i)]);
  if (block == kNone || layout_.block(block).state != BlockState::kActiveAllocated) return note_conflict(i);
  counter(Counter::kAllocated) -= layout_.block(block).size;
  history_.blocks.free_requested[static_cast<std::size_t>(layout_.block(block).lifetime)] = i;
  layout_.set_pending(block);
}

void Pass::on_free_completed(EventIndex i) {
  const std::int32_t block = layout_.block_at(events_.address[row(i)]);
  if (block == kNone || layout_.block(block).state == BlockState::kInactive) return note_conflict(i);
  force_free(i, block);
}

LayoutSegment Pass::segment_of(EventIndex i) const {
  LayoutSegment segment;
  const auto known = initial_.made_by.find(i);
  if (known != initial_.made_by.end()) return known->second;
  segment.address = events_.address[row(i)];
  segment.size = events_.size[row(i)];
  segment.stream = events_.stream[row(i)];
  segment.is_expandable = events_.action[row(i)] == Action::kSegmentMap;
  const std::int32_t pool = events_.pool[row(i)];
  if (pool != kNone && !tables_.pools[static_cast<std::size_t>(pool)].is_default()) segment.pool = pool;
  segment.pool_size = segment.size == kSmallBuffer ? PoolSize::kSmall : PoolSize::kLarge;
  return segment;
}

// A segment that lies where another still is: the older one must have gone.
void Pass::make_room_for_segment(EventIndex i, const LayoutSegment& segment) {
  for (;;) {
    const Address end = segment.address + static_cast<Address>(segment.size);
    const auto next = layout_.segments().lower_bound(end);
    if (next == layout_.segments().begin()) return;
    const std::int32_t last = std::prev(next)->second;
    if (layout_.segment(last).address + static_cast<Address>(layout_.segment(last).size) <= segment.address) return;
    note_conflict(i);
    end_segment(i, last);
  }
}

void Pass::end_segment(EventIndex i, std::int32_t segment) {
  for (std::int32_t walk = layout_.segment(segment).first_block; walk != kNone;) {
    if (layout_.block(walk).state != BlockState::kInactive) {
      note_conflict(i);
      force_free(i, walk);
      walk = layout_.segment(segment).first_block;
      layout_.spend(1);
    } else {
      walk = layout_.block(walk).next;
    }
  }
  counter(Counter::kReserved) -= layout_.segment(segment).size;
  history_.segments.death[static_cast<std::size_t>(layout_.segment(segment).lifetime)] = i;
  layout_.remove_segment(segment);
}

void Pass::on_segment_alloc(EventIndex i) {
  LayoutSegment segment = segment_of(i);
  if (segment.size <= 0 || wraps(segment.address, segment.size)) return note_conflict(i);
  make_room_for_segment(i, segment);
  if (options_.verify) search_check_.predict_new_segment(i, segment.pool);
  segment.lifetime = add_segment_lifetime(i, segment, events_.site[row(i)]);
  layout_.add_segment(segment);
  add(Counter::kReserved, segment.size);
  ++history_.num_device_alloc;
}

void Pass::on_segment_free(EventIndex i) {
  const auto found = layout_.segments().find(events_.address[row(i)]);
  if (found == layout_.segments().end()) return note_conflict(i);
  end_segment(i, found->second);
  ++history_.num_device_free;
}

void Pass::on_map(EventIndex i) {
  LayoutSegment range = segment_of(i);
  if (range.size <= 0 || wraps(range.address, range.size)) return note_conflict(i);
  make_room_for_segment(i, range);
  if (options_.verify) search_check_.predict_new_segment(i, range.pool);
  std::int32_t absorbed = kNone;
  const std::int32_t home = layout_.map_range(range, absorbed);
  add(Counter::kReserved, range.size);
  ++history_.num_device_alloc;
  LayoutSegment& grown = layout_.segment(home);
  if (grown.lifetime == kNone) grown.lifetime = add_segment_lifetime(i, grown, events_.site[row(i)]);
  const auto lifetime = static_cast<std::size_t>(grown.lifetime);
  history_.segments.address[lifetime] = std::min(history_.segments.address[lifetime], grown.address);
  history_.segments.size[lifetime] = std::max(history_.segments.size[lifetime], grown.size);
  if (absorbed != kNone) history_.segments.death[static_cast<std::size_t>(layout_.segment(absorbed).lifetime)] = i;
}

void Pass::on_unmap(EventIndex i) {
  const Address begin = events_.address[row(i)];
  const Bytes size = events_.size[row(i)];
  if (size <= 0 || wraps(begin, size)) return note_conflict(i);
  const Address end = begin + static_cast<Address>(size);
  const std::int32_t block = layout_.block_covering(begin);
  if (block == kNone) return note_conflict(i);
  const LayoutBlock& free_block = layout_.block(block);
  const Address block_end = free_block.address + static_cast<Address>(free_block.size);
  if (free_block.state != BlockState::kInactive || end > block_end) return note_conflict(i);
  const std::int32_t home = free_block.segment;
  const auto lifetime = static_cast<std::size_t>(layout_.segment(home).lifetime);
  const bool is_all = layout_.segment(home).size == size;
  layout_.unmap_range(block, begin, end);
  if (is_all) {
    history_.segments.death[lifetime] = i;
  } else if (const std::int32_t rest = layout_.segment_covering(end); rest != kNone && rest != home) {
    LayoutSegment& split_off = layout_.segment(rest);
    if (split_off.address == end && split_off.lifetime == static_cast<std::int32_t>(lifetime)) {
      split_off.lifetime = add_segment_lifetime(i, split_off, kNone);
      layout_.spend(0);
    }
  }
  counter(Counter::kReserved) -= size;
  ++history_.num_device_free;
}

void Pass::finish() {
  history_.end = now_;
  history_.starts_inside_free = count_ > 0 && events_.action[first_] == Action::kFreeCompleted;
  if (count_ == 0) return;
  history_.kind = initial_.segments.empty() ? HistoryKind::kComplete : HistoryKind::kPartial;
  for (std::size_t i = 0; i < initial_.blocks.size(); ++i) {
    if (history_.blocks.is_open[i] == 0) continue;
    ++history_.num_undetermined;
    history_.undetermined_bytes += initial_.blocks[i].max_tail;
  }
}

}  // namespace ullage
