// Reconstruction: runs the allocator's rules along one device's recorded events.
#pragma once

#include <vector>

#include "core/history.hpp"
#include "core/layout_table.hpp"
#include "core/tables.hpp"

namespace ullage {

struct RebuildOptions {
  bool verify = false;   // also search the best fit for each request and compare it with the recorded address
  bool counters = true;  // keep the counters after each event
};

// The history of one device. Cost: linear in its events; with `verify` an ordered search for each request.
History rebuild(const Tables& tables, const DeviceTrace& trace, const RebuildOptions& options);

// The layouts after the given events (ascending; kNone: before the first). Cost: one pass for all of them.
std::vector<LayoutTable> layouts_after(const Tables& tables, const DeviceTrace& trace,
                                       const std::vector<EventIndex>& events);

}  // namespace ullage
