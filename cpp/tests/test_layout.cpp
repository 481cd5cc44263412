#include <doctest/doctest.h>

#include <random>
#include <set>

#include "core/error.hpp"
#include "core/layout.hpp"
#include "layout_checks.hpp"

namespace ullage::test {
namespace {

LayoutSegment range(Address address, Bytes size, bool is_expandable = false) {
  LayoutSegment segment;
  segment.address = address;
  segment.size = size;
  segment.is_expandable = is_expandable;
  segment.pool_size = PoolSize::kLarge;
  return segment;
}

// Maps and returns the segment.
std::int32_t map(Layout& layout, Address address, Bytes size) {
  std::int32_t absorbed = kNone;
  return layout.map_range(range(address, size, true), absorbed);
}

// "512a+1024f" for the segment at `address`.
std::string blocks_at(const Layout& layout, Address address) {
  const auto found = layout.segments().find(address);
  if (found == layout.segments().end()) return "none";
  std::string out;
  for (std::int32_t walk = layout.segment(found->second).first_block; walk != kNone; walk = layout.block(walk).next) {
    out += (out.empty() ? "" : "+") + std::to_string(layout.block(walk).size);
    out += "fap"[static_cast<std::size_t>(layout.block(walk).state)];
  }
  return out;
}

TEST_CASE("a new segment is one free block") {
  Layout layout;
  layout.add_segment(range(4096, 2048));
  CHECK(blocks_at(layout, 4096) == "2048f");
  CHECK(broken_invariant(layout) == "");
}

TEST_CASE("a block is found by its start, a segment by any of its addresses") {
  Layout layout;
  const std::int32_t segment = layout.add_segment(range(4096, 2048));
  const std::int32_t first = layout.block_at(4096);
  const std::int32_t second = layout.split(first, 512);
  CHECK(layout.block_at(4608) == second);
  CHECK(layout.block_at(4609) == kNone);
  CHECK(layout.block_covering(4607) == first);
  CHECK(layout.block_covering(6143) == second);
  CHECK(layout.block_covering(6144) == kNone);
  CHECK(layout.block_covering(0) == kNone);
  CHECK(layout.segment_covering(6143) == segment);
  CHECK(layout.segment_covering(4095) == kNone);
}

TEST_CASE("a freed block merges with both free neighbours") {
  Layout layout;
  layout.add_segment(range(4096, 2048));
  const std::int32_t first = layout.block_at(4096);
  const std::int32_t second = layout.split(first, 512);
  const std::int32_t third = layout.split(second, 512);
  layout.allocate(first, 500, 0);
  layout.allocate(second, 500, 1);
  CHECK(blocks_at(layout, 4096) == "512a+512a+1024f");
  layout.allocate(third, 1000, 2);
  layout.set_pending(third);
  CHECK(blocks_at(layout, 4096) == "512a+512a+1024p");
  layout.release(first);
  layout.release(third);
  CHECK(blocks_at(layout, 4096) == "512f+512a+1024f");
  CHECK(layout.release(second) == first);
  CHECK(blocks_at(layout, 4096) == "2048f");
  CHECK(broken_invariant(layout) == "");
}

TEST_CASE("a removed segment leaves nothing behind") {
  Layout layout;
  const std::int32_t segment = layout.add_segment(range(4096, 2048));
  layout.split(layout.block_at(4096), 512);
  layout.remove_segment(segment);
  CHECK(layout.segments().empty());
  CHECK(layout.block_at(4096) == kNone);
  CHECK(layout.block_at(4608) == kNone);
}

TEST_CASE("extending a block moves its boundary with the free block behind") {
  Layout layout;
  layout.add_segment(range(4096, 2048));
  const std::int32_t first = layout.block_at(4096);
  layout.split(first, 512);
  layout.allocate(first, 500, 0);
  layout.extend(first, 512);
  CHECK(blocks_at(layout, 4096) == "1024a+1024f");
  CHECK(layout.block_at(4608) == kNone);
  CHECK(broken_invariant(layout) == "");
}

TEST_CASE("mapping grows the range in front, the range behind, or closes the gap between") {
  Layout layout;
  const std::int32_t home = map(layout, 4096, 1024);
  CHECK(map(layout, 5120, 1024) == home);
  CHECK(blocks_at(layout, 4096) == "2048f");
  const std::int32_t other = map(layout, 8192, 1024);
  CHECK(map(layout, 7168, 1024) == other);
  CHECK(blocks_at(layout, 7168) == "2048f");
  layout.allocate(layout.block_at(7168), 2048, 0);
  std::int32_t absorbed = kNone;
  CHECK(layout.map_range(range(6144, 1024, true), absorbed) == home);
  CHECK(absorbed == other);
  CHECK(blocks_at(layout, 4096) == "3072f+2048a");
  CHECK(layout.segments().size() == 1);
  CHECK(broken_invariant(layout) == "");
}

TEST_CASE("mapping does not join what differs in stream, pool or kind") {
  for (int difference = 0; difference < 4; ++difference) {
    Layout layout;
    LayoutSegment first = range(4096, 1024, difference != 0);
    if (difference == 1) first.stream = 7;
    if (difference == 2) first.pool = 0;
    if (difference == 3) first.pool_size = PoolSize::kSmall;
    layout.add_segment(first);
    map(layout, 5120, 1024);
    CHECK(layout.segments().size() == 2);
    CHECK(broken_invariant(layout) == "");
  }
}

TEST_CASE("unmapping takes the whole, the front, the back or the middle of a range") {
  const auto after_unmap = [](Address begin, Address end) {
    Layout layout;
    map(layout, 4096, 4096);
    layout.unmap_range(layout.block_at(4096), begin, end);
    CHECK(broken_invariant(layout) == "");
    return blocks_at(layout, 4096) + " " + blocks_at(layout, end);
  };
  CHECK(after_unmap(4096, 8192) == "none none");
  CHECK(after_unmap(4096, 5120) == "none 3072f");
  CHECK(after_unmap(7168, 8192) == "3072f none");
  CHECK(after_unmap(5120, 6144) == "1024f 2048f");
}

TEST_CASE("unmapping between live blocks leaves a range on either side") {
  Layout layout;
  map(layout, 4096, 4096);
  const std::int32_t first = layout.block_at(4096);
  const std::int32_t second = layout.split(first, 1024);
  const std::int32_t third = layout.split(second, 2048);
  layout.allocate(first, 1024, 0);
  layout.allocate(third, 1024, 1);
  layout.unmap_range(second, 5120, 7168);
  CHECK(blocks_at(layout, 4096) == "1024a");
  CHECK(blocks_at(layout, 7168) == "1024a");
  CHECK(broken_invariant(layout) == "");
}

TEST_CASE("a range may end at the last address") {
  Layout layout;
  layout.add_segment(range(~Address{0} - 1023, 1023));
  CHECK(layout.segment_covering(~Address{0} - 1) != kNone);
  CHECK(broken_invariant(layout) == "");
}

TEST_CASE("work without end is refused") {
  Layout layout;
  layout.spend(100'000'000);
  CHECK_THROWS_AS(layout.spend(200'000'000), TraceError);
}

// Tells whether the observer hears of each free block exactly once.
class Census : public FreeBlockObserver {
 public:
  void added(std::int32_t block) override { CHECK(free_.insert(block).second); }
  void removed(std::int32_t block) override { CHECK(free_.erase(block) == 1); }
  std::size_t count() const { return free_.size(); }

 private:
  std::set<std::int32_t> free_;
};

std::vector<std::int32_t> blocks_in(const Layout& layout, BlockState state) {
  std::vector<std::int32_t> out;
  for (const auto& [address, segment] : layout.segments()) {
    for (std::int32_t walk = layout.segment(segment).first_block; walk != kNone; walk = layout.block(walk).next) {
      if (layout.block(walk).state == state) out.push_back(walk);
    }
  }
  return out;
}

// One random operation on a space of 64 pages.
void change(Layout& layout, std::mt19937& random) {
  constexpr Bytes kPage = 4096;
  const auto free_blocks = blocks_in(layout, BlockState::kInactive);
  const auto live_blocks = blocks_in(layout, BlockState::kActiveAllocated);
  const auto pick = [&](const auto& rows) { return rows[random() % rows.size()]; };
  switch (random() % 4) {
    case 0: {
      const Address page = kPage * (1 + random() % 64);
      if (layout.segment_covering(page) == kNone) map(layout, page, kPage);
      return;
    }
    case 1: {
      if (free_blocks.empty()) return;
      const std::int32_t block = pick(free_blocks);
      const Bytes size = 512 * static_cast<Bytes>(1 + random() % 8);
      if (size < layout.block(block).size) layout.split(block, size);
      return layout.allocate(block, layout.block(block).size, 0);
    }
    case 2:
      if (!live_blocks.empty()) layout.release(pick(live_blocks));
      return;
    default: {
      if (free_blocks.empty()) return;
      const std::int32_t block = pick(free_blocks);
      const Address begin = (layout.block(block).address + kPage - 1) / kPage * kPage;
      if (begin + kPage <= layout.block(block).address + static_cast<Address>(layout.block(block).size)) {
        layout.unmap_range(block, begin, begin + kPage);
      }
    }
  }
}

TEST_CASE("the invariants hold after each of many random changes") {
  std::mt19937 random(7);
  Layout layout;
  Census census;
  layout.observe(&census);
  for (int i = 0; i < 5'000; ++i) {
    change(layout, random);
    REQUIRE(broken_invariant(layout) == "");
    REQUIRE(census.count() == blocks_in(layout, BlockState::kInactive).size());
  }
}

}  // namespace
}  // namespace ullage::test
