// One pass of reconstruction over a device's events.
#pragma once

#include <vector>

#include "core/history.hpp"
#include "core/initial_state.hpp"
#include "core/rebuild.hpp"
#include "core/search_check.hpp"

namespace ullage {

// The sizes of initial blocks that the history leaves open come in as `tails`; what the pass
// learns of them it writes back, for the next pass.
class Pass {
 public:
  Pass(const Tables& tables, const DeviceTrace& trace, const AllocatorSettings& settings, const InitialState& initial,
       std::vector<Bytes>& tails, const RebuildOptions& options)
      : tables_(tables),
        events_(tables.events),
        device_(trace.device),
        first_(static_cast<std::size_t>(trace.events_begin)),
        count_(static_cast<EventIndex>(trace.events_end - trace.events_begin)),
        settings_(settings),
        initial_(initial),
        tails_(tails),
        options_(options),
        search_check_(events_, first_, count_, layout_, settings) {
    if (options.verify) layout_.observe(&search_check_.observer());
  }

  void begin();
  void step(EventIndex i);
  void finish();

  EventIndex count() const { return count_; }
  bool learned() const { return learned_; }
  const Layout& layout() const { return layout_; }
  History& history() { return history_; }

 private:
  Bytes& counter(Counter which) { return now_[static_cast<std::size_t>(which)]; }
  void add(Counter which, Bytes size);
  std::size_t row(EventIndex i) const { return first_ + static_cast<std::size_t>(i); }
  void note_conflict(EventIndex i) {
    if (history_.num_conflicts++ == 0) history_.first_conflict = i;
  }
  void record_counters(EventIndex i);
  bool ends_pending() const;

  std::int32_t add_segment_lifetime(EventIndex birth, const LayoutSegment& segment, SiteId site);
  std::int32_t add_lifetime(EventIndex birth, const LayoutBlock& block, Bytes requested, SiteId site);
  LayoutSegment segment_of(EventIndex i) const;

  void on_alloc(EventIndex i);
  void on_free_requested(EventIndex i);
  void on_free_completed(EventIndex i);
  void on_segment_alloc(EventIndex i);
  void on_segment_free(EventIndex i);
  void on_map(EventIndex i);
  void on_unmap(EventIndex i);

  std::int32_t place(EventIndex i, Address address, Bytes rounded);
  bool is_open(std::int32_t block) const;
  void learn_tail(std::int32_t block, Bytes tail);
  void force_free(EventIndex i, std::int32_t block);
  void end_segment(EventIndex i, std::int32_t segment);
  void make_room_for_segment(EventIndex i, const LayoutSegment& segment);

  const Tables& tables_;
  const EventTable& events_;
  const std::int32_t device_;
  const std::size_t first_;
  const EventIndex count_;
  const AllocatorSettings& settings_;
  const InitialState& initial_;
  std::vector<Bytes>& tails_;
  const RebuildOptions& options_;
  Layout layout_;
  SearchCheck search_check_;
  History history_;
  CounterValues now_{};
  bool completes_at_request_ = false;  // the recording skipped free_completed
  bool learned_ = false;
  Bytes fullest_active_ = -1;  // while reserved is at its peak
};

}  // namespace ullage
