// The core against a naive allocator on random programs, and on events that agree with nothing.
#include <doctest/doctest.h>

#include <numeric>

#include "core/error.hpp"
#include "core/rebuild.hpp"
#include "layout_checks.hpp"
#include "naive_allocator.hpp"

namespace ullage::test {
namespace {

AllocatorSettings settings_for(unsigned seed) {
  AllocatorSettings settings;
  settings.expandable_segments = seed % 3 == 1;
  if (seed % 3 == 2) settings.max_split_size = 20 * kMiB;
  return settings;
}

NaiveAllocator ran(unsigned seed, int num_steps) {
  NaiveAllocator allocator(settings_for(seed), seed);
  for (int i = 0; i < num_steps; ++i) allocator.step();
  allocator.finish();
  return allocator;
}

std::vector<LayoutTable> layouts_of_all(const TraceBuilder& builder) {
  std::vector<EventIndex> events(builder.tables.events.size_rows());
  std::iota(events.begin(), events.end(), 0);
  return layouts_after(builder.tables, builder.trace(), events);
}

// Every layout keeps the invariants, and the counters are what it stands for.
void check_layouts(const History& history, const std::vector<LayoutTable>& layouts) {
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    REQUIRE(broken_invariant(layouts[i]) == "");
    REQUIRE(counters_of(layouts[i]) == counters_after(history, i));
  }
}

TEST_CASE("a random program is rebuilt layout by layout, and every address predicted") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const NaiveAllocator allocator = ran(seed, 400);
    const std::vector<LayoutTable> layouts = layouts_of_all(allocator.trace);
    const History history = allocator.trace.rebuild();
    REQUIRE(layouts.size() == allocator.shapes.size());
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      CAPTURE(i);
      REQUIRE(shape(layouts[i]) == allocator.shapes[i]);
    }
    check_layouts(history, layouts);
    CHECK(history.kind == HistoryKind::kComplete);
    CHECK(history.num_conflicts == 0);
    CHECK(history.verification.allocs > 100);
    CHECK(history.verification.address_matches == history.verification.allocs);
    CHECK(history.verification.segment_matches == history.verification.segments);
    CHECK(history.verification.final_block_matches == history.verification.final_blocks);
  }
}

// The trace without its first events, as a ring buffer leaves it.
TraceBuilder wrapped(const TraceBuilder& whole, std::size_t num_lost) {
  TraceBuilder out;
  out.tables.settings = whole.tables.settings;
  out.tables.segments = whole.tables.segments;
  out.tables.blocks = whole.tables.blocks;
  out.tables.has_segments = true;
  const EventTable& events = whole.tables.events;
  for (std::size_t i = num_lost; i < events.size_rows(); ++i) {
    out.add(events.action[i], events.address[i], events.size[i], events.stream[i]);
  }
  return out;
}

TEST_CASE("a random program whose beginning is lost is rebuilt, but for tails that nothing tells") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    for (const std::size_t num_lost : {1, 50, 200}) {
      CAPTURE(seed);
      CAPTURE(num_lost);
      const NaiveAllocator allocator = ran(seed, 400);
      const TraceBuilder window = wrapped(allocator.trace, num_lost);
      const std::vector<LayoutTable> layouts = layouts_of_all(window);
      const History history = window.rebuild();
      check_layouts(history, layouts);
      CHECK(history.num_conflicts == 0);
      CHECK(history.verification.final_block_matches == history.verification.final_blocks);
      CHECK(shape(layouts.back()) == allocator.shapes.back());
      if (history.num_undetermined > 0) continue;
      for (std::size_t i = 0; i < layouts.size(); ++i) REQUIRE(shape(layouts[i]) == allocator.shapes[num_lost + i]);
    }
  }
}

// Events that agree with nothing, at the same few addresses so that they meet.
TraceBuilder nonsense(unsigned seed) {
  std::mt19937_64 random(seed);
  constexpr Bytes kSizes[] = {0, 1, 512, 4096, kMiB, 2 * kMiB, 2 * kMiB + 512, 20 * kMiB, kSizeLimit - 1};
  const Address origins[] = {0, Address{1} << 30, (Address{1} << 63) - 2 * kMiB, ~Address{0} - 8 * kMiB + 1};
  const auto address = [&] { return origins[random() % 100 < 85 ? 1 : random() % 4] + 512 * 1024 * (random() % 24); };
  const auto size = [&] { return kSizes[random() % 100 < 97 ? random() % 8 : 8]; };
  TraceBuilder builder;
  builder.tables.pools = {{0, 0}, {0, 1}};
  builder.set("expandable_segments", seed % 2 == 0);
  if (seed % 5 == 0) builder.set("max_split_size", std::int64_t{20 * kMiB});
  const auto pool = [&] { return static_cast<std::int32_t>(random() % 3) - 1; };
  for (int i = 0; i < 300; ++i) {
    const auto action = static_cast<Action>(random() % 12);
    builder.add(action, address(), size(), random() % 8 == 0 ? 7 : 0, random() % 8 == 0 ? pool() : kNone);
  }
  for (unsigned i = 0; i < seed % 7; ++i) {
    FinalSegment last{address(), size(), {}, static_cast<PoolSize>(random() % 3), random() % 2 == 0, 0, pool()};
    for (int block = 0; block < 4; ++block)
      last.blocks.push_back({size() / 4, static_cast<BlockState>(random() % 3), size()});
    builder.end_with(last);
  }
  return builder;
}

TEST_CASE("a history that contradicts itself keeps the invariants after each event") {
  int num_rebuilt = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const TraceBuilder builder = nonsense(seed);
    try {
      const History history = builder.rebuild();
      check_layouts(history, layouts_of_all(builder));
      ++num_rebuilt;
    } catch (const TraceError&) {}
  }
  CHECK(num_rebuilt > 150);
}

}  // namespace
}  // namespace ullage::test
