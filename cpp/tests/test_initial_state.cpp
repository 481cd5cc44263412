#include <doctest/doctest.h>

#include "core/initial_state.hpp"
#include "trace_builder.hpp"

namespace ullage::test {
namespace {

constexpr Address kBase = 0x10000000;

InitialState initial_of(const TraceBuilder& builder) {
  return initial_state(builder.tables, builder.trace(), settings_of(builder.tables));
}

FinalBlock live(Bytes size, Bytes requested) { return {size, BlockState::kActiveAllocated, requested}; }
FinalBlock pending(Bytes size, Bytes requested) { return {size, BlockState::kActivePendingFree, requested}; }
FinalBlock rest(Bytes size) { return {size, BlockState::kInactive, 0}; }

TEST_CASE("a recording from the start begins with nothing") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 1000);
  builder.end_with({kBase, 2 * kMiB, {live(1024, 1000), rest(2 * kMiB - 1024)}, PoolSize::kSmall});
  const InitialState state = initial_of(builder);
  CHECK(state.segments.empty());
  CHECK(state.blocks.empty());
  CHECK(state.made_by.at(0).pool_size == PoolSize::kSmall);
}

TEST_CASE("a segment that no event made was there before, with its lasting blocks") {
  TraceBuilder builder;
  builder.end_with({kBase, 2 * kMiB, {live(1024, 1000), pending(512, 500), rest(2 * kMiB - 1536)}, PoolSize::kSmall});
  const InitialState state = initial_of(builder);
  REQUIRE(state.segments.size() == 1);
  REQUIRE(state.blocks.size() == 2);
  CHECK(state.blocks[0].size == 1024);
  CHECK(state.blocks[0].requested == 1000);
  CHECK_FALSE(state.blocks[0].is_pending);
  CHECK(state.blocks[1].is_pending);
}

TEST_CASE("a segment that an event freed was there before") {
  TraceBuilder builder;
  builder.segment_free(kBase, 20 * kMiB);
  builder.end_with({2 * kBase, 2 * kMiB});
  const InitialState state = initial_of(builder);
  REQUIRE(state.segments.size() == 2);
  CHECK(state.segments[0].address == kBase);
  CHECK(state.segments[0].size == 20 * kMiB);
}

TEST_CASE("mapped ranges are undone piece by piece") {
  TraceBuilder builder;
  builder.map(kBase + 2 * kMiB, 2 * kMiB).unmap(kBase + 6 * kMiB, 2 * kMiB);
  builder.end_with({kBase, 6 * kMiB, {}, PoolSize::kSmall, true});
  const InitialState state = initial_of(builder);
  REQUIRE(state.segments.size() == 2);
  CHECK(state.segments[0].address == kBase);
  CHECK(state.segments[0].size == 2 * kMiB);
  CHECK(state.segments[1].address == kBase + 4 * kMiB);
  CHECK(state.segments[1].size == 4 * kMiB);
  CHECK(state.segments[1].pool_size == PoolSize::kSmall);
}

TEST_CASE("an unmapped range that joins two ranges makes one of them") {
  TraceBuilder builder;
  builder.unmap(kBase + 2 * kMiB, 2 * kMiB);
  builder.end_with({kBase, 2 * kMiB, {}, PoolSize::kSmall, true});
  builder.end_with({kBase + 4 * kMiB, 2 * kMiB, {}, PoolSize::kSmall, true});
  const InitialState state = initial_of(builder);
  REQUIRE(state.segments.size() == 1);
  CHECK(state.segments[0].size == 6 * kMiB);
}

TEST_CASE("a block freed without an allocation was there before") {
  TraceBuilder builder;
  builder.free(kBase, 1000).complete_free(kBase + 1024, 500);
  builder.end_with({kBase, 2 * kMiB, {}, PoolSize::kSmall});
  const InitialState state = initial_of(builder);
  REQUIRE(state.blocks.size() == 2);
  CHECK(state.blocks[0].size == 1024);
  CHECK(state.blocks[0].max_tail == 0);
  CHECK_FALSE(state.blocks[0].is_pending);
  CHECK(state.blocks[1].is_pending);
}

TEST_CASE("a block freed and still waiting at the end has its size from there") {
  TraceBuilder builder;
  builder.request_free(kBase, 2 * kMiB);
  builder.end_with({kBase, 20 * kMiB, {pending(2 * kMiB + 512 * kKiB, 2 * kMiB), rest(18 * kMiB - 512 * kKiB)}});
  const InitialState state = initial_of(builder);
  REQUIRE(state.blocks.size() == 1);
  CHECK(state.blocks[0].size == 2 * kMiB + 512 * kKiB);
  CHECK(state.blocks[0].max_tail == 0);
}

// |  2 MiB freed  |   gap   | live |
Bytes size_before_gap(Bytes gap, Bytes* max_tail = nullptr, Bytes max_split_size = -1) {
  TraceBuilder builder;
  builder.free(kBase, 2 * kMiB).set("max_split_size", std::int64_t{max_split_size});
  builder.end_with({kBase, 20 * kMiB, {rest(2 * kMiB + gap), live(18 * kMiB - gap, 18 * kMiB - gap)}});
  const InitialState state = initial_of(builder);
  REQUIRE(state.blocks.size() == 2);
  if (max_tail) *max_tail = state.blocks[0].max_tail;
  return state.blocks[0].size;
}

TEST_CASE("a gap of up to 1 MiB behind a large block belongs to it") {
  CHECK(size_before_gap(512) == 2 * kMiB + 512);
  CHECK(size_before_gap(kMiB) == 3 * kMiB);
}

TEST_CASE("a larger gap leaves the tail open, by at most 1 MiB") {
  Bytes max_tail = 0;
  CHECK(size_before_gap(kMiB + 1024, &max_tail) == 2 * kMiB);
  CHECK(max_tail == 512);
  CHECK(size_before_gap(8 * kMiB, &max_tail) == 2 * kMiB);
  CHECK(max_tail == kMiB);
}

TEST_CASE("a block of max_split_size or more was never split") {
  CHECK(size_before_gap(8 * kMiB, nullptr, 2 * kMiB) == 10 * kMiB);
}

TEST_CASE("a block stops where the next begins") {
  TraceBuilder builder;
  builder.free(kBase, 4096).free(kBase + 1024, 512);
  builder.end_with({kBase, 2 * kMiB, {}, PoolSize::kSmall});
  const InitialState state = initial_of(builder);
  CHECK(state.blocks.at(0).size == 1024);
}

TEST_CASE("blocks outside every segment, and segments over others, are left out") {
  TraceBuilder builder;
  builder.free(kBase - 4096, 512);
  builder.end_with({kBase, 2 * kMiB});
  builder.end_with({kBase + kMiB, 2 * kMiB, {live(512, 500)}});
  builder.end_with({~Address{0} - 511, 2 * kMiB});
  builder.end_with({kBase + 64 * kMiB, 0});
  const InitialState state = initial_of(builder);
  CHECK(state.segments.size() == 1);
  CHECK(state.blocks.size() == 1);
}

TEST_CASE("unmapped ranges that join to more than half the address space are added without overflow") {
  TraceBuilder builder;
  constexpr Bytes kHuge = kSizeLimit - 512;
  for (int i = 0; i < 15; ++i) builder.unmap(static_cast<Address>(i) * static_cast<Address>(kHuge), kHuge);
  builder.end_with({~Address{0} - 4 * kMiB, 2 * kMiB});
  for (const LayoutSegment& segment : initial_of(builder).segments) CHECK(segment.size > 0);
}

TEST_CASE("many blocks that wait at the end are found without a search through all" * doctest::timeout(10)) {
  TraceBuilder builder;
  constexpr Address kCount = 200'000;
  std::vector<FinalBlock> blocks(kCount, pending(512, 512));
  for (Address i = 0; i < kCount; ++i) builder.request_free(kBase + 512 * (kCount - 1 - i), 512);
  builder.end_with({kBase, 512 * static_cast<Bytes>(kCount), blocks, PoolSize::kSmall});
  CHECK(initial_of(builder).blocks.size() == kCount);
}

}  // namespace
}  // namespace ullage::test
