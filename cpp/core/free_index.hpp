// The free blocks as the allocator keeps them: one ordered set a pool, searched for the best fit.
// Source: DeviceCachingAllocator::get_free_block, c10/cuda/CUDACachingAllocator.cpp, torch 2.11.
#pragma once

#include <compare>
#include <map>
#include <set>

#include "core/allocator_rules.hpp"
#include "core/layout.hpp"

namespace ullage {

class FreeIndex : public FreeBlockObserver {
 public:
  FreeIndex(const Layout& layout, const AllocatorSettings& settings) : layout_(layout), settings_(settings) {}

  void added(std::int32_t block) override;
  void removed(std::int32_t block) override;

  // The free block that the allocator would hand out, or kNone if it would go on to ask the driver.
  std::int32_t best_fit(std::int32_t pool, bool small_pool, std::int64_t stream, Bytes rounded) const;

 private:
  struct PoolKey {
    std::int32_t pool;
    bool is_small;
    std::int64_t stream;
    auto operator<=>(const PoolKey&) const = default;
  };
  struct Entry {
    Bytes size;
    Address address;
    std::int32_t block;
    auto operator<=>(const Entry&) const = default;
  };

  PoolKey key_of(const LayoutBlock& block) const;
  Bytes expandable_size(std::int32_t block) const;

  const Layout& layout_;
  const AllocatorSettings& settings_;
  std::map<PoolKey, std::set<Entry>> pools_;
};

}  // namespace ullage
