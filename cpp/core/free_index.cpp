#include "core/free_index.hpp"

#include <algorithm>

namespace ullage {

std::int32_t FreeIndex::list_row(const PoolKey& key) {
  Recent& recent = recent_[key.is_small ? 1 : 0];
  if (recent.row != kNone && recent.key == key) return recent.row;
  const auto [found, is_new] = rows_.try_emplace(key, static_cast<std::int32_t>(lists_.size()));
  if (is_new) lists_.emplace_back();
  recent = {key, found->second};
  return found->second;
}

FreeList& FreeIndex::list_of(const LayoutBlock& block) {
  const LayoutSegment& segment = layout_.segment(block.segment);
  if (segment.free_list == kNone) {
    segment.free_list = list_row({segment.pool, segment.pool_size == PoolSize::kSmall, segment.stream});
  }
  return list(segment.free_list);
}

void FreeIndex::added(std::int32_t row) {
  const LayoutBlock& block = layout_.block(row);
  list_of(block).insert({block.size, block.address, row});
  fit_list_ = nullptr;
  if (!keeps_ages_) return;
  const auto index = static_cast<std::size_t>(row);
  if (index >= free_since_.size()) free_since_.resize(2 * index + 1, 0);
  free_since_[index] = num_searches_;
}

void FreeIndex::removed(std::int32_t row) {
  const LayoutBlock& block = layout_.block(row);
  if (fit_list_ != nullptr && fit_list_->at(fit_).block == row) {
    fit_list_->erase(fit_);
  } else {
    list_of(block).erase({block.size, block.address, row});
  }
  fit_list_ = nullptr;
}

std::vector<std::int32_t> FreeIndex::in_order(bool small_pool, bool is_private) const {
  std::vector<std::int32_t> out;
  for (const auto& [key, row] : rows_) {
    if (key.is_small != small_pool || (key.pool != kNone) != is_private) continue;
    lists_[static_cast<std::size_t>(row)].for_each([&](const FreeEntry& entry) { out.push_back(entry.block); });
  }
  return out;
}

std::vector<std::int32_t> FreeIndex::of_stream(std::int32_t pool, bool small_pool, std::int64_t stream) {
  std::vector<std::int32_t> out;
  list(list_row({pool, small_pool, stream})).for_each([&](const FreeEntry& entry) { out.push_back(entry.block); });
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

std::int32_t FreeIndex::best_fit(std::int32_t pool, bool small_pool, std::int64_t stream, Bytes rounded) {
  FreeList& list = this->list(list_row({pool, small_pool, stream}));
  fit_list_ = nullptr;
  FreeList::Cursor fit = list.at_least(rounded);
  const FreeList::Cursor end = list.end();
  if (fit == end) return kNone;
  const auto is_expandable = [&](FreeList::Cursor cursor) {
    return layout_.segment(layout_.block(list.at(cursor).block).segment).is_expandable;
  };
  if (is_expandable(fit)) {
    if (settings_.expandable_segments) {
      for (auto next = list.next(fit); next != end && is_expandable(fit) &&
                                       expandable_size(list.at(next).block) < expandable_size(list.at(fit).block);
           next = list.next(next)) {
        fit = next;
        layout_.spend(1);
      }
    } else {
      do {
        fit = list.next(fit);
        layout_.spend(1);
      } while (fit != end && is_expandable(fit));
      if (fit == end) return kNone;
    }
  }
  const Bytes size = list.at(fit).size;
  if (rounded < settings_.max_split_size && size >= settings_.max_split_size) return kNone;
  if (rounded >= settings_.max_split_size && size >= rounded + settings_.max_non_split_rounding) return kNone;
  fit_list_ = &list;
  fit_ = fit;
  return list.at(fit).block;
}

}  // namespace ullage
