// Every plan is checked by the validator, which knows nothing of how it was made.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/placement/greedy.hpp"
#include "core/placement/placement.hpp"
#include "core/placement/recorded_buffers.hpp"
#include "core/placement/search.hpp"
#include "core/placement/section.hpp"
#include "core/placement/validate.hpp"

namespace ullage::test {
namespace {

Plan placed(const std::vector<Buffer>& buffers, Bytes alignment = 1, std::int64_t max_steps = 1'000'000) {
  PlaceOptions options;
  options.alignment = alignment;
  options.max_steps = max_steps;
  Plan plan = place(buffers, options);
  CHECK(validate(buffers, plan, alignment) == "");
  CHECK(plan.height >= plan.largest_live);
  return plan;
}

std::vector<Buffer> random_buffers(std::mt19937& random, std::size_t count, std::int64_t span, Bytes largest) {
  std::vector<Buffer> buffers(count);
  for (Buffer& buffer : buffers) {
    buffer.size = static_cast<Bytes>(random()) % (largest + 1);
    buffer.begin = static_cast<std::int64_t>(random()) % span;
    buffer.end = buffer.begin + static_cast<std::int64_t>(random()) % (span / 3 + 1);
  }
  return buffers;
}

// A full rectangle, cut by turns in time and in space: its best height is known.
void cut(std::mt19937& random, Buffer whole, int depth, std::vector<Buffer>& out) {
  const bool is_in_time = random() % 2 == 0;
  const std::int64_t extent = is_in_time ? whole.end - whole.begin : whole.size;
  if (depth == 0 || extent < 2) {
    out.push_back(whole);
    return;
  }
  const std::int64_t at = 1 + static_cast<std::int64_t>(random()) % (extent - 1);
  Buffer first = whole, second = whole;
  if (is_in_time) {
    first.end = second.begin = whole.begin + at;
  } else {
    first.size = at;
    second.size = whole.size - at;
  }
  cut(random, first, depth - 1, out);
  cut(random, second, depth - 1, out);
}

// Whether the buffers from `next` on fit below a height, whatever whole offsets they take: every one is tried.
bool fits_somehow(const std::vector<Buffer>& buffers, Bytes height, std::vector<Bytes>& offset, std::size_t next = 0) {
  if (next == buffers.size()) return true;
  const Buffer& one = buffers[next];
  for (offset[next] = 0; offset[next] + one.size <= height; ++offset[next]) {
    bool is_free = true;
    for (std::size_t i = 0; i < next && is_free; ++i) {
      const Buffer& other = buffers[i];
      const bool meets = one.begin < other.end && other.begin < one.end;
      is_free = !meets || offset[next] + one.size <= offset[i] || offset[i] + other.size <= offset[next];
    }
    if (is_free && fits_somehow(buffers, height, offset, next + 1)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("nothing needs nothing") {
  CHECK(placed({}).height == 0);
  CHECK(placed({{0, 0, 5}, {7, 3, 3}}).height == 0);
}

TEST_CASE("buffers that are never live together share their place") {
  const Plan plan = placed({{10, 0, 2}, {20, 2, 4}, {5, 9, 12}});
  CHECK(plan.height == 20);
  CHECK(plan.offset == std::vector<Bytes>{0, 0, 0});
}

TEST_CASE("the drawing in placement.hpp: a gap between two is used") {
  const Plan plan = placed({{2, 0, 3}, {3, 0, 7}, {2, 4, 7}, {4, 8, 10}});
  CHECK(plan.largest_live == 5);
  CHECK(plan.height == 5);
}

TEST_CASE("minimalloc's example fits into 12") {
  // As drawn in its README: five buffers, largest live sum 12.
  CHECK(placed({{4, 0, 3}, {4, 3, 9}, {4, 0, 9}, {4, 9, 21}, {4, 0, 21}}).height == 12);
}

TEST_CASE("sizes are rounded up to the alignment") {
  const Plan plan = placed({{1, 0, 2}, {513, 1, 3}}, 512);
  CHECK(plan.height == 1536);
  CHECK(plan.largest_live == 1536);
}

TEST_CASE("rectangles cut from a full one fit into it again") {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    std::vector<Buffer> buffers;
    cut(random, {1000, 0, 100}, 4, buffers);
    const Plan plan = placed(buffers, 1, 50'000'000);
    CHECK(plan.largest_live == 1000);
    CHECK(plan.height == 1000);
  }
}

TEST_CASE("the search proves that nothing fits below the bound") {
  Section section;
  std::vector<Bytes> settled;
  const std::vector<Buffer> buffers{{1, 0, 2}, {2, 1, 3}, {1, 2, 4}, {1, 0, 1}, {1, 0, 1}, {2, 3, 5}, {1, 4, 6}};
  for (Section& one : sections_of(buffers, settled)) {
    Search search(one);
    const std::vector<std::uint32_t> rank(one.buffers.size(), 0);
    CHECK(search.run(one.bound - 1, rank, 1'000'000) == SearchEnd::kNoneExists);
    CHECK(search.run(2 * one.bound, rank, 1'000'000) == SearchEnd::kFound);
  }
}

TEST_CASE(
    "no branch is cut off that leads to a placement: where the search finds none, trying every offset finds none") {
  std::mt19937 random(8);
  for (int round = 0; round < 5'000; ++round) {
    CAPTURE(round);
    // What filled a rectangle, with some sizes swapped, seldom leaves room to spare.
    std::vector<Buffer> buffers;
    cut(random, {12, 0, 12}, 4, buffers);
    for (int swaps = 0; swaps < 3; ++swaps) {
      std::swap(buffers[random() % buffers.size()].size, buffers[random() % buffers.size()].size);
    }
    std::vector<Bytes> settled;
    for (const Section& section : sections_of(buffers, settled)) {
      std::vector<std::uint32_t> rank(section.buffers.size());
      std::iota(rank.begin(), rank.end(), 0U);
      std::shuffle(rank.begin(), rank.end(), random);
      Search search(section);
      std::vector<Bytes> offset(section.buffers.size());
      Bytes height = section.bound;
      for (;; ++height) {
        const SearchEnd how = search.run(height, rank, 100'000'000);
        if (how == SearchEnd::kFound) break;
        REQUIRE(how == SearchEnd::kNoneExists);
        REQUIRE_FALSE(fits_somehow(section.buffers, height, offset));
      }
      const Plan plan{search.offset(), height, section.bound};
      CHECK(validate(section.buffers, plan, 1).find("overlaps") == std::string::npos);
      for (std::size_t i = 0; i < offset.size(); ++i) REQUIRE(plan.offset[i] + section.buffers[i].size <= height);
    }
  }
}

TEST_CASE("random plans are valid, and the same when made again") {
  std::mt19937 random(1);
  for (int round = 0; round < 150; ++round) {
    const std::size_t count = 1 + random() % 60;
    const Bytes alignment = round % 3 == 0 ? 64 : 1;
    const std::vector<Buffer> buffers = random_buffers(random, count, 1 + round, 1 + round * 10);
    const Plan plan = placed(buffers, alignment);
    CHECK(placed(buffers, alignment).offset == plan.offset);
  }
}

TEST_CASE("many buffers are placed too") {
  std::mt19937 random(3);
  const std::vector<Buffer> buffers = random_buffers(random, 5000, 2000, 1000);
  CHECK(placed(buffers).height > 0);
}

TEST_CASE("what cannot be placed is refused") {
  CHECK_THROWS_AS(place({{-1, 0, 1}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(place({{kSizeLimit, 0, 1}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(place({{kSizeLimit / 2, 0, 1}, {kSizeLimit / 2, 5, 6}}, {}), std::invalid_argument);
  PlaceOptions options;
  options.alignment = 0;
  CHECK_THROWS_AS(place({{1, 0, 1}}, options), std::invalid_argument);
}

TEST_CASE("the validator sees each kind of fault") {
  const std::vector<Buffer> buffers{{4, 0, 2}, {4, 1, 3}};
  CHECK(validate(buffers, {{0, 4}, 8, 8}, 4) == "");
  CHECK(validate(buffers, {{0, 2}, 6, 8}, 1).find("overlaps") != std::string::npos);
  CHECK(validate(buffers, {{0, 0}, 4, 8}, 1).find("overlaps") != std::string::npos);
  CHECK(validate(buffers, {{0, 6}, 10, 8}, 4).find("aligned") != std::string::npos);
  CHECK(validate(buffers, {{0, 4}, 9, 8}, 1).find("height") != std::string::npos);
  CHECK(validate(buffers, {{0, 4}, 8, 7}, 1).find("largest live") != std::string::npos);
  CHECK(validate(buffers, {{-4, 4}, 8, 8}, 1).find("below 0") != std::string::npos);
  CHECK(validate(buffers, {{0}, 4, 8}, 1).find("not one offset") != std::string::npos);
}

TEST_CASE("a recording's buffers live from the request to the end of the free") {
  RequestStream stream;
  stream.size = {100, 1000, 512, 7};
  stream.num_initial = 2;
  stream.ops = {{OpKind::kRequest, 0, kNone},   {OpKind::kRequest, 1, kNone},   {OpKind::kFreeRequested, 0, 0},
                {OpKind::kRequest, 2, 1},       {OpKind::kFreeCompleted, 0, 2}, {OpKind::kFailedRequest, 3, 3},
                {OpKind::kEmptyCache, kNone, 4}};
  const std::vector<Buffer> buffers = recorded_buffers(stream);
  REQUIRE(buffers.size() == 4);
  CHECK(buffers[0].size == 512);
  CHECK(buffers[0].begin == 0);
  CHECK(buffers[0].end == 4);
  CHECK(buffers[1].size == 1024);
  CHECK(buffers[1].begin == 0);
  CHECK(buffers[1].end == 7);
  CHECK(buffers[2].begin == 3);
  CHECK(buffers[3].begin == buffers[3].end);
}

}  // namespace ullage::test
