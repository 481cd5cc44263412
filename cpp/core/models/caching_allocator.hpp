// PyTorch's caching allocator as a model: the same rules, with segment addresses of its own.
// Source: c10/cuda/CUDACachingAllocator.cpp, torch 2.11.
#pragma once

#include <cstdint>
#include <vector>

#include "core/allocator_rules.hpp"
#include "core/free_index.hpp"
#include "core/layout.hpp"
#include "core/models/allocator_model.hpp"
#include "core/models/pending_frees.hpp"

namespace ullage {

struct CachingPolicy {
  AllocatorSettings settings;
  bool has_small_pool = true;     // false: requests of every size share one pool
  bool parts_streams = true;      // false: a block freed on one stream serves all
  bool counts_requested = false;  // allocated counts what was asked for, not the rounded size
  Bytes cap = kUnlimited;         // what the process may take from the driver
  double garbage_collection = 0;  // threshold, a share of the cap; 0 or an unlimited cap: off
  bool descending_addresses =
      true;  // the driver hands out mostly descending addresses; best fit breaks ties by address
  // Where the recorded run's driver allocations lay, in their order. Under the recorded settings the model makes the
  // same ones, and taking these addresses breaks every tie as it was broken then. Empty: addresses are made up.
  std::vector<Address> recorded_segments;
};

class CachingAllocator : public AllocatorModel {
 public:
  explicit CachingAllocator(const CachingPolicy& policy);

  bool request(const ModelRequest& request) override;
  void free_requested(std::int32_t id) override;
  void free_completed(std::int32_t id) override;
  void empty_cache() override;
  const ModelCounters& counters() const override { return counters_; }
  LayoutTable layout() const override;
  Waste waste(std::int64_t stream) const override { return waste_of(layout_, stream, policy_.settings); }

 private:
  bool is_small_request(Bytes rounded) const { return policy_.has_small_pool && is_small(rounded); }
  std::int64_t stream_of(const ModelRequest& request) const { return policy_.parts_streams ? request.stream : 0; }
  Bytes charge(const LayoutBlock& block) const { return policy_.counts_requested ? block.requested : block.size; }
  bool collects_garbage() const { return policy_.garbage_collection > 0 && policy_.cap != kUnlimited; }
  std::int32_t find_free(const ModelRequest& request, Bytes rounded);
  std::int32_t grow(const ModelRequest& request, Bytes rounded);
  Address new_address(Bytes size);
  std::int32_t grow_expandable(const ModelRequest& request, Bytes rounded);
  bool map(const LayoutSegment& like, Address begin, Bytes size);
  std::int32_t place_expandable(const LayoutSegment& like, Bytes rounded, Bytes granule);
  void collect_garbage();
  bool release_available(const ModelRequest& request, Bytes rounded);
  void release_cached();
  void release_pool(bool small);
  void release_segment(std::int32_t segment);
  void unmap_granules(std::int32_t block);
  bool is_whole_segment(std::int32_t block) const;
  Bytes granule_of(bool small) const { return small ? kSmallBuffer : policy_.settings.large_segment_size; }

  CachingPolicy policy_;
  Layout layout_;
  FreeIndex index_;
  ModelCounters counters_;
  std::vector<std::int32_t> block_of_;  // by request id
  PendingFrees pending_;
  Address next_address_;
  std::size_t num_segments_made_ = 0;
  std::vector<std::pair<LayoutSegment, Address>> reservations_;  // of expandable segments: what for, and where
};

// The addresses of a device's recorded segment allocations, in their order.
std::vector<Address> recorded_segments(const Tables& tables, const DeviceTrace& trace);

}  // namespace ullage
