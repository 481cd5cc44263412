#include "core/search_check.hpp"

namespace ullage {

bool SearchCheck::misses(EventIndex request, std::int32_t pool) {
  const Bytes rounded = round_size(events_.size[row(request)], settings_);
  return index_.best_fit(pool, is_small(rounded), events_.stream[row(request)], rounded) == kNone;
}

void SearchCheck::look_ahead(EventIndex i) {
  if (i < release_end_) return;
  release_end_ = i;
  while (is_action(release_end_, Action::kFreeCompleted, Action::kFreeCompleted)) ++release_end_;
  const EventIndex first_release = release_end_;
  while (is_action(release_end_, Action::kSegmentFree, Action::kSegmentUnmap)) ++release_end_;
  if (release_end_ == first_release) return;
  EventIndex request = release_end_;
  while (is_action(request, Action::kSegmentAlloc, Action::kSegmentMap)) ++request;
  if (request == release_end_ || !is_action(request, Action::kAlloc, Action::kAlloc)) return;
  retry_for_ = request;
  retry_missed_ = misses(request, kNone);  // private pools are not given back to
}

void SearchCheck::predict_new_segment(EventIndex i, std::int32_t pool) {
  if (run_end_ <= i) {
    run_end_ = i + 1;
    while (is_action(run_end_, Action::kSegmentMap, Action::kSegmentAlloc)) ++run_end_;
  }
  const EventIndex next = run_end_;
  if (next >= count_ || events_.action[row(next)] != Action::kAlloc || predicted_for_ == next) return;
  if (events_.stream[row(next)] != events_.stream[row(i)]) return;
  predicted_for_ = next;
  predicted_miss_ = (pool == kNone && retry_for_ == next && retry_missed_) || misses(next, pool);
}

bool SearchCheck::alloc_matches(EventIndex i, Address address, Bytes rounded) {
  const std::int32_t block = layout_.block_at(address);
  if (predicted_for_ == i) {
    return predicted_miss_ && block != kNone && layout_.block(block).state == BlockState::kInactive &&
           layout_.block(block).size >= rounded;
  }
  const std::int32_t segment = layout_.segment_covering(address);
  if (segment == kNone) return false;
  const std::int32_t fit =
      index_.best_fit(layout_.segment(segment).pool, is_small(rounded), events_.stream[row(i)], rounded);
  return fit != kNone && layout_.block(fit).address == address;
}

}  // namespace ullage
