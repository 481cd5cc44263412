// The columnar tables that a reader fills: one row an event, a segment, a block, an annotation.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/column.hpp"
#include "core/stacks.hpp"
#include "core/strings.hpp"
#include "core/units.hpp"

namespace ullage {

enum class Action : std::uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kSnapshot,
  kOom,
  kAnnotate,
  kFree,   // before torch 2.0's two-step free: requested and completed at once
  kOther,  // an action that this version does not know; kept, never interpreted
};

enum class BlockState : std::uint8_t { kInactive, kActiveAllocated, kActivePendingFree };
enum class PoolSize : std::uint8_t { kSmall, kLarge, kUnknown };
enum class Stage : std::uint8_t { kStart, kEnd, kOther };

struct PoolId {
  std::int64_t first = 0;
  std::int64_t second = 0;
  bool operator==(const PoolId&) const = default;
  bool is_default() const { return first == 0 && second == 0; }
};

struct Event {
  Action action = Action::kOther;
  Address address = 0;  // 0 where the file has none
  Bytes size = 0;
  std::int64_t stream = 0;
  TimeUs time = 0;
  SiteId site = kNone;
  std::int32_t pool = kNone;  // row of Tables::pools; kNone: not recorded (before torch 2.12)
};

// Events of every device in file order; a DeviceTrace names the rows of one device.
struct EventTable {
  Column<Action> action;
  Column<Address> address;
  Column<Bytes> size;
  Column<std::int64_t> stream;
  Column<TimeUs> time;
  Column<SiteId> site;
  Column<std::int32_t> pool;
  // What few rows have, as (row, value) ascending by row.
  std::vector<std::pair<std::int32_t, Bytes>> device_free;  // of oom events
  std::vector<std::pair<std::int32_t, StringId>> category, compile_context, user_metadata, other_action;

  std::size_t size_rows() const { return action.size(); }

  Event at(std::size_t row) const {
    return {action[row], address[row], size[row], stream[row], time[row], site[row], pool[row]};
  }
  void set(std::size_t row, const Event& event) {
    action[row] = event.action;
    address[row] = event.address;
    size[row] = event.size;
    stream[row] = event.stream;
    time[row] = event.time;
    site[row] = event.site;
    pool[row] = event.pool;
  }
  void push_back(const Event& event) {
    action.push_back(event.action);
    address.push_back(event.address);
    size.push_back(event.size);
    stream.push_back(event.stream);
    time.push_back(event.time);
    site.push_back(event.site);
    pool.push_back(event.pool);
  }
};

struct SegmentTable {
  std::vector<std::int32_t> device;
  std::vector<Address> address;
  std::vector<Bytes> total_size, allocated_size, active_size, requested_size;  // kNone: not recorded
  std::vector<std::int64_t> stream;
  std::vector<PoolSize> pool_size;
  std::vector<std::int32_t> pool;
  std::vector<std::uint8_t> is_expandable;
  std::vector<SiteId> site;
  std::vector<std::int64_t> blocks_begin, blocks_end;  // rows of BlockTable

  std::size_t size_rows() const { return address.size(); }
};

struct BlockTable {
  std::vector<Address> address;
  std::vector<Bytes> size, requested_size;
  std::vector<BlockState> state;
  std::vector<SiteId> site;

  std::size_t size_rows() const { return address.size(); }
};

struct AnnotationTable {
  std::vector<StringId> name;
  std::vector<Stage> stage;
  std::vector<std::int32_t> device;
  std::vector<TimeUs> time;
};

struct DeviceTrace {
  std::int32_t device = 0;
  std::int64_t events_begin = 0;
  std::int64_t events_end = 0;
};

// One allocator setting; nested dictionaries are flattened with dots ("roundup_power2_divisions.256").
using SettingValue = std::variant<bool, std::int64_t, double, std::string>;

struct Tables {
  StringTable strings;
  FrameTable frames;
  SiteTable sites;
  EventTable events;
  SegmentTable segments;
  BlockTable blocks;
  AnnotationTable annotations;
  std::vector<PoolId> pools;
  std::vector<DeviceTrace> devices;  // one for each device that has events or segments, ascending
  std::vector<std::pair<std::string, SettingValue>> settings;
  std::vector<std::string> seen_keys;     // keys of the format that occur: they tell the torch version apart
  std::vector<std::string> unknown_keys;  // keys that were carried past unread, each once
  std::string format;                     // "pickle" or "json"
  std::string torch_version;              // empty where the file does not say
  bool has_segments = false;              // false: the file has no `segments` at all
  std::uint64_t size_bytes = 0;           // of the file after decompression
};

}  // namespace ullage
