#include <doctest/doctest.h>

#include "core/free_index.hpp"

namespace ullage {
namespace {

// A layout of free blocks: each in a segment of its own, or the free end of an expandable one.
struct Space {
  Layout layout;
  AllocatorSettings settings;
  FreeIndex index{layout, settings};

  Space() { layout.observe(&index); }

  LayoutSegment segment(Address address, Bytes size, bool is_expandable) const {
    LayoutSegment out;
    out.address = address;
    out.size = size;
    out.pool_size = PoolSize::kLarge;
    out.is_expandable = is_expandable;
    return out;
  }
  void add(Address address, Bytes size, bool is_expandable = false) {
    layout.add_segment(segment(address, size, is_expandable));
  }
  // A free block with a live one behind it: there is nothing that it could grow into.
  void add_enclosed(Address address, Bytes size) {
    const std::int32_t row = layout.add_segment(segment(address, size + 512, true));
    layout.allocate(layout.split(layout.segment(row).first_block, size), 512, 0);
  }
  // The address that serves a large request on stream 0; 1 if none does.
  Address fit(Bytes rounded) {
    const std::int32_t block = index.best_fit(kNone, false, 0, rounded);
    return block == kNone ? 1 : layout.block(block).address;
  }
};

constexpr Address kStep = 1 << 30;

TEST_CASE("the smallest block that is large enough serves; of equals the lowest") {
  Space space;
  space.add(3 * kStep, 4 * kMiB);
  space.add(2 * kStep, 4 * kMiB);
  space.add(1 * kStep, 8 * kMiB);
  CHECK(space.fit(2 * kMiB) == 2 * kStep);
  CHECK(space.fit(4 * kMiB) == 2 * kStep);
  CHECK(space.fit(4 * kMiB + 512) == 1 * kStep);
  CHECK(space.fit(8 * kMiB + 512) == 1);
}

TEST_CASE("streams, pools and pool sizes are searched apart") {
  Space space;
  LayoutSegment segment = space.segment(kStep, 4 * kMiB, false);
  segment.stream = 7;
  segment.pool = 3;
  segment.pool_size = PoolSize::kSmall;
  space.layout.add_segment(segment);
  CHECK(space.index.best_fit(3, true, 7, 512) != kNone);
  CHECK(space.index.best_fit(kNone, true, 7, 512) == kNone);
  CHECK(space.index.best_fit(3, false, 7, 512) == kNone);
  CHECK(space.index.best_fit(3, true, 0, 512) == kNone);
}

TEST_CASE("a request below max_split_size takes no block of that size, and tries no other") {
  Space space;
  space.settings.max_split_size = 20 * kMiB;
  space.add(kStep, 20 * kMiB);
  CHECK(space.fit(2 * kMiB) == 1);
  CHECK(space.fit(20 * kMiB) == kStep);
  space.add(2 * kStep, 20 * kMiB - 512);
  CHECK(space.fit(2 * kMiB) == 2 * kStep);
}

TEST_CASE("a request of max_split_size or more takes no block larger by max_non_split_rounding") {
  Space space;
  space.settings.max_split_size = 20 * kMiB;
  space.settings.max_non_split_rounding = 20 * kMiB;
  space.add(kStep, 42 * kMiB);
  CHECK(space.fit(22 * kMiB) == 1);
  CHECK(space.fit(22 * kMiB + 512) == kStep);
}

TEST_CASE("a block that could grow counts with what it could grow into") {
  Space space;
  space.settings.expandable_segments = true;
  space.add(kStep, 4 * kMiB, true);
  space.add_enclosed(2 * kStep, 6 * kMiB);
  CHECK(space.fit(2 * kMiB) == 2 * kStep);  // 6 MiB is less than 4 MiB and the gap behind
  CHECK(space.fit(6 * kMiB + 512) == 1);
  space.add_enclosed(3 * kStep, 3 * kMiB);
  CHECK(space.fit(2 * kMiB) == 3 * kStep);
}

TEST_CASE("the walk stops where the next block is no smaller") {
  Space space;
  space.settings.expandable_segments = true;
  space.add_enclosed(1 * kStep, 4 * kMiB);
  space.add_enclosed(2 * kStep, 6 * kMiB);
  CHECK(space.fit(2 * kMiB) == 1 * kStep);
}

TEST_CASE("a gap between two mapped ranges counts as far as the next range") {
  Space space;
  space.settings.expandable_segments = true;
  space.add(kStep, 4 * kMiB, true);
  space.add_enclosed(kStep + 6 * kMiB, 8 * kMiB);  // 2 MiB of gap: the first block counts as 6 MiB
  CHECK(space.fit(2 * kMiB) == kStep);
}

TEST_CASE("a block outside expandable segments cannot grow") {
  Space space;
  space.settings.expandable_segments = true;
  space.add(kStep, 4 * kMiB, true);
  space.add(2 * kStep, 6 * kMiB, false);
  CHECK(space.fit(2 * kMiB) == 2 * kStep);
}

TEST_CASE("expandable blocks are passed over when the setting is off") {
  Space space;
  space.add(1 * kStep, 4 * kMiB, true);
  space.add(2 * kStep, 5 * kMiB, true);
  CHECK(space.fit(2 * kMiB) == 1);
  space.add(3 * kStep, 6 * kMiB, false);
  CHECK(space.fit(2 * kMiB) == 3 * kStep);
}

TEST_CASE("a gap of more than half the address space is counted without overflow") {
  Space space;
  space.settings.expandable_segments = true;
  space.add(0, 4 * kMiB, true);
  space.add_enclosed((Address{1} << 63) + kMiB, 8 * kMiB);
  CHECK(space.fit(2 * kMiB) == (Address{1} << 63) + kMiB);
}

TEST_CASE("blocks of a range that is absorbed are filed under the range that absorbs it") {
  Space space;
  space.settings.expandable_segments = true;
  LayoutSegment front = space.segment(4 * kMiB, 2 * kMiB, true);
  front.pool_size = PoolSize::kUnknown;
  LayoutSegment back = space.segment(8 * kMiB, 2 * kMiB, true);
  back.pool_size = PoolSize::kSmall;
  LayoutSegment gap = space.segment(6 * kMiB, 2 * kMiB, true);
  gap.pool_size = PoolSize::kSmall;
  space.layout.add_segment(front);
  space.layout.add_segment(back);
  std::int32_t absorbed = kNone;
  space.layout.map_range(gap, absorbed);
  CHECK(absorbed != kNone);
  CHECK(space.index.best_fit(kNone, true, 0, 512) == kNone);
  CHECK(space.fit(6 * kMiB) == 4 * kMiB);
}

}  // namespace
}  // namespace ullage
