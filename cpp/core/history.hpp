// What reconstruction yields: for every block its birth, death, place and size; for every event the counters after it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/column.hpp"
#include "core/layout.hpp"
#include "core/tables.hpp"
#include "core/units.hpp"

namespace ullage {

// The allocator's four sums, in the order requested <= allocated <= active <= reserved (requested follows active: a
// block that waits for a stream still counts as requested).
enum class Counter : std::uint8_t { kRequested, kAllocated, kActive, kReserved };
using CounterValues = std::array<Bytes, 4>;

// One row for each time a block was handed out. Events are indices into the device's events; kNone for a birth before
// the first event, and for what has not happened by the last. A block that waited for its free to complete when the
// recording began has `free_requested` kBefore.
struct BlockLifetimes {
  Column<EventIndex> birth, free_requested, death;
  Column<Address> address;
  Column<Bytes> size, requested_size;
  Column<SiteId> site;
  Column<std::int32_t> segment;  // row of SegmentLifetimes
  Column<std::uint8_t> is_open;  // 1: the size may be larger by a tail that the history leaves open

  std::size_t size_rows() const { return birth.size(); }
  void reserve(std::size_t rows) {
    for (auto* column : {&birth, &free_requested, &death}) column->reserve(rows);
    for (auto* column : {&size, &requested_size}) column->reserve(rows);
    address.reserve(rows);
    site.reserve(rows);
    segment.reserve(rows);
    is_open.reserve(rows);
  }
};

// One row for each driver allocation, or mapped range of an expandable segment.
struct SegmentLifetimes {
  Column<EventIndex> birth, death;
  Column<Address> address;
  Column<Bytes> size;  // of a mapped range: the largest that it was
  Column<std::int64_t> stream;
  Column<std::int32_t> pool;  // row of Tables::pools; kNone: the default pool, or not known
  Column<PoolSize> pool_size;
  Column<std::uint8_t> is_expandable;
  Column<SiteId> site;

  std::size_t size_rows() const { return birth.size(); }
};

enum class HistoryKind : std::uint8_t {
  kComplete,  // nothing was there before the first event
  kPartial,   // something was: recording began late, or its ring buffer wrapped
  kNoEvents,  // only the final layout
};

// How the rebuilt state compares with what the file itself says.
struct Verification {
  std::int64_t allocs = 0, address_matches = 0;
  std::int64_t segments = 0, segment_matches = 0;
  std::int64_t final_blocks = 0, final_block_matches = 0;
  EventIndex first_mismatch = kNone;
};

struct History {
  HistoryKind kind = HistoryKind::kNoEvents;
  BlockLifetimes blocks;
  SegmentLifetimes segments;
  CounterValues before{};                                            // before the first event
  std::array<Column<Bytes>, 4> after;                                // by Counter, after each event
  CounterValues peak{};                                              // over the whole history
  std::array<EventIndex, 4> peak_event{kNone, kNone, kNone, kNone};  // the first event at which it was reached
  EventIndex fullest_event = kNone;  // of those with reserved at its peak, the one with the most active
  CounterValues end{};
  CounterValues recorded_end{};  // the same sums over the file's final segments
  bool has_recorded_end = false;
  std::int64_t num_device_alloc = 0, num_device_free = 0, num_ooms = 0;
  std::int64_t num_initial_blocks = 0;  // the first rows of `blocks`
  std::int64_t num_undetermined = 0;    // initial blocks whose size stays open
  Bytes undetermined_bytes = 0;         // by how much they could be larger, together
  std::int64_t num_conflicts = 0;       // contradictions between events and the state rebuilt so far
  EventIndex first_conflict = kNone;
  bool starts_inside_free = false;  // the first event completes a free whose request is not recorded
  Verification verification;
};

}  // namespace ullage
