#include "core/free_index.hpp"

#include <algorithm>
#include <iterator>

namespace ullage {

FreeIndex::PoolKey FreeIndex::key_of(const LayoutBlock& block) const {
  const LayoutSegment& segment = layout_.segment(block.segment);
  return {segment.pool, segment.pool_size == PoolSize::kSmall, segment.stream};
}

void FreeIndex::added(std::int32_t row) {
  const LayoutBlock& block = layout_.block(row);
  pools_[key_of(block)].insert({block.size, block.address, row});
  if (!keeps_ages_) return;
  const auto index = static_cast<std::size_t>(row);
  if (index >= free_since_.size()) free_since_.resize(2 * index + 1, 0);
  free_since_[index] = num_searches_;
}

void FreeIndex::removed(std::int32_t row) {
  const LayoutBlock& block = layout_.block(row);
  pools_[key_of(block)].erase({block.size, block.address, row});
}

std::vector<std::int32_t> FreeIndex::in_order(bool small_pool, bool is_private) const {
  std::vector<std::int32_t> out;
  for (const auto& [key, entries] : pools_) {
    if (key.is_small != small_pool || (key.pool != kNone) != is_private) continue;
    for (const Entry& entry : entries) out.push_back(entry.block);
  }
  return out;
}

std::vector<std::int32_t> FreeIndex::of_stream(std::int32_t pool, bool small_pool, std::int64_t stream) const {
  std::vector<std::int32_t> out;
  const auto found = pools_.find({pool, small_pool, stream});
  if (found == pools_.end()) return out;
  for (const Entry& entry : found->second) out.push_back(entry.block);
  return out;
}

// A block at the end of a mapped range counts with the unmapped space that it could grow into.
Bytes FreeIndex::expandable_size(std::int32_t row) const {
  const LayoutBlock& block = layout_.block(row);
  const LayoutSegment& segment = layout_.segment(block.segment);
  if (block.next != kNone || !segment.is_expandable) return block.size;
  const Address end = block.address + static_cast<Address>(block.size);
  const auto behind = layout_.segments().lower_bound(end);
  if (behind != layout_.segments().end()) {
    const LayoutSegment& other = layout_.segment(behind->second);
    const bool same_range = other.is_expandable && other.stream == segment.stream && other.pool == segment.pool &&
                            other.pool_size == segment.pool_size;
    const Address gap = std::min(other.address - end, static_cast<Address>(kSizeLimit));
    if (same_range) return block.size + static_cast<Bytes>(gap);
  }
  return kSizeLimit - static_cast<Bytes>(block.address - segment.address);  // the rest of its reservation
}

std::int32_t FreeIndex::best_fit(std::int32_t pool, bool small_pool, std::int64_t stream, Bytes rounded) const {
  const auto found = pools_.find({pool, small_pool, stream});
  if (found == pools_.end()) return kNone;
  const std::set<Entry>& entries = found->second;
  auto fit = entries.lower_bound({rounded, 0, kNone});
  if (fit == entries.end()) return kNone;
  const auto is_expandable = [&](const Entry& entry) {
    return layout_.segment(layout_.block(entry.block).segment).is_expandable;
  };
  if (is_expandable(*fit)) {
    if (settings_.expandable_segments) {
      for (auto next = std::next(fit); next != entries.end() && is_expandable(*fit) &&
                                       expandable_size(next->block) < expandable_size(fit->block);
           ++next) {
        fit = next;
        layout_.spend(1);
      }
    } else {
      do {
        ++fit;
        layout_.spend(1);
      } while (fit != entries.end() && is_expandable(*fit));
      if (fit == entries.end()) return kNone;
    }
  }
  if (rounded < settings_.max_split_size && fit->size >= settings_.max_split_size) return kNone;
  if (rounded >= settings_.max_split_size && fit->size >= rounded + settings_.max_non_split_rounding) return kNone;
  return fit->block;
}

}  // namespace ullage
