#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "core/drawing.hpp"
#include "drawing_checks.hpp"

namespace ullage::test {
namespace {

constexpr EventIndex kForever = kNone;    // the death of what lives on
constexpr EventIndex kManyBlocks = 3000;  // as many of the longest-lived are placed before the others
using Offsets = std::vector<Bytes>;

struct Block {
  EventIndex birth, death;
  Bytes size;
};

BlockLifetimes lifetimes(const std::vector<Block>& blocks) {
  BlockLifetimes out;
  for (const Block& block : blocks) {
    out.birth.push_back(block.birth);
    out.free_requested.push_back(block.death);
    out.death.push_back(block.death);
    out.address.push_back(0);
    out.size.push_back(block.size);
    out.requested_size.push_back(block.size);
    out.site.push_back(kNone);
    out.segment.push_back(kNone);
    out.is_open.push_back(0);
  }
  return out;
}

// Draws, and holds the drawing against the plain rules.
Drawing drawn(const std::vector<Block>& blocks, EventIndex num_events) {
  const BlockLifetimes rows = lifetimes(blocks);
  const Drawing drawing = draw_blocks(rows, num_events);
  CHECK(broken_drawing(rows, num_events, drawing) == "");
  return drawing;
}

TEST_CASE("the drawing in drawing.hpp") {
  const std::vector<Block> blocks = {
      {kNone, kForever, 2},  // A
      {2, kForever, 1},      // B
      {0, 5, 2},             // C
      {5, 7, 1},             // D
      {0, 2, 1},             // E
      {6, kForever, 2},      // F
  };
  const Drawing drawing = drawn(blocks, 8);
  CHECK(drawing.offset == Offsets{0, 2, 3, 3, 2, 4});
  CHECK(drawing.height == 6);
}

TEST_CASE("the check sees an overlap, a height that is none, and a place below the ground") {
  const BlockLifetimes rows = lifetimes({{0, 4, 10}, {3, 6, 10}, {4, 8, 10}});
  CHECK(broken_drawing(rows, 8, {{0, 10, 0}, 20}) == "");
  CHECK(broken_drawing(rows, 8, {{0, 9, 19}, 29}) == "blocks 0 and 1 overlap");
  CHECK(broken_drawing(rows, 8, {{0, 10, 11}, 21}) == "blocks 1 and 2 overlap");
  CHECK(broken_drawing(rows, 8, {{0, 10, 0}, 21}) == "the height is not the highest upper edge");
  CHECK(broken_drawing(rows, 8, {{0, 10, -1}, 20}) == "a block has no place");
  CHECK(broken_drawing(rows, 8, {{0, 10}, 20}) == "not every block has an offset");
}

TEST_CASE("nothing is drawn of nothing") {
  CHECK(drawn({}, 0).height == 0);
  CHECK(drawn({}, 5).height == 0);
}

TEST_CASE("without events what was there is stacked in the order of the rows") {
  const Drawing drawing = drawn({{kNone, kForever, 4}, {kNone, kForever, 1}, {kNone, kForever, 2}}, 0);
  CHECK(drawing.offset == Offsets{0, 4, 5});
  CHECK(drawing.height == 7);
}

TEST_CASE("what lives long lies low, whenever it came and whatever its size") {
  const Drawing drawing = drawn({{0, 3, 50}, {1, kForever, 2}, {2, kForever, 100}, {4, 6, 1}}, 90);
  CHECK(drawing.offset == Offsets{102, 0, 2, 102});
}

TEST_CASE("a block that dies at an event makes room for one that is born there") {
  const Drawing drawing = drawn({{0, 4, 8}, {4, 8, 8}}, 9);
  CHECK(drawing.offset == Offsets{0, 0});
  CHECK(drawing.height == 8);
}

TEST_CASE("what has no bytes or no moment takes no place, and takes none from others") {
  const std::vector<Block> blocks = {
      {1, 5, 0}, {3, 3, 8}, {3, 3, 8}, {4, 2, 8}, {4, 2, 8}, {9, kForever, 8}, {12, 20, 8}, {0, 6, 8},
  };
  const Drawing drawing = drawn(blocks, 9);
  CHECK(drawing.offset == Offsets(8, 0));
  CHECK(drawing.height == 8);
}

TEST_CASE("a death behind the last event is no death") {
  const Drawing drawing = drawn({{0, 100, 8}, {1, 4, 3}, {2, 5, 3}, {3, 4, 1}}, 4);
  CHECK(drawing.offset == Offsets{0, 8, 11, 14});
  CHECK(drawing.height == 15);
}

TEST_CASE("what would lie higher than any memory is not drawn, and nothing overflows") {
  std::vector<Block> blocks(40, {kNone, kForever, kSizeLimit});
  Drawing drawing = drawn(blocks, 4);
  CHECK(drawing.offset[1] == kSizeLimit);
  CHECK(drawing.offset[2] == 0);
  CHECK(drawing.height == 2 * kSizeLimit);
  blocks.assign(40, {kNone, kForever, std::numeric_limits<Bytes>::max()});
  blocks.push_back({0, 2, 5});
  drawing = drawn(blocks, 4);
  CHECK(drawing.height == 5);
  blocks.assign(kManyBlocks + 10, {0, kForever, kSizeLimit - 1});  // more than are placed first
  CHECK(drawn(blocks, 4).height == 2 * (kSizeLimit - 1));
}

TEST_CASE("a block that comes after the longest-lived stays clear of those that rise while it lives") {
  std::vector<Block> blocks(kManyBlocks - 1, {kNone, kForever, 1});
  blocks.push_back({5, kForever, 10});  // the last that is placed before the others
  blocks.push_back({3, 7, 4});
  blocks.push_back({3, 5, 4});  // gone when that one rises
  blocks.push_back({5, 6, 4});  // born with it
  const Drawing drawing = drawn(blocks, 20);
  CHECK(drawing.offset[2999] == 2999);
  CHECK(drawing.offset[3000] == 3009);
  CHECK(drawing.offset[3001] == 2999);
  CHECK(drawing.offset[3002] == 3013);
  CHECK(drawing.height == 3017);
}

TEST_CASE("gaps that others left are taken, the smallest that fits first") {
  std::vector<Block> blocks(kManyBlocks, {kNone, kForever, 1});
  blocks.push_back({1, 4, 30});  // leaves a gap of 30 at 3000
  blocks.push_back({1, 9, 5});
  blocks.push_back({1, 4, 12});  // leaves a gap of 12 at 3035
  blocks.push_back({1, 9, 5});
  blocks.push_back({5, 9, 10});
  blocks.push_back({5, 9, 20});
  blocks.push_back({5, 9, 11});  // what is left is one byte too small
  const Drawing drawing = drawn(blocks, 20);
  CHECK(Offsets(drawing.offset.begin() + kManyBlocks, drawing.offset.end()) ==
        Offsets{3000, 3030, 3035, 3047, 3035, 3000, 3052});
}

// Blocks that an allocator could hand out: `num_initial` from before the recording, then births in order; some share
// one.
std::vector<Block> random_blocks(std::mt19937& random, int count, int num_initial, int num_events, int longest) {
  std::vector<Block> blocks;
  for (int i = 0; i < count; ++i) {
    const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
    const EventIndex birth =
        i < num_initial ? kNone
                        : static_cast<EventIndex>(std::int64_t{i - num_initial} * num_events / (count - num_initial));
    const EventIndex death = birth + 1 + below(below(10) ? longest : num_events);
    const Bytes size = below(50) ? 512 * (1 + below(below(4) ? 8 : 4000)) : 0;
    blocks.push_back({birth, death < num_events ? death : kForever, size});
  }
  return blocks;
}

TEST_CASE("random histories are drawn without an overlap") {
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    const int count = 1 + static_cast<int>(random() % 60);
    const int num_events = 1 + static_cast<int>(random() % 120);
    const int num_initial = static_cast<int>(random() % static_cast<unsigned>(count));
    drawn(random_blocks(random, count, num_initial, num_events, 12), num_events);
  }
}

TEST_CASE("more blocks than are placed first are drawn without an overlap") {
  std::mt19937 random(12);
  drawn(random_blocks(random, 5000, 10, 12'000, 300), 12'000);
  drawn(random_blocks(random, 5000, 4500, 2'000, 1'000), 2'000);  // nearly all from before the recording
  drawn(random_blocks(random, 5000, 0, 700, 200), 700);           // several to each birth
}

TEST_CASE("where very many blocks live long and begin at all times, fewer are placed first") {
  std::mt19937 random(13);
  constexpr int kCount = 60'000;
  const std::vector<Block> blocks = random_blocks(random, kCount, 0, 2 * kCount, kCount);
  const BlockLifetimes rows = lifetimes(blocks);
  const Drawing drawing = draw_blocks(rows, 2 * kCount);
  // Too many to compare each with each: what lives at some moments must not overlap.
  for (EventIndex event = 0; event < 2 * kCount; event += kCount / 3) {
    std::vector<std::pair<Bytes, Bytes>> live;
    for (std::size_t row = 0; row < blocks.size(); ++row) {
      const bool is_live = blocks[row].birth <= event && (blocks[row].death < 0 || blocks[row].death > event);
      if (is_live && blocks[row].size > 0) live.emplace_back(drawing.offset[row], blocks[row].size);
    }
    std::sort(live.begin(), live.end());
    for (std::size_t i = 1; i < live.size(); ++i) REQUIRE(live[i - 1].first + live[i - 1].second <= live[i].first);
  }
}

}  // namespace
}  // namespace ullage::test
