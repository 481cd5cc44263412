#include "core/search_check.hpp"

namespace ullage {

void SearchCheck::predict_new_segment(EventIndex i, std::int32_t pool) {
  if (run_end_ <= i) {
    run_end_ = i + 1;
    while (run_end_ < count_ && (events_.action[row(run_end_)] == Action::kSegmentMap ||
                                 events_.action[row(run_end_)] == Action::kSegmentAlloc)) {
      ++run_end_;
    }
  }
  const EventIndex next = run_end_;
  if (next >= count_ || events_.action[row(next)] != Action::kAlloc || predicted_for_ == next) return;
  if (events_.stream[row(next)] != events_.stream[row(i)]) return;
  const Bytes rounded = round_size(events_.size[row(next)], settings_);
  predicted_for_ = next;
  predicted_miss_ = index_.best_fit(pool, is_small(rounded), events_.stream[row(next)], rounded) == kNone;
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
