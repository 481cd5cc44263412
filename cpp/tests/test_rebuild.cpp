#include <doctest/doctest.h>

#include "core/error.hpp"
#include "core/rebuild.hpp"
#include "layout_checks.hpp"
#include "trace_builder.hpp"

namespace ullage::test {
namespace {

constexpr Address kBase = 1 << 28;

FinalBlock live(Bytes size, Bytes requested) { return {size, BlockState::kActiveAllocated, requested}; }
FinalBlock rest(Bytes size) { return {size, BlockState::kInactive, 0}; }

std::string at_base(const std::string& blocks) { return std::to_string(kBase) + ":" + blocks; }
Bytes of(const CounterValues& values, Counter which) { return values[static_cast<std::size_t>(which)]; }

TEST_CASE("a block is born, requested free and dead at its events") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 1000).alloc(kBase + 1024, 600).free(kBase, 1000);
  const History history = builder.rebuild();
  CHECK(history.kind == HistoryKind::kComplete);
  CHECK(history.num_conflicts == 0);
  CHECK(history.blocks.birth == Column<EventIndex>{1, 2});
  CHECK(history.blocks.free_requested == Column<EventIndex>{3, kNone});
  CHECK(history.blocks.death == Column<EventIndex>{4, kNone});
  CHECK(history.blocks.size == Column<Bytes>{1024, 1024});
  CHECK(history.blocks.requested_size == Column<Bytes>{1000, 600});
  CHECK(history.verification.allocs == 2);
  CHECK(history.verification.address_matches == 2);
  CHECK(shape(builder.layout_after(kNone)).empty());
  CHECK(shape(builder.layout_after(2)) == at_base("1024a+1024a+2095104f"));
  CHECK(shape(builder.layout_after(3)) == at_base("1024p+1024a+2095104f"));
  CHECK(shape(builder.layout_after(4)) == at_base("1024f+1024a+2095104f"));
}

TEST_CASE("the counters follow each event and keep their peak") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 1000).free(kBase, 1000).segment_free(kBase, 2 * kMiB);
  const History history = builder.rebuild();
  CHECK(counters_after(history, 1) == CounterValues{1000, 1024, 1024, 2 * kMiB});
  CHECK(counters_after(history, 2) == CounterValues{1000, 0, 1024, 2 * kMiB});
  CHECK(counters_after(history, 3) == CounterValues{0, 0, 0, 2 * kMiB});
  CHECK(history.end == CounterValues{});
  CHECK(history.peak == CounterValues{1000, 1024, 1024, 2 * kMiB});
  CHECK(history.peak_event == std::array<EventIndex, 4>{1, 1, 1, 0});
  CHECK(history.num_device_alloc == 1);
  CHECK(history.num_device_free == 1);
  CHECK(history.segments.death == Column<EventIndex>{4});
}

TEST_CASE("a remainder of exactly 1 MiB is not split off; one of 512 bytes more is") {
  TraceBuilder whole;
  whole.segment_alloc(kBase, 20 * kMiB).alloc(kBase, 19 * kMiB);
  CHECK(shape(whole.last_layout()) == at_base("20971520a"));
  TraceBuilder split;
  split.segment_alloc(kBase, 20 * kMiB).alloc(kBase, 19 * kMiB - 512);
  CHECK(shape(split.last_layout()) == at_base("19922432a+1049088f"));
}

TEST_CASE("a block may wait for its stream until the end") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 512).request_free(kBase, 512);
  builder.alloc(kBase + 512, 512).complete_free(kBase + 512, 512).request_free(kBase + 512, 512);
  const History history = builder.rebuild();
  CHECK(history.blocks.death.at(0) == kNone);
  CHECK(of(history.end, Counter::kAllocated) == 0);
  CHECK(of(history.end, Counter::kActive) == 512);
  CHECK(history.num_conflicts == 1);  // the last event: its block was completed before it was requested
}

TEST_CASE("a recording without free_completed completes each free at its request") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 512).request_free(kBase, 512).alloc(kBase, 512);
  const History history = builder.rebuild();
  CHECK(history.num_conflicts == 0);
  CHECK(history.blocks.death == Column<EventIndex>{2, kNone});
}

TEST_CASE("the old action `free` requests and completes at once") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 512).add(Action::kFree, kBase, 512);
  const History history = builder.rebuild();
  CHECK(history.num_conflicts == 0);
  CHECK(history.blocks.death == Column<EventIndex>{2});
}

TEST_CASE("ooms are counted and change nothing; so do snapshots, annotations and unknown actions") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 512);
  for (const Action action : {Action::kOom, Action::kSnapshot, Action::kAnnotate, Action::kOther}) {
    builder.add(action, kBase, 4096);
  }
  const History history = builder.rebuild();
  CHECK(history.num_ooms == 1);
  CHECK(history.num_conflicts == 0);
  CHECK(counters_after(history, 5) == counters_after(history, 1));
}

TEST_CASE("a retry that frees a segment before it makes one predicts its address") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 20 * kMiB).alloc(kBase, 4 * kMiB).free(kBase, 4 * kMiB);
  builder.segment_free(kBase, 20 * kMiB).segment_alloc(2 * kBase, 30 * kMiB).alloc(2 * kBase, 30 * kMiB);
  const History history = builder.rebuild();
  CHECK(history.verification.allocs == 2);
  CHECK(history.verification.address_matches == 2);
}

TEST_CASE("verification names the first request that went elsewhere") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 512).alloc(kBase + 4096, 512);
  const History history = builder.rebuild();
  CHECK(history.verification.address_matches == 1);
  CHECK(history.verification.first_mismatch == 2);
  CHECK(history.first_conflict == 2);
}

TEST_CASE("a pool on the events keeps their segments apart") {
  TraceBuilder builder;
  builder.tables.pools = {{0, 0}, {0, 3}};
  builder.add(Action::kSegmentAlloc, kBase, 2 * kMiB, 0, 0).add(Action::kAlloc, kBase, 512, 0, 0);
  builder.add(Action::kSegmentAlloc, 2 * kBase, 2 * kMiB, 0, 1).add(Action::kAlloc, 2 * kBase, 512, 0, 1);
  builder.add(Action::kAlloc, 2 * kBase + 512, 512, 0, 1).add(Action::kAlloc, kBase + 512, 512, 0, 0);
  const History history = builder.rebuild();
  CHECK(history.segments.pool == Column<std::int32_t>{kNone, 1});
  CHECK(history.verification.address_matches == 4);
}

TEST_CASE("a segment that lasts has its pool from the final layout") {
  TraceBuilder builder;
  builder.tables.pools = {{1, 0}};
  builder.segment_alloc(kBase, 2 * kMiB);
  builder.end_with({kBase, 2 * kMiB, {}, PoolSize::kLarge, false, 0, 0});
  const History history = builder.rebuild();
  CHECK(history.segments.pool == Column<std::int32_t>{0});
  CHECK(history.segments.pool_size == Column<PoolSize>{PoolSize::kLarge});
}

TEST_CASE("a wrapped recording starts from what was there") {
  TraceBuilder builder;
  builder.complete_free(kBase, 512).free(kBase + 512, 1000).alloc(kBase, 512);
  builder.end_with(
      {kBase, 2 * kMiB, {live(512, 512), rest(1024), live(512, 300), rest(2 * kMiB - 2048)}, PoolSize::kSmall});
  const History history = builder.rebuild();
  CHECK(history.kind == HistoryKind::kPartial);
  CHECK(history.starts_inside_free);
  CHECK(history.num_initial_blocks == 3);
  CHECK(history.num_conflicts == 0);
  CHECK(history.before == CounterValues{512 + 1000 + 300, 1024 + 512, 512 + 1024 + 512, 2 * kMiB});
  CHECK(history.verification.final_block_matches == history.verification.final_blocks);
  CHECK(history.verification.segment_matches == 1);
  CHECK(shape(builder.layout_after(kNone)) == at_base("512p+1024a+512a+2095104f"));
}

// A block of 2 MiB from before the recording, with 18 MiB behind it, freed after `tail` of those were in use.
TraceBuilder with_tail(Bytes tail) {
  TraceBuilder builder;
  const Address next = kBase + static_cast<Address>(2 * kMiB + tail);
  builder.alloc(next, 4 * kMiB).free(kBase, 2 * kMiB).free(next, 4 * kMiB);
  builder.end_with({kBase, 20 * kMiB, {}});
  return builder;
}

TEST_CASE("the first request from behind a block of unknown size tells where it ends") {
  for (const Bytes tail : {Bytes{512}, kMiB}) {
    const TraceBuilder builder = with_tail(tail);
    const History history = builder.rebuild();
    CHECK(history.num_conflicts == 0);
    CHECK(history.num_undetermined == 0);
    CHECK(history.blocks.size.at(0) == 2 * kMiB + tail);
    CHECK(of(history.before, Counter::kActive) == 2 * kMiB + tail);
    CHECK(history.verification.address_matches == 1);
    CHECK(shape(builder.last_layout()) == at_base("20971520f"));
  }
}

TEST_CASE("a request right behind the block leaves no tail") {
  const History history = with_tail(0).rebuild();
  CHECK(history.num_conflicts == 0);
  CHECK(history.num_undetermined == 0);
  CHECK(history.blocks.size.at(0) == 2 * kMiB);
}

TEST_CASE("a request too far behind contradicts the rules") {
  const History history = with_tail(kMiB + 512).rebuild();
  CHECK(history.num_conflicts == 1);
  CHECK(history.first_conflict == 0);
}

TEST_CASE("a tail without evidence stays undetermined, and is bounded") {
  TraceBuilder builder;
  builder.free(kBase, 2 * kMiB);
  builder.end_with({kBase, 20 * kMiB, {}});
  const History history = builder.rebuild();
  CHECK(history.num_undetermined == 1);
  CHECK(history.undetermined_bytes == kMiB);
  CHECK(history.blocks.is_open.at(0) == 1);
  CHECK(history.num_conflicts == 0);
}

TEST_CASE("a segment freed with live blocks contradicts itself and frees them") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 512).alloc(kBase + 512, 512).segment_free(kBase, 2 * kMiB);
  const History history = builder.rebuild();
  CHECK(history.num_conflicts == 2);
  CHECK(history.first_conflict == 3);
  CHECK(history.blocks.death == Column<EventIndex>{3, 3});
  CHECK(history.end == CounterValues{});
}

TEST_CASE("a segment made over another ends the older one") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 512).segment_alloc(kBase + kMiB, 20 * kMiB);
  const History history = builder.rebuild();
  CHECK(history.num_conflicts == 2);
  CHECK(history.segments.death == Column<EventIndex>{2, kNone});
  CHECK(of(history.end, Counter::kReserved) == 20 * kMiB);
}

TEST_CASE("mapped ranges grow, close gaps and part again") {
  TraceBuilder builder;
  builder.set("expandable_segments", true);
  builder.map(kBase, 2 * kMiB).map(kBase + 4 * kMiB, 2 * kMiB).map(kBase + 2 * kMiB, 2 * kMiB);
  CHECK(shape(builder.last_layout()) == at_base("6291456f"));
  builder.unmap(kBase + 2 * kMiB, 2 * kMiB);
  CHECK(shape(builder.last_layout()) == at_base("2097152f ") + std::to_string(kBase + 4 * kMiB) + ":2097152f");
  const History history = builder.rebuild();
  CHECK(history.num_conflicts == 0);
  CHECK(history.segments.birth == Column<EventIndex>{0, 1, 3});
  CHECK(history.segments.death == Column<EventIndex>{kNone, 2, kNone});
  CHECK(history.segments.size == Column<Bytes>{6 * kMiB, 2 * kMiB, 2 * kMiB});
  CHECK(of(history.end, Counter::kReserved) == 4 * kMiB);
}

TEST_CASE("unmapping the whole range ends it") {
  TraceBuilder builder;
  builder.map(kBase, 4 * kMiB).unmap(kBase, 2 * kMiB).unmap(kBase + 2 * kMiB, 2 * kMiB);
  const History history = builder.rebuild();
  CHECK(history.segments.death == Column<EventIndex>{2});
  CHECK(of(history.end, Counter::kReserved) == 0);
  CHECK(builder.last_layout().segment_address.empty());
}

TEST_CASE("a range that is unmapped by the end has its pool from its first request") {
  TraceBuilder builder;
  builder.set("expandable_segments", true);
  builder.map(kBase, 2 * kMiB).alloc(kBase, 512).alloc(kBase + 512, 512).free(kBase, 512).free(kBase + 512, 512);
  builder.unmap(kBase, 2 * kMiB).map(2 * kBase, 20 * kMiB).alloc(2 * kBase, 2 * kMiB).free(2 * kBase, 2 * kMiB);
  builder.unmap(2 * kBase, 20 * kMiB);
  const History history = builder.rebuild();
  CHECK(history.segments.pool_size == Column<PoolSize>{PoolSize::kSmall, PoolSize::kLarge});
  CHECK(history.verification.address_matches == 3);
}

TEST_CASE("unmapping what is not mapped, or in use, contradicts the history") {
  TraceBuilder builder;
  builder.map(kBase, 2 * kMiB).alloc(kBase, 512).unmap(kBase, 2 * kMiB).unmap(2 * kBase, 2 * kMiB);
  builder.unmap(kBase + kMiB, 2 * kMiB).unmap(kBase + kMiB, 0);
  const History history = builder.rebuild();
  CHECK(history.num_conflicts == 4);
  CHECK(of(history.end, Counter::kReserved) == 2 * kMiB);
}

TEST_CASE("a request outside every segment implies one, and counts as reserved") {
  TraceBuilder builder;
  builder.alloc(kBase, 1000).free(kBase, 1000).segment_alloc(kBase, 2 * kMiB);
  const History history = builder.rebuild();
  CHECK(history.num_conflicts == 2);  // the request, and the segment over the implied one
  CHECK(counters_after(history, 0) == CounterValues{1000, 1024, 1024, 1024});
  CHECK(of(history.end, Counter::kReserved) == 2 * kMiB);
}

TEST_CASE("a request beside a far segment implies one of its own size") {
  TraceBuilder builder;
  const Address far = (Address{1} << 63) + 4096;
  builder.segment_alloc(far, 2 * kMiB).alloc(0, 512);
  CHECK(shape(builder.last_layout()) == "0:512a " + std::to_string(far) + ":2097152f");
}

TEST_CASE("events that run past the end of the address space are passed over") {
  TraceBuilder builder;
  const Address last = ~Address{0} - 511;
  builder.segment_alloc(last, 2 * kMiB)
      .map(last, 2 * kMiB)
      .unmap(last, 2 * kMiB)
      .alloc(last, 1000)
      .segment_alloc(kBase, 0);
  const History history = builder.rebuild();
  CHECK(history.num_conflicts == 5);
  CHECK(history.end == CounterValues{});
}

TEST_CASE("frees of nothing contradict the history and change nothing") {
  TraceBuilder builder;
  builder.request_free(kBase, 512).complete_free(kBase, 512).segment_free(kBase, 0);
  const History history = builder.rebuild();
  CHECK(history.num_conflicts == 3);
  CHECK(history.blocks.size_rows() == 0);
}

TEST_CASE("sizes that add up beyond 2**62 bytes are refused") {
  TraceBuilder builder;
  for (Address i = 0; i < 8; ++i) builder.segment_alloc(i << 61, kSizeLimit - 512);
  CHECK_THROWS_AS(builder.rebuild(), TraceError);
}

TEST_CASE("a recording without events has its final layout alone") {
  TraceBuilder builder;
  builder.end_with({kBase, 2 * kMiB, {live(512, 500), rest(2 * kMiB - 512)}, PoolSize::kSmall});
  const History history = builder.rebuild();
  CHECK(history.kind == HistoryKind::kNoEvents);
  CHECK(history.end == CounterValues{500, 512, 512, 2 * kMiB});
  CHECK(history.peak == history.end);
  CHECK(shape(builder.layout_after(kNone)) == at_base("512a+2096640f"));
}

TEST_CASE("layouts come one for each event asked for, also beyond the last") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).alloc(kBase, 512);
  const auto layouts = layouts_after(builder.tables, builder.trace(), {kNone, 0, 0, 1, 99});
  REQUIRE(layouts.size() == 5);
  CHECK(shape(layouts[0]).empty());
  CHECK(shape(layouts[1]) == shape(layouts[2]));
  CHECK(shape(layouts[3]) == shape(layouts[4]));
}

TEST_CASE("each device is rebuilt from its own rows") {
  TraceBuilder builder;
  builder.segment_alloc(kBase, 2 * kMiB).segment_alloc(kBase, 20 * kMiB).alloc(kBase, 512);
  const DeviceTrace first = {0, 0, 1};
  const DeviceTrace second = {1, 1, 3};
  CHECK(of(rebuild(builder.tables, first, {}).end, Counter::kReserved) == 2 * kMiB);
  const History history = rebuild(builder.tables, second, {});
  CHECK(of(history.end, Counter::kReserved) == 20 * kMiB);
  CHECK(history.blocks.birth == Column<EventIndex>{1});
}

TEST_CASE("many blocks in one segment before the recording are no contradiction") {
  TraceBuilder builder;
  constexpr Bytes kCount = 40'000;
  builder.end_with({kBase, 512 * kCount, std::vector<FinalBlock>(kCount, live(512, 512)), PoolSize::kSmall, true});
  CHECK(builder.rebuild().num_initial_blocks == kCount);
}

TEST_CASE("many segments in a row without a request are no hang" * doctest::timeout(10)) {
  TraceBuilder builder;
  for (Address i = 0; i < 200'000; ++i) builder.segment_alloc(kBase + (i << 22), 2 * kMiB);
  CHECK(builder.rebuild().num_device_alloc == 200'000);
}

}  // namespace
}  // namespace ullage::test
