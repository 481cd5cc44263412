// Checks a reconstruction by running the allocator's own search for each recorded request.
#pragma once

#include <cstddef>

#include "core/free_index.hpp"
#include "core/tables.hpp"

namespace ullage {

class SearchCheck {
 public:
  SearchCheck(const EventTable& events, std::size_t first, EventIndex count, const Layout& layout,
              const AllocatorSettings& settings)
      : events_(events), first_(first), count_(count), layout_(layout), settings_(settings), index_(layout, settings) {}

  // What has to watch the layout while requests are checked.
  FreeBlockObserver& observer() { return index_; }

  // A request that finds nothing and is refused by the driver waits for pending frees and gives cached segments back,
  // then makes a new segment, without a second search: what it found is to be asked before all that.
  void look_ahead(EventIndex i);

  // A segment is made only if no free block serves the request that comes right behind it.
  void predict_new_segment(EventIndex i, std::int32_t pool);

  // Whether the search comes to the recorded address; asked before the block is handed out.
  bool alloc_matches(EventIndex i, Address address, Bytes rounded);

 private:
  std::size_t row(EventIndex i) const { return first_ + static_cast<std::size_t>(i); }
  bool is_action(EventIndex i, Action one, Action other) const {
    return i < count_ && (events_.action[row(i)] == one || events_.action[row(i)] == other);
  }
  bool misses(EventIndex request, std::int32_t pool);

  const EventTable& events_;
  const std::size_t first_;
  const EventIndex count_;
  const Layout& layout_;
  const AllocatorSettings& settings_;
  FreeIndex index_;
  EventIndex release_end_ = 0;        // behind the run of completed frees and releases looked at last
  EventIndex retry_for_ = kNone;      // the request that they were made for
  bool retry_missed_ = false;         // no free block would have served it before them
  EventIndex run_end_ = 0;            // behind the run of new segments that the last one belongs to
  EventIndex predicted_for_ = kNone;  // the request for which a new segment was made
  bool predicted_miss_ = false;       // no free block would have served it
};

}  // namespace ullage
