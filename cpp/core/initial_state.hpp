// What was there before the first event, found by undoing the events from the final layout.
#pragma once

#include <unordered_map>
#include <vector>

#include "core/allocator_rules.hpp"
#include "core/layout.hpp"
#include "core/tables.hpp"

namespace ullage {

struct InitialBlock {
  Address address = 0;
  Bytes size = 0;
  Bytes requested = 0;
  SiteId site = kNone;
  bool is_pending = false;
  Bytes max_tail = 0;  // the size may be larger by up to this; 0: it is exact
};

struct InitialState {
  std::vector<LayoutSegment> segments;
  std::vector<InitialBlock> blocks;  // by address
  // What only the final layout knows of the segment that an event made: its pool.
  std::unordered_map<EventIndex, LayoutSegment> made_by;
};

InitialState initial_state(const Tables& tables, const DeviceTrace& trace, const AllocatorSettings& settings);

// True if [address, address + size) would run past the end of the address space.
inline bool wraps(Address address, Bytes size) { return address + static_cast<Address>(size) < address; }

}  // namespace ullage
