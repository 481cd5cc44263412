#include "core/rebuild.hpp"

#include <algorithm>

#include "core/rebuild_pass.hpp"
#include "core/verification.hpp"

namespace ullage {
namespace {

// The tails of initial blocks: passes run until one learns nothing new.
std::vector<Bytes> settle_tails(const Tables& tables, const DeviceTrace& trace, const AllocatorSettings& settings,
                                const InitialState& initial) {
  constexpr int kMaxPasses = 4;
  std::vector<Bytes> tails(initial.blocks.size(), kNone);
  const bool any_open =
      std::any_of(initial.blocks.begin(), initial.blocks.end(), [](const auto& b) { return b.max_tail > 0; });
  RebuildOptions quiet;
  quiet.counters = false;
  for (int round = 0; any_open && round < kMaxPasses; ++round) {
    Pass pass(tables, trace, settings, initial, tails, quiet);
    pass.begin();
    for (EventIndex i = 0; i < pass.count(); ++i) pass.step(i);
    if (!pass.learned()) break;
  }
  return tails;
}

}  // namespace

History rebuild(const Tables& tables, const DeviceTrace& trace, const RebuildOptions& options) {
  const AllocatorSettings settings = settings_of(tables);
  const InitialState initial = initial_state(tables, trace, settings);
  std::vector<Bytes> tails = settle_tails(tables, trace, settings, initial);
  Pass pass(tables, trace, settings, initial, tails, options);
  pass.begin();
  for (EventIndex i = 0; i < pass.count(); ++i) pass.step(i);
  pass.finish();
  History& history = pass.history();
  compare_with_file(tables, trace.device, pass.layout(), history.verification);
  history.has_recorded_end = sum_of_file(tables, trace.device, history.recorded_end);
  return std::move(history);
}

std::vector<LayoutTable> layouts_after(const Tables& tables, const DeviceTrace& trace,
                                       const std::vector<EventIndex>& events) {
  const AllocatorSettings settings = settings_of(tables);
  const InitialState initial = initial_state(tables, trace, settings);
  std::vector<Bytes> tails = settle_tails(tables, trace, settings, initial);
  RebuildOptions quiet;
  quiet.counters = false;
  Pass pass(tables, trace, settings, initial, tails, quiet);
  pass.begin();
  std::vector<LayoutTable> out;
  EventIndex next = 0;
  for (const EventIndex wanted : events) {
    for (; next <= wanted && next < pass.count(); ++next) pass.step(next);
    out.push_back(table_of(pass.layout()));
  }
  return out;
}

}  // namespace ullage
