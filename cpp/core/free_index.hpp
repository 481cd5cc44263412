// The free blocks as the allocator keeps them: one ordered set a pool, searched for the best fit.
// Source: DeviceCachingAllocator::get_free_block, c10/cuda/CUDACachingAllocator.cpp, torch 2.11.
#pragma once

#include <array>
#include <compare>
#include <map>
#include <vector>

#include "core/allocator_rules.hpp"
#include "core/free_list.hpp"
#include "core/layout.hpp"

namespace ullage {

class FreeIndex : public FreeBlockObserver {
 public:
  FreeIndex(const Layout& layout, const AllocatorSettings& settings) : layout_(layout), settings_(settings) {}

  void added(std::int32_t block) override;
  void removed(std::int32_t block) override;

  // The free block that the allocator would hand out, or kNone if it would go on to ask the driver.
  std::int32_t best_fit(std::int32_t pool, bool small_pool, std::int64_t stream, Bytes rounded);

  // The free blocks of all private or of all default pools of one size, by stream, size and address.
  std::vector<std::int32_t> in_order(bool small_pool, bool is_private) const;
  // Those that serve one stream of one pool, by size and address.
  std::vector<std::int32_t> of_stream(std::int32_t pool, bool small_pool, std::int64_t stream);

  // Ages, as garbage collection counts them: the searches since a block became free.
  void keep_ages(bool keep) { keeps_ages_ = keep; }
  void grow_older() { ++num_searches_; }
  std::int64_t age(std::int32_t block) const { return num_searches_ - free_since_[static_cast<std::size_t>(block)]; }

 private:
  struct PoolKey {
    std::int32_t pool;
    bool is_small;
    std::int64_t stream;
    auto operator<=>(const PoolKey&) const = default;
  };
  PoolKey key_of(const LayoutBlock& block) const;
  Bytes expandable_size(std::int32_t block) const;

  const Layout& layout_;
  const AllocatorSettings& settings_;
  FreeList& list_of(const PoolKey& key);

  std::map<PoolKey, FreeList> pools_;
  // The pools asked for last, one for each of the two sizes: nearly every request is for one of them.
  struct Recent {
    PoolKey key{};
    FreeList* list = nullptr;
  };
  mutable std::array<Recent, 2> recent_{};
  bool keeps_ages_ = false;
  std::int64_t num_searches_ = 0;
  std::vector<std::int64_t> free_since_;  // by block, the searches when it became free
};

}  // namespace ullage
