#include "core/initial_state.hpp"

#include <algorithm>
#include <map>

namespace ullage {
namespace {

using Ranges = std::map<Address, LayoutSegment>;

Address end_of(const LayoutSegment& segment) { return segment.address + static_cast<Address>(segment.size); }

// The range that covers `address`, or ranges.end().
Ranges::iterator covering(Ranges& ranges, Address address) {
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return ranges.end();
  --next;
  return address < end_of(next->second) ? next : ranges.end();
}

bool overlaps(Ranges& ranges, const LayoutSegment& range) {
  const auto next = ranges.lower_bound(range.address);
  return (next != ranges.end() && next->first < end_of(range)) || covering(ranges, range.address) != ranges.end();
}

std::int32_t normal_pool(const Tables& tables, std::int32_t pool) {
  return pool != kNone && tables.pools[static_cast<std::size_t>(pool)].is_default() ? kNone : pool;
}

Ranges final_segments(const Tables& tables, std::int32_t device) {
  Ranges ranges;
  const SegmentTable& table = tables.segments;
  for (std::size_t row = 0; row < table.size_rows(); ++row) {
    if (table.device[row] != device || table.total_size[row] <= 0) continue;
    if (wraps(table.address[row], table.total_size[row])) continue;
    LayoutSegment segment;
    segment.address = table.address[row];
    segment.size = table.total_size[row];
    segment.stream = table.stream[row];
    segment.pool = normal_pool(tables, table.pool[row]);
    segment.pool_size = table.pool_size[row];
    segment.is_expandable = table.is_expandable[row] != 0;
    if (!overlaps(ranges, segment)) ranges.emplace(segment.address, segment);
  }
  return ranges;
}

// Takes [address, end) out of an expandable range; what is left on either side stays.
void cut_out(Ranges& ranges, Ranges::iterator range, Address begin, Address end) {
  const LayoutSegment whole = range->second;
  ranges.erase(range);
  if (begin > whole.address) {
    LayoutSegment front = whole;
    front.size = static_cast<Bytes>(begin - whole.address);
    ranges.emplace(front.address, front);
  }
  if (end < end_of(whole)) {
    LayoutSegment back = whole;
    back.address = end;
    back.size = static_cast<Bytes>(end_of(whole) - end);
    ranges.emplace(back.address, back);
  }
}

void put_back(Ranges& ranges, LayoutSegment range) {
  if (overlaps(ranges, range)) return;
  const auto joins = [&](const LayoutSegment& other) {
    return other.is_expandable && other.stream == range.stream && (range.pool == kNone || other.pool == range.pool) &&
           other.size < kSizeLimit - range.size;
  };
  if (range.is_expandable) {
    const auto after = ranges.find(end_of(range));
    if (after != ranges.end() && joins(after->second)) {
      LayoutSegment merged = after->second;
      merged.address = range.address;
      merged.size += range.size;
      ranges.erase(after);
      range = merged;
    }
    const auto before = range.address == 0 ? ranges.end() : covering(ranges, range.address - 1);
    if (before != ranges.end() && joins(before->second)) {
      before->second.size += range.size;
      return;
    }
  }
  ranges.emplace(range.address, range);
}

struct EventView {
  const EventTable& table;
  std::size_t first;

  Action action(std::size_t i) const { return table.action[first + i]; }
  Address address(std::size_t i) const { return table.address[first + i]; }
  Bytes size(std::size_t i) const { return table.size[first + i]; }
};

// Undoes the segment events from the last to the first.
void undo_segments(const Tables& tables, const EventView& events, std::size_t count, Ranges& ranges,
                   InitialState& out) {
  for (std::size_t i = count; i-- > 0;) {
    const Action action = events.action(i);
    if (action < Action::kSegmentAlloc || action > Action::kSegmentUnmap) continue;
    const std::size_t row = events.first + i;
    LayoutSegment segment;
    segment.address = events.address(i);
    segment.size = events.size(i);
    if (segment.size <= 0 || wraps(segment.address, segment.size)) continue;
    segment.stream = events.table.stream[row];
    segment.pool = normal_pool(tables, events.table.pool[row]);
    segment.is_expandable = action == Action::kSegmentMap || action == Action::kSegmentUnmap;
    if (!segment.is_expandable) {
      segment.pool_size = segment.size == kSmallBuffer ? PoolSize::kSmall : PoolSize::kLarge;
    }
    if (action == Action::kSegmentFree || action == Action::kSegmentUnmap) {
      put_back(ranges, segment);
      continue;
    }
    const auto found = covering(ranges, segment.address);
    if (found == ranges.end() || end_of(segment) > end_of(found->second)) continue;
    if (segment.is_expandable != found->second.is_expandable) continue;
    LayoutSegment made = segment;
    made.pool = found->second.pool;
    if (found->second.pool_size != PoolSize::kUnknown) made.pool_size = found->second.pool_size;
    out.made_by.emplace(static_cast<EventIndex>(i), made);
    if (segment.is_expandable) {
      cut_out(ranges, found, segment.address, end_of(segment));
    } else if (found->first == segment.address && found->second.size == segment.size) {
      ranges.erase(found);
    }
  }
}

// What the events say of an address: how it is first seen, and whether it is ever handed out.
enum AddressUse : std::int32_t { kFreedFirst, kAllocatedFirst, kFreedThenAllocated };

// Blocks freed without a recorded allocation were there before.
void add_freed_blocks(const EventView& events, std::size_t count, const AllocatorSettings& settings, AddressMap& uses,
                      std::vector<InitialBlock>& blocks) {
  for (std::size_t i = 0; i < count; ++i) {
    const Action action = events.action(i);
    const Address address = events.address(i);
    if (action == Action::kAlloc) {
      const std::int32_t use = uses.find(address);
      if (use == kNone) uses.insert_or_assign(address, kAllocatedFirst);
      if (use == kFreedFirst) uses.insert_or_assign(address, kFreedThenAllocated);
    } else if (action == Action::kFreeRequested || action == Action::kFreeCompleted || action == Action::kFree) {
      if (uses.find(address) != kNone) continue;
      uses.insert_or_assign(address, kFreedFirst);
      InitialBlock block;
      block.address = address;
      block.requested = events.size(i);
      block.size = round_size(block.requested, settings);
      block.is_pending = action == Action::kFreeCompleted;
      block.max_tail = kNone;  // still to be found
      blocks.push_back(block);
    }
  }
}

// Blocks that are live at the end and were never handed out in the recording were there before; their size is known.
// `blocks` comes in by address.
void add_lasting_blocks(const Tables& tables, std::int32_t device, const AddressMap& uses,
                        std::vector<InitialBlock>& blocks) {
  const SegmentTable& segments = tables.segments;
  const auto num_freed = static_cast<std::ptrdiff_t>(blocks.size());
  for (std::size_t row = 0; row < segments.size_rows(); ++row) {
    if (segments.device[row] != device) continue;
    for (std::int64_t i = segments.blocks_begin[row]; i < segments.blocks_end[row]; ++i) {
      const auto block_row = static_cast<std::size_t>(i);
      if (tables.blocks.state[block_row] == BlockState::kInactive || tables.blocks.size[block_row] <= 0) continue;
      const Address address = tables.blocks.address[block_row];
      const bool is_pending = tables.blocks.state[block_row] == BlockState::kActivePendingFree;
      if (uses.find(address) == kFreedFirst && is_pending) {  // freed in the recording, and still waiting at its end
        const auto found = std::lower_bound(blocks.begin(), blocks.begin() + num_freed, address,
                                            [](const InitialBlock& b, Address at) { return b.address < at; });
        found->size = tables.blocks.size[block_row];
        found->max_tail = 0;
      }
      if (uses.find(address) != kNone) continue;
      InitialBlock block;
      block.address = address;
      block.size = tables.blocks.size[block_row];
      block.requested = tables.blocks.requested_size[block_row];
      block.site = tables.blocks.site[block_row];
      block.is_pending = is_pending;
      blocks.push_back(block);
    }
  }
}

// A freed block's rounded size is known, its tail is not. In a large pool every free block is over 1 MiB (smaller rests
// are never split off, and merging only makes blocks larger), so a smaller gap behind a block belongs to it.
void settle_tail(InitialBlock& block, const LayoutSegment& segment, Address room_end,
                 const AllocatorSettings& settings) {
  const bool is_exact = segment.is_expandable || segment.pool_size == PoolSize::kSmall ||
                        (segment.pool_size == PoolSize::kUnknown && is_small(block.size));
  block.max_tail = 0;
  const auto room = static_cast<Bytes>(room_end - block.address);
  block.size = std::min(block.size, room);
  const Bytes gap = room - block.size;
  if (is_exact || gap == 0) return;
  if (gap <= kSmallSize || block.size >= settings.max_split_size) {
    block.size = room;
  } else {
    block.max_tail = std::min(kSmallSize, gap - kSmallSize - kMinBlockSize);
  }
}

}  // namespace

InitialState initial_state(const Tables& tables, const DeviceTrace& trace, const AllocatorSettings& settings) {
  InitialState state;
  const EventView events{tables.events, static_cast<std::size_t>(trace.events_begin)};
  const auto count = static_cast<std::size_t>(trace.events_end - trace.events_begin);
  Ranges ranges = final_segments(tables, trace.device);
  undo_segments(tables, events, count, ranges, state);
  for (const auto& [address, segment] : ranges) state.segments.push_back(segment);
  if (state.segments.empty()) return state;

  AddressMap uses;
  std::vector<InitialBlock> found;
  const auto by_address = [](const auto& a, const auto& b) { return a.address < b.address; };
  add_freed_blocks(events, count, settings, uses, found);
  std::sort(found.begin(), found.end(), by_address);
  add_lasting_blocks(tables, trace.device, uses, found);
  std::sort(found.begin(), found.end(), by_address);
  for (std::size_t i = 0; i < found.size(); ++i) {
    InitialBlock block = found[i];
    const auto home = covering(ranges, block.address);
    if (home == ranges.end()) continue;
    Address room_end = end_of(home->second);
    if (i + 1 < found.size() && found[i + 1].address < room_end) room_end = found[i + 1].address;
    if (room_end <= block.address) continue;
    if (block.max_tail == kNone) {
      settle_tail(block, home->second, room_end, settings);
    } else {
      block.size = std::min(block.size, static_cast<Bytes>(room_end - block.address));
    }
    state.blocks.push_back(block);
  }
  return state;
}

}  // namespace ullage
