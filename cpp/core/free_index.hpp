// The free blocks as the allocator keeps them: one ordered set a pool, searched for the best fit.
// Source: DeviceCachingAllocator::get_free_block, c10/cuda/CUDACachingAllocator.cpp, torch 2.11.
#pragma once

#include <array>
#include <compare>
#include <deque>
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
  Bytes expandable_size(std::int32_t block) const;

  std::int32_t list_row(const PoolKey& key);
  FreeList& list_of(const LayoutBlock& block);
  FreeList& list(std::int32_t row) { return lists_[static_cast<std::size_t>(row)]; }

  const Layout& layout_;
  const AllocatorSettings& settings_;
  std::map<PoolKey, std::int32_t> rows_;
  std::deque<FreeList> lists_;
  // The pools asked for last, one for each of the two sizes: nearly every request is for one of them.
  struct Recent {
    PoolKey key{};
    std::int32_t row = kNone;
  };
  std::array<Recent, 2> recent_{};
  // Where the last best fit was found: it is nearly always taken at once.
  FreeList* fit_list_ = nullptr;
  FreeList::Cursor fit_;
  bool keeps_ages_ = false;
  std::int64_t num_searches_ = 0;
  std::vector<std::int64_t> free_since_;  // by block, the searches when it became free
};

}  // namespace ullage
