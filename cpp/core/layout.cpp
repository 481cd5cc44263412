#include "core/layout.hpp"

#include <cassert>

#include "core/error.hpp"

namespace ullage {

std::int32_t Layout::new_block() {
  if (!unused_blocks_.empty()) {
    const std::int32_t row = unused_blocks_.back();
    unused_blocks_.pop_back();
    at(row) = LayoutBlock{};
    return row;
  }
  blocks_.emplace_back();
  return static_cast<std::int32_t>(blocks_.size() - 1);
}

void Layout::drop_block(std::int32_t row) {
  forget_start(at(row).address);
  unused_blocks_.push_back(row);
}

std::int32_t Layout::segment_covering(Address address) const {
  auto next = by_address_.upper_bound(address);
  if (next == by_address_.begin()) return kNone;
  const std::int32_t row = std::prev(next)->second;
  const LayoutSegment& found = segment(row);
  return address - found.address < static_cast<Address>(found.size) ? row : kNone;
}

std::int32_t Layout::block_covering(Address address) const {
  const std::int32_t row = segment_covering(address);
  if (row == kNone) return kNone;
  std::int32_t found = segment(row).first_block;
  while (block(found).next != kNone && block(block(found).next).address <= address) {
    found = block(found).next;
    spend(1);
  }
  return found;
}

std::int32_t Layout::add_segment(const LayoutSegment& segment_seed) {
  std::int32_t row = kNone;
  if (unused_segments_.empty()) {
    segments_.push_back(segment_seed);
    row = static_cast<std::int32_t>(segments_.size() - 1);
  } else {
    row = unused_segments_.back();
    unused_segments_.pop_back();
    segment(row) = segment_seed;
  }
  const std::int32_t whole = new_block();
  at(whole).address = segment_seed.address;
  at(whole).size = segment_seed.size;
  at(whole).segment = row;
  segment(row).first_block = whole;
  segment(row).last_block = whole;
  by_address_[segment_seed.address] = row;
  note_start(segment_seed.address, whole);
  note_free(whole);
  return row;
}

void Layout::remove_segment(std::int32_t row) {
  for (std::int32_t walk = segment(row).first_block; walk != kNone;) {
    const std::int32_t next = block(walk).next;
    if (block(walk).state == BlockState::kInactive) note_taken(walk);
    drop_block(walk);
    walk = next;
  }
  by_address_.erase(segment(row).address);
  unused_segments_.push_back(row);
}

void Layout::spend(std::int64_t steps) const {
  work_ += steps;
  if (work_ > kWorkLimit) {
    throw TraceError(0, "a history that agrees with itself", "events that contradict each other over and over");
  }
}

void Layout::relabel(std::int32_t first, std::int32_t segment_row) {
  for (std::int32_t walk = first; walk != kNone; walk = block(walk).next) {
    const bool is_free = block(walk).state == BlockState::kInactive;
    if (is_free) note_taken(walk);  // observers file free blocks under what their segment is
    at(walk).segment = segment_row;
    if (is_free) note_free(walk);
    spend(1);
  }
}

// The expandable segment of the same stream and pool that ends (or starts) at `address`.
std::int32_t Layout::touching(Address address, const LayoutSegment& like, bool ends_there) const {
  std::int32_t row = kNone;
  if (ends_there) {
    row = address == 0 ? kNone : segment_covering(address - 1);
  } else if (const auto found = by_address_.find(address); found != by_address_.end()) {
    row = found->second;
  }
  if (row == kNone) return kNone;
  const LayoutSegment& other = segment(row);
  const bool same = other.is_expandable && other.stream == like.stream && other.pool == like.pool &&
                    (other.pool_size == like.pool_size || other.pool_size == PoolSize::kUnknown ||
                     like.pool_size == PoolSize::kUnknown);
  return same ? row : kNone;
}

std::int32_t Layout::map_range(const LayoutSegment& range, std::int32_t& absorbed) {
  absorbed = kNone;
  const Address end = range.address + static_cast<Address>(range.size);
  const std::int32_t before = touching(range.address, range, true);
  const std::int32_t after = touching(end, range, false);
  if (before == kNone && after == kNone) return add_segment(range);

  const std::int32_t middle = new_block();
  at(middle).address = range.address;
  at(middle).size = range.size;
  note_start(range.address, middle);
  const std::int32_t home = before != kNone ? before : after;
  at(middle).segment = home;
  if (before != kNone) {
    const std::int32_t last = segment(before).last_block;
    at(last).next = middle;
    at(middle).previous = last;
    segment(before).last_block = middle;
    segment(before).size += range.size;
  }
  if (after != kNone) {
    const std::int32_t first = segment(after).first_block;
    at(middle).next = first;
    at(first).previous = middle;
    by_address_.erase(segment(after).address);
    if (before != kNone) {
      relabel(first, before);
      segment(before).last_block = segment(after).last_block;
      segment(before).size += segment(after).size;
      unused_segments_.push_back(after);
      absorbed = after;
    } else {
      segment(after).address = range.address;
      segment(after).size += range.size;
      segment(after).first_block = middle;
      by_address_[range.address] = after;
    }
  }
  release(middle);
  return home;
}

void Layout::set_pool_size(std::int32_t row, PoolSize pool_size) {
  const auto each_free = [&](const auto& tell) {
    for (std::int32_t walk = segment(row).first_block; walk != kNone; walk = block(walk).next) {
      if (block(walk).state == BlockState::kInactive) tell(walk);
      spend(1);
    }
  };
  each_free([&](std::int32_t free_block) { note_taken(free_block); });
  segment(row).pool_size = pool_size;
  segment(row).free_list = kNone;
  each_free([&](std::int32_t free_block) { note_free(free_block); });
}

void Layout::unmap_range(std::int32_t row, Address begin, Address end) {
  assert(block(row).state == BlockState::kInactive);
  const Address block_end = block(row).address + static_cast<Address>(block(row).size);
  assert(begin >= block(row).address && end <= block_end && begin < end);
  std::int32_t gone = row;
  if (begin > block(row).address) gone = split(row, static_cast<Bytes>(begin - block(row).address));
  if (end < block_end) split(gone, static_cast<Bytes>(end - begin));
  const LayoutBlock cut = block(gone);
  const std::int32_t home = cut.segment;
  note_taken(gone);
  drop_block(gone);
  const Bytes total = segment(home).size;
  const Address home_address = segment(home).address;
  if (cut.next != kNone) {  // what lies behind becomes a segment of its own
    LayoutSegment rest = segment(home);
    rest.address = end;
    rest.size = static_cast<Bytes>(home_address + static_cast<Address>(total) - end);
    rest.first_block = cut.next;
    at(cut.next).previous = kNone;
    if (cut.previous == kNone) {  // nothing lies before: the segment itself moves
      by_address_.erase(home_address);
      segment(home) = rest;
      by_address_[end] = home;
      return;
    }
    segments_.push_back(rest);
    const auto rest_row = static_cast<std::int32_t>(segments_.size() - 1);
    by_address_[end] = rest_row;
    relabel(cut.next, rest_row);
  } else if (cut.previous == kNone) {
    by_address_.erase(home_address);
    unused_segments_.push_back(home);
    segment(home).first_block = kNone;
    segment(home).size = 0;
    return;
  }
  at(cut.previous).next = kNone;
  segment(home).last_block = cut.previous;
  segment(home).size = static_cast<Bytes>(begin - home_address);
}

// Cuts a block in two and tells nobody.
std::int32_t Layout::cut(std::int32_t row, Bytes size) {
  assert(size > 0 && size < block(row).size);
  const std::int32_t rest = new_block();
  LayoutBlock& first = at(row);
  LayoutBlock& second = at(rest);
  second = first;
  second.address = first.address + static_cast<Address>(size);
  second.size = first.size - size;
  second.previous = row;
  first.size = size;
  first.next = rest;
  if (second.next != kNone) {
    at(second.next).previous = rest;
  } else {
    segment(second.segment).last_block = rest;
  }
  note_start(second.address, rest);
  return rest;
}

std::int32_t Layout::split(std::int32_t row, Bytes size) {
  const bool is_free = block(row).state == BlockState::kInactive;
  if (is_free) note_taken(row);
  const std::int32_t rest = cut(row, size);
  if (is_free) {
    note_free(row);
    note_free(rest);
  }
  return rest;
}

void Layout::allocate_front(std::int32_t row, Bytes size, Bytes requested, std::int32_t lifetime) {
  note_taken(row);
  if (size < block(row).size) note_free(cut(row, size));
  LayoutBlock& taken = at(row);
  taken.state = BlockState::kActiveAllocated;
  taken.requested = requested;
  taken.lifetime = lifetime;
}

void Layout::allocate(std::int32_t row, Bytes requested, std::int32_t lifetime) {
  note_taken(row);
  LayoutBlock& taken = at(row);
  taken.state = BlockState::kActiveAllocated;
  taken.requested = requested;
  taken.lifetime = lifetime;
}

void Layout::merge_with_next(std::int32_t row) {
  const std::int32_t gone = block(row).next;
  LayoutBlock& kept = at(row);
  kept.size += block(gone).size;
  kept.next = block(gone).next;
  if (kept.next != kNone) {
    at(kept.next).previous = row;
  } else {
    segment(kept.segment).last_block = row;
  }
  drop_block(gone);
}

std::int32_t Layout::release(std::int32_t row) {
  LayoutBlock& freed = at(row);
  freed.state = BlockState::kInactive;
  freed.lifetime = kNone;
  freed.requested = 0;
  if (freed.next != kNone && block(freed.next).state == BlockState::kInactive) {
    note_taken(freed.next);
    merge_with_next(row);
  }
  std::int32_t merged = row;
  if (block(row).previous != kNone && block(block(row).previous).state == BlockState::kInactive) {
    merged = block(row).previous;
    note_taken(merged);
    merge_with_next(merged);
  }
  note_free(merged);
  return merged;
}

void Layout::extend(std::int32_t row, Bytes bytes) {
  const std::int32_t behind = block(row).next;
  assert(behind != kNone && block(behind).state == BlockState::kInactive && block(behind).size > bytes);
  note_taken(behind);
  forget_start(block(behind).address);
  at(row).size += bytes;
  at(behind).address += static_cast<Address>(bytes);
  at(behind).size -= bytes;
  note_start(block(behind).address, behind);
  note_free(behind);
}

}  // namespace ullage
