// The state of one device's memory at an instant: segments cut into blocks.
//
//   segment  |<------------------------- size ------------------------->|
//   blocks   | allocated | free | allocated    tail | pending | free     |
//                                \_ requested _/ \_/
//                                       rounded size (a tail too small to split stays with its block)
//
// Invariants: a segment's blocks cover it without gaps, in address order; two free blocks never touch.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/address_map.hpp"
#include "core/tables.hpp"
#include "core/units.hpp"

namespace ullage {

struct LayoutBlock {
  Address address = 0;
  Bytes size = 0;
  Bytes requested = 0;
  std::int32_t previous = kNone;  // neighbours in the same segment
  std::int32_t next = kNone;
  std::int32_t segment = kNone;
  std::int32_t lifetime = kNone;  // row of History::blocks; kNone while free
  BlockState state = BlockState::kInactive;
};

struct LayoutSegment {
  Address address = 0;
  Bytes size = 0;
  std::int64_t stream = 0;
  std::int32_t pool = kNone;  // row of Tables::pools; kNone: not known, taken as the default pool
  PoolSize pool_size = PoolSize::kUnknown;
  bool is_expandable = false;
  std::int32_t first_block = kNone;
  std::int32_t last_block = kNone;
  std::int32_t lifetime = kNone;  // row of History::segments
  mutable std::int32_t free_list =
      kNone;  // where the observer keeps its free blocks; it follows from stream, pool, pool_size
};

// Told when a block becomes free or stops being free.
class FreeBlockObserver {
 public:
  virtual ~FreeBlockObserver() = default;
  virtual void added(std::int32_t block) = 0;
  virtual void removed(std::int32_t block) = 0;
};

class Layout {
 public:
  // `finds_blocks`: whether block_at() is wanted; a model that knows its blocks by their rows does without.
  explicit Layout(bool finds_blocks = true) : finds_blocks_(finds_blocks) {}

  void observe(FreeBlockObserver* observer) { observer_ = observer; }

  const LayoutBlock& block(std::int32_t row) const { return blocks_[static_cast<std::size_t>(row)]; }
  const LayoutSegment& segment(std::int32_t row) const { return segments_[static_cast<std::size_t>(row)]; }
  LayoutSegment& segment(std::int32_t row) { return segments_[static_cast<std::size_t>(row)]; }
  // Segments by address.
  const std::map<Address, std::int32_t>& segments() const { return by_address_; }

  // The block that starts at `address`, or kNone.
  std::int32_t block_at(Address address) const { return starts_.find(address); }
  // The block or segment that covers `address`, or kNone. Cost: the segment's blocks.
  std::int32_t block_covering(Address address) const;
  std::int32_t segment_covering(Address address) const;

  // Adds a segment of one free block. It must not overlap another.
  std::int32_t add_segment(const LayoutSegment& segment);
  void remove_segment(std::int32_t segment);
  // Maps [address, address + size): a new segment, or the growth of those it touches. Returns the segment; a second
  // one that it closed the gap to is written to `absorbed`.
  std::int32_t map_range(const LayoutSegment& range, std::int32_t& absorbed);
  // Says which pool a segment turns out to serve.
  void set_pool_size(std::int32_t segment, PoolSize pool_size);
  // Unmaps a range that lies in one free block. The part behind it, if any, becomes a segment of its own.
  void unmap_range(std::int32_t block, Address begin, Address end);

  // Cuts a block in two; both halves keep its state. Returns the second.
  std::int32_t split(std::int32_t block, Bytes size);
  void allocate(std::int32_t block, Bytes requested, std::int32_t lifetime);
  // Cuts a free block to `size`, if it is larger, and allocates the front; the rest stays free.
  void allocate_front(std::int32_t block, Bytes size, Bytes requested, std::int32_t lifetime);
  void set_pending(std::int32_t block) { at(block).state = BlockState::kActivePendingFree; }
  // Frees a block and merges it with its free neighbours. Returns the merged block.
  std::int32_t release(std::int32_t block);
  // Moves the boundary between a block and the free block behind it by `bytes`.
  void extend(std::int32_t block, Bytes bytes);

  // Counts steps of walks that a consistent history hardly takes. Raises TraceError when a hostile one takes too many.
  void spend(std::int64_t steps) const;

 private:
  LayoutBlock& at(std::int32_t row) { return blocks_[static_cast<std::size_t>(row)]; }
  std::int32_t cut(std::int32_t block, Bytes size);
  std::int32_t new_block();
  void note_start(Address address, std::int32_t block) {
    if (finds_blocks_) starts_.insert_or_assign(address, block);
  }
  void forget_start(Address address) {
    if (finds_blocks_) starts_.erase(address);
  }
  void drop_block(std::int32_t row);
  void merge_with_next(std::int32_t block);
  void note_free(std::int32_t block) {
    if (observer_) observer_->added(block);
  }
  void note_taken(std::int32_t block) {
    if (observer_) observer_->removed(block);
  }
  std::int32_t touching(Address address, const LayoutSegment& like, bool ends_there) const;
  void relabel(std::int32_t first, std::int32_t segment_row);

  std::vector<LayoutBlock> blocks_;
  std::vector<std::int32_t> unused_blocks_;
  std::vector<LayoutSegment> segments_;
  std::vector<std::int32_t> unused_segments_;
  std::map<Address, std::int32_t> by_address_;
  bool finds_blocks_;
  AddressMap starts_;
  FreeBlockObserver* observer_ = nullptr;
  static constexpr std::int64_t kWorkLimit = 200'000'000;
  mutable std::int64_t work_ = 0;
};

}  // namespace ullage
