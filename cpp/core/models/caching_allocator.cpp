#include "core/models/caching_allocator.hpp"

#include <algorithm>
#include <iterator>

namespace ullage {
namespace {

constexpr Address kFirstAddress = Address{1} << 62;
constexpr Address kReservation = Address{1} << 42;  // more than any GPU has

Address round_up(Address value, Bytes multiple) {
  const auto step = static_cast<Address>(multiple);
  return (value + step - 1) / step * step;
}

Address end_of(const LayoutSegment& segment) { return segment.address + static_cast<Address>(segment.size); }
Address end_of(const LayoutBlock& block) { return block.address + static_cast<Address>(block.size); }

}  // namespace

CachingAllocator::CachingAllocator(const CachingPolicy& policy)
    : policy_(policy), layout_(false), index_(layout_, policy_.settings), next_address_(kFirstAddress) {
  layout_.observe(&index_);
  index_.keep_ages(collects_garbage());
}

bool CachingAllocator::request(const ModelRequest& request) {
  const Bytes rounded = round_size(request.size, policy_.settings);
  std::int32_t block = find_free(request, rounded);
  if (block == kNone) {
    if (collects_garbage()) collect_garbage();
    block = grow(request, rounded);
    if (block == kNone && release_available(request, rounded)) block = grow(request, rounded);
    // While a graph is captured into a private pool, nothing is given back.
    if (block == kNone && request.pool == kNone) {
      release_cached();
      ++counters_.num_retries;
      block = grow(request, rounded);
    }
    if (block == kNone) return false;
  }
  const Bytes size = layout_.block(block).size;
  const bool splits = size > rounded && should_split(size, rounded, is_small_request(rounded), policy_.settings);
  layout_.allocate_front(block, splits ? rounded : size, request.size, request.id);
  const auto id = static_cast<std::size_t>(request.id);
  if (id >= block_of_.size()) block_of_.resize(std::max(id + 1, block_of_.size() * 2), kNone);
  block_of_[id] = block;
  counters_.allocated += charge(layout_.block(block));
  counters_.active += charge(layout_.block(block));
  return true;
}

void CachingAllocator::free_requested(std::int32_t id) {
  const std::int32_t block = block_of_[static_cast<std::size_t>(id)];
  counters_.allocated -= charge(layout_.block(block));
  layout_.set_pending(block);
  pending_.add(id);
}

void CachingAllocator::free_completed(std::int32_t id) {
  std::int32_t& block = block_of_[static_cast<std::size_t>(id)];
  pending_.remove(id);
  if (block == kNone) return;  // a retry waited for the GPU and completed it early
  if (layout_.block(block).state == BlockState::kActiveAllocated) counters_.allocated -= charge(layout_.block(block));
  counters_.active -= charge(layout_.block(block));
  layout_.release(block);
  block = kNone;
}

void CachingAllocator::empty_cache() { release_cached(); }

LayoutTable CachingAllocator::layout() const { return table_of(layout_); }

std::int32_t CachingAllocator::find_free(const ModelRequest& request, Bytes rounded) {
  if (collects_garbage() && !is_small_request(rounded) && request.pool == kNone) index_.grow_older();
  return index_.best_fit(request.pool, is_small_request(rounded), stream_of(request), rounded);
}

// alloc_block: a segment from the driver, or more of an expandable one.
std::int32_t CachingAllocator::grow(const ModelRequest& request, Bytes rounded) {
  const Bytes wanted = segment_size(rounded, policy_.settings);
  if (policy_.cap != kUnlimited && counters_.reserved + wanted > policy_.cap) return kNone;
  if (policy_.settings.expandable_segments) return grow_expandable(request, rounded);
  LayoutSegment segment;
  segment.size = wanted;
  segment.stream = stream_of(request);
  segment.pool = request.pool;
  segment.pool_size = is_small_request(rounded) ? PoolSize::kSmall : PoolSize::kLarge;
  segment.address = new_address(wanted);
  const std::int32_t row = layout_.add_segment(segment);
  counters_.reserved += wanted;
  ++counters_.num_device_alloc;
  return layout_.segment(row).first_block;
}

Address CachingAllocator::new_address(Bytes size) {
  if (num_segments_made_ < policy_.recorded_segments.size()) {
    const Address recorded = policy_.recorded_segments[num_segments_made_];
    const Address end = recorded + static_cast<Address>(size);
    const auto behind = layout_.segments().lower_bound(end);
    const bool is_taken =
        behind != layout_.segments().begin() && end_of(layout_.segment(std::prev(behind)->second)) > recorded;
    ++num_segments_made_;
    if (!is_taken) return recorded;
  }
  const Address room = round_up(static_cast<Address>(size), kRoundLarge);
  if (policy_.descending_addresses) return next_address_ -= room;
  next_address_ += room;
  return next_address_ - room;
}

std::int32_t CachingAllocator::grow_expandable(const ModelRequest& request, Bytes rounded) {
  LayoutSegment like;
  like.stream = stream_of(request);
  like.pool = request.pool;
  like.pool_size = is_small_request(rounded) ? PoolSize::kSmall : PoolSize::kLarge;
  like.is_expandable = true;
  for (const auto& [kind, base] : reservations_) {
    if (kind.stream == like.stream && kind.pool == like.pool && kind.pool_size == like.pool_size) {
      like.address = base;
      return place_expandable(like, rounded, granule_of(is_small_request(rounded)));
    }
  }
  next_address_ -= kReservation;
  like.address = next_address_;
  reservations_.emplace_back(like, next_address_);
  return place_expandable(like, rounded, granule_of(is_small_request(rounded)));
}

// The lowest unmapped space of the reservation (with the free block before it) that the request fits into.
std::int32_t CachingAllocator::place_expandable(const LayoutSegment& like, Bytes rounded, Bytes granule) {
  const Address reservation_end = like.address + kReservation;
  const auto& ranges = layout_.segments();
  Address gap = like.address;
  std::int32_t free_before = kNone;
  auto next = ranges.lower_bound(like.address);
  const auto step_over = [&] {
    const LayoutSegment& range = layout_.segment(next->second);
    gap = end_of(range);
    free_before = layout_.block(range.last_block).state == BlockState::kInactive ? range.last_block : kNone;
    ++next;
  };
  for (;; step_over()) {
    const bool is_last = next == ranges.end() || next->first >= reservation_end;
    const Address gap_end = is_last ? reservation_end : next->first;
    if (gap_end > gap) {
      Bytes room = static_cast<Bytes>(gap_end - gap) + (free_before == kNone ? 0 : layout_.block(free_before).size);
      // Behind the gap, free blocks and further gaps count on, up to the first live block.
      for (auto walk = next; room < rounded && walk != ranges.end() && walk->first < reservation_end; ++walk) {
        const LayoutSegment& range = layout_.segment(walk->second);
        const LayoutBlock& first = layout_.block(range.first_block);
        if (first.state != BlockState::kInactive) break;
        room += first.size;
        if (first.next != kNone) break;
        const auto after = std::next(walk);
        const Address until = after == ranges.end() || after->first >= reservation_end ? reservation_end : after->first;
        room += static_cast<Bytes>(until - end_of(range));
      }
      if (room >= rounded) break;
    }
    if (is_last) return kNone;
  }
  const Address start = free_before == kNone ? gap : layout_.block(free_before).address;
  for (;;) {
    const std::int32_t block = layout_.block_covering(start);
    const Bytes have = block == kNone ? 0 : static_cast<Bytes>(end_of(layout_.block(block)) - start);
    if (have >= rounded) return block;
    const Address begin = start + static_cast<Address>(have);
    const auto behind = ranges.lower_bound(begin);
    const Address limit = behind == ranges.end() || behind->first >= reservation_end ? reservation_end : behind->first;
    const auto missing = static_cast<Bytes>(round_up(static_cast<Address>(rounded - have), granule));
    if (!map(like, begin, std::min(missing, static_cast<Bytes>(limit - begin)))) return kNone;
  }
}

bool CachingAllocator::map(const LayoutSegment& like, Address begin, Bytes size) {
  if (policy_.cap != kUnlimited && counters_.reserved + size > policy_.cap) return false;
  LayoutSegment range = like;
  range.address = begin;
  range.size = size;
  std::int32_t absorbed = kNone;
  layout_.map_range(range, absorbed);
  counters_.reserved += size;
  ++counters_.num_device_alloc;
  return true;
}

bool CachingAllocator::is_whole_segment(std::int32_t block) const {
  return layout_.block(block).previous == kNone && layout_.block(block).next == kNone;
}

void CachingAllocator::release_segment(std::int32_t segment) {
  counters_.reserved -= layout_.segment(segment).size;
  ++counters_.num_device_free;
  layout_.remove_segment(segment);
}

// garbage_collect_cached_blocks: whole large segments that have been free for longer than the mean, until enough is
// back.
void CachingAllocator::collect_garbage() {
  const auto threshold = static_cast<Bytes>(policy_.garbage_collection * static_cast<double>(policy_.cap));
  if (counters_.reserved <= threshold) return;
  const Bytes target = counters_.reserved - threshold;
  std::vector<std::int32_t> blocks;
  double total_age = 0;
  for (const std::int32_t block : index_.in_order(false, false)) {
    if (!is_whole_segment(block) || layout_.segment(layout_.block(block).segment).is_expandable) continue;
    blocks.push_back(block);
    total_age += static_cast<double>(index_.age(block));
  }
  Bytes reclaimed = 0;
  for (bool freed = true; freed && reclaimed < target && !blocks.empty();) {
    freed = false;
    const double mean = total_age / static_cast<double>(blocks.size());
    std::vector<std::int32_t> kept;
    for (const std::int32_t block : blocks) {
      const auto age = static_cast<double>(index_.age(block));
      if (age < mean) {
        kept.push_back(block);
        continue;
      }
      freed = true;
      reclaimed += layout_.block(block).size;
      total_age -= age;
      release_segment(layout_.block(block).segment);
    }
    blocks = std::move(kept);
  }
}

// release_available_cached_blocks: with max_split_size, oversize blocks go first.
bool CachingAllocator::release_available(const ModelRequest& request, Bytes rounded) {
  const Bytes limit = policy_.settings.max_split_size;
  if (limit == kUnlimited) return false;
  const Bytes key = std::max(rounded, limit);
  std::vector<std::int32_t> oversize = index_.of_stream(request.pool, is_small_request(rounded), stream_of(request));
  const auto large_enough = std::find_if(oversize.begin(), oversize.end(),
                                         [&](std::int32_t block) { return layout_.block(block).size >= key; });
  if (large_enough != oversize.end()) {
    if (!is_whole_segment(*large_enough)) return false;
    release_segment(layout_.block(*large_enough).segment);
    return true;
  }
  Bytes released = 0;
  for (auto block = oversize.rbegin(); block != oversize.rend() && released < key; ++block) {
    if (layout_.block(*block).size < limit) break;
    if (!is_whole_segment(*block)) continue;
    released += layout_.block(*block).size;
    release_segment(layout_.block(*block).segment);
  }
  return released >= key;
}

// release_cached_blocks: waits for pending frees, then gives back all that is whole of the default pool: large
// segments, then small ones.
void CachingAllocator::release_cached() {
  for (const std::int32_t id : pending_.take()) free_completed(id);
  release_pool(false);
  release_pool(true);
}

void CachingAllocator::release_pool(bool small) {
  std::vector<std::int32_t> expandable;
  for (const std::int32_t block : index_.in_order(small, false)) {
    const std::int32_t segment = layout_.block(block).segment;
    if (layout_.segment(segment).is_expandable) {
      expandable.push_back(block);
    } else if (is_whole_segment(block)) {
      release_segment(segment);
    }
  }
  for (const std::int32_t block : expandable) unmap_granules(block);
}

void CachingAllocator::unmap_granules(std::int32_t block) {
  const LayoutBlock& free_block = layout_.block(block);
  const bool small = layout_.segment(free_block.segment).pool_size == PoolSize::kSmall;
  const auto granule = static_cast<Address>(granule_of(small));
  const Address origin = layout_.segment(free_block.segment).address;  // mapped ranges begin on a granule
  const Address begin = origin + round_up(free_block.address - origin, static_cast<Bytes>(granule));
  const Address end = origin + (end_of(free_block) - origin) / granule * granule;
  if (begin >= end) return;
  layout_.unmap_range(block, begin, end);
  counters_.reserved -= static_cast<Bytes>(end - begin);
  ++counters_.num_device_free;
}

std::vector<Address> recorded_segments(const Tables& tables, const DeviceTrace& trace) {
  std::vector<Address> addresses;
  for (std::int64_t i = trace.events_begin; i < trace.events_end; ++i) {
    const auto row = static_cast<std::size_t>(i);
    if (tables.events.action[row] == Action::kSegmentAlloc) addresses.push_back(tables.events.address[row]);
  }
  return addresses;
}

}  // namespace ullage
