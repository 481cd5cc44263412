// Writes one device's events and final layout straight into Tables.
#pragma once

#include <vector>

#include "core/rebuild.hpp"
#include "core/tables.hpp"

namespace ullage::test {

struct FinalBlock {
  Bytes size = 0;
  BlockState state = BlockState::kInactive;
  Bytes requested = 0;
};

struct FinalSegment {
  Address address = 0;
  Bytes size = 0;
  std::vector<FinalBlock> blocks;  // from the segment's start on; none: one free block
  PoolSize pool_size = PoolSize::kLarge;
  bool is_expandable = false;
  std::int64_t stream = 0;
  std::int32_t pool = kNone;
};

class TraceBuilder {
 public:
  TraceBuilder& add(Action action, Address address, Bytes size, std::int64_t stream = 0, std::int32_t pool = kNone) {
    EventTable& events = tables.events;
    events.action.push_back(action);
    events.address.push_back(address);
    events.size.push_back(size);
    events.stream.push_back(stream);
    events.time.push_back(static_cast<TimeUs>(events.time.size()));
    events.site.push_back(kNone);
    events.pool.push_back(pool);
    return *this;
  }
  TraceBuilder& segment_alloc(Address address, Bytes size) { return add(Action::kSegmentAlloc, address, size); }
  TraceBuilder& segment_free(Address address, Bytes size) { return add(Action::kSegmentFree, address, size); }
  TraceBuilder& map(Address address, Bytes size) { return add(Action::kSegmentMap, address, size); }
  TraceBuilder& unmap(Address address, Bytes size) { return add(Action::kSegmentUnmap, address, size); }
  TraceBuilder& alloc(Address address, Bytes size) { return add(Action::kAlloc, address, size); }
  TraceBuilder& request_free(Address address, Bytes size) { return add(Action::kFreeRequested, address, size); }
  TraceBuilder& complete_free(Address address, Bytes size) { return add(Action::kFreeCompleted, address, size); }
  TraceBuilder& free(Address address, Bytes size) { return request_free(address, size).complete_free(address, size); }

  TraceBuilder& set(const std::string& key, SettingValue value) {
    tables.settings.emplace_back(key, std::move(value));
    return *this;
  }

  TraceBuilder& end_with(const FinalSegment& final_segment) {
    tables.has_segments = true;
    SegmentTable& segments = tables.segments;
    BlockTable& blocks = tables.blocks;
    segments.blocks_begin.push_back(static_cast<std::int64_t>(blocks.size_rows()));
    Bytes sums[3] = {0, 0, 0};
    Address next = final_segment.address;
    const std::vector<FinalBlock> whole = {{final_segment.size, BlockState::kInactive, 0}};
    for (const FinalBlock& block : final_segment.blocks.empty() ? whole : final_segment.blocks) {
      blocks.address.push_back(next);
      blocks.size.push_back(block.size);
      blocks.requested_size.push_back(block.requested);
      blocks.state.push_back(block.state);
      blocks.site.push_back(kNone);
      next += static_cast<Address>(block.size);
      if (block.state == BlockState::kActiveAllocated) sums[0] += block.size;
      if (block.state != BlockState::kInactive) sums[1] += block.size, sums[2] += block.requested;
    }
    segments.blocks_end.push_back(static_cast<std::int64_t>(blocks.size_rows()));
    segments.device.push_back(0);
    segments.address.push_back(final_segment.address);
    segments.total_size.push_back(final_segment.size);
    segments.allocated_size.push_back(sums[0]);
    segments.active_size.push_back(sums[1]);
    segments.requested_size.push_back(sums[2]);
    segments.stream.push_back(final_segment.stream);
    segments.pool_size.push_back(final_segment.pool_size);
    segments.pool.push_back(final_segment.pool);
    segments.is_expandable.push_back(final_segment.is_expandable);
    segments.site.push_back(kNone);
    return *this;
  }

  DeviceTrace trace() const { return {0, 0, static_cast<std::int64_t>(tables.events.size_rows())}; }
  History rebuild() const { return ullage::rebuild(tables, trace(), {.verify = true, .counters = true}); }
  LayoutTable layout_after(EventIndex event) const { return layouts_after(tables, trace(), {event}).at(0); }
  LayoutTable last_layout() const { return layout_after(static_cast<EventIndex>(tables.events.size_rows()) - 1); }

  Tables tables;
};

}  // namespace ullage::test
