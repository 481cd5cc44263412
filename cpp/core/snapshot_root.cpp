// From the finished root object to the tables' final order: events by device, segments with their blocks, settings.
#include <algorithm>
#include <numeric>
#include <set>

#include "core/error.hpp"
#include "core/object_builder.hpp"

namespace ullage {
namespace {

template <typename Table>
void gather(Table& column, std::span<const std::int32_t> rows) {
  Table out;
  out.reserve(rows.size());
  for (const std::int32_t row : rows) out.push_back(column[static_cast<std::size_t>(row)]);
  column = std::move(out);
}

template <typename T>
void renumber(std::vector<std::pair<std::int32_t, T>>& column, const std::vector<std::int32_t>& new_row) {
  std::vector<std::pair<std::int32_t, T>> out;
  for (const auto& [row, value] : column) {
    const std::int32_t moved = new_row[static_cast<std::size_t>(row)];
    if (moved != kNone) out.emplace_back(moved, value);
  }
  column = std::move(out);
}

template <typename T>
void sort_by_row(std::vector<std::pair<std::int32_t, T>>& column) {
  const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (!std::is_sorted(column.begin(), column.end(), before)) std::stable_sort(column.begin(), column.end(), before);
}

}  // namespace

const ObjectBuilder::Pairs* ObjectBuilder::generic(Value value) const {
  static const Pairs kNoPairs;
  if (value.kind() != ValueKind::kDict) return nullptr;
  const DictRecord record = dicts_[value.row()];
  if (record.kind == RecordKind::kEmpty) return &kNoPairs;
  return record.kind == RecordKind::kGeneric ? &generic_[static_cast<std::size_t>(record.row)] : nullptr;
}

const Value* ObjectBuilder::find(Value dict, Key key) const {
  const Pairs* pairs = generic(dict);
  if (pairs == nullptr) return nullptr;
  for (std::size_t i = pairs->size(); i-- > 0;) {
    const auto& [name, value] = (*pairs)[i];
    if (name.kind() == ValueKind::kText && name.payload() == static_cast<std::uint64_t>(key)) return &value;
  }
  return nullptr;
}

std::span<const Value> ObjectBuilder::as_items(Value value, std::string_view what) const {
  if (value.kind() != ValueKind::kSequence) fail("a list of " + std::string(what), describe(value));
  const Sequence& sequence = sequences_[value.row()];
  if (sequence.is_spent) fail("a list of " + std::string(what), "a list of frames");
  return items_of(sequence);
}

DictRecord ObjectBuilder::record_of(Value value, RecordKind kind, std::string_view what) const {
  if (value.kind() != ValueKind::kDict || dicts_[value.row()].kind != kind) {
    fail("a dictionary that describes " + std::string(what), describe(value));
  }
  return dicts_[value.row()];
}

void ObjectBuilder::finish(Value root) {
  read_root(root);
  for (std::size_t key = 0; key < kKeyTexts.size(); ++key) {
    if (seen_ & (std::uint64_t{1} << key)) tables_.seen_keys.emplace_back(kKeyTexts[key]);
  }
  std::vector<DeviceTrace>& devices = tables_.devices;
  std::set<std::int32_t> known;
  for (const DeviceTrace& trace : devices) known.insert(trace.device);
  for (const std::int32_t device : tables_.segments.device) {
    if (known.insert(device).second) devices.push_back({device, 0, 0});
  }
  std::sort(devices.begin(), devices.end(), [](const auto& a, const auto& b) { return a.device < b.device; });
}

// The root is the dictionary of _snapshot(), or the bare list of segments of memory_snapshot().
void ObjectBuilder::read_root(Value root) {
  const Value none;
  if (root.kind() == ValueKind::kSequence) {
    finish_events(none);
    finish_segments(root);
    return;
  }
  if (generic(root) == nullptr) fail("a memory snapshot (a dictionary, or a list of segments)", describe(root));
  const Value* segments = find(root, Key::kSegments);
  const Value* traces = find(root, Key::kDeviceTraces);
  if (segments == nullptr && traces == nullptr) {
    fail("a memory snapshot with 'segments' or 'device_traces'", "a dictionary without either");
  }
  finish_events(traces ? *traces : none);
  if (segments) finish_segments(*segments);
  if (const Value* annotations = find(root, Key::kExternalAnnotations)) finish_annotations(*annotations);
  if (const Value* settings = find(root, Key::kAllocatorSettings)) flatten_settings("", *settings, 0);
  if (const Value* version = find(root, Key::kTorchVersion); version && version->kind() == ValueKind::kText) {
    tables_.torch_version = strings().at(static_cast<StringId>(version->payload()));
  }
  for (const auto& [key, value] : *generic(root)) {
    if (key.kind() == ValueKind::kText && key.row() >= kKeyTexts.size()) {
      note_unknown(key);
      // Some releases put the state of the ring buffer here; no other unknown key may pass for a setting.
      const std::string_view name = strings().at(static_cast<StringId>(key.payload()));
      if (name == "trace_alloc_overflowed" || name == "trace_alloc_max_entries") {
        flatten_settings(std::string(name), value, 3);
      }
    }
  }
}

void ObjectBuilder::finish_events(Value traces) {
  const std::size_t num_rows = tables_.events.size_rows();
  Column<std::int32_t> rows;
  if (traces.kind() != ValueKind::kNothing) {
    const std::span<const Value> devices = as_items(traces, "device traces");
    std::vector<std::uint8_t> taken(num_rows, 0);
    rows.reserve(num_rows);
    for (std::size_t device = 0; device < devices.size(); ++device) {
      if (devices[device].kind() == ValueKind::kNothing) continue;
      const std::span<const Value> events = as_items(devices[device], "events");
      if (events.empty()) continue;
      if (device >= 4096) fail("at most 4,096 devices", std::to_string(devices.size()));
      const auto begin = static_cast<std::int64_t>(rows.size());
      for (const Value item : events) {
        const std::int32_t row = record_of(item, RecordKind::kEvent, "an event (with 'action')").row;
        if (taken[static_cast<std::size_t>(row)]) fail("each event once", "an event that is listed twice");
        taken[static_cast<std::size_t>(row)] = 1;
        rows.push_back(row);
      }
      tables_.devices.push_back({static_cast<std::int32_t>(device), begin, static_cast<std::int64_t>(rows.size())});
    }
  }
  bool in_order = rows.size() == num_rows;
  for (std::size_t i = 0; in_order && i < rows.size(); ++i) in_order = rows[i] == static_cast<std::int32_t>(i);
  EventTable& events = tables_.events;
  for (auto* column : {&events.category, &events.compile_context, &events.user_metadata, &events.other_action}) {
    sort_by_row(*column);
  }
  sort_by_row(events.device_free);
  if (!in_order) reorder_events(rows);
}

void ObjectBuilder::reorder_events(const Column<std::int32_t>& rows) {
  EventTable& events = tables_.events;
  std::vector<std::int32_t> new_row(events.size_rows(), kNone);
  for (std::size_t i = 0; i < rows.size(); ++i)
    new_row[static_cast<std::size_t>(rows[i])] = static_cast<std::int32_t>(i);
  gather(events.action, rows);
  gather(events.address, rows);
  gather(events.size, rows);
  gather(events.stream, rows);
  gather(events.time, rows);
  gather(events.site, rows);
  gather(events.pool, rows);
  renumber(events.device_free, new_row);
  sort_by_row(events.device_free);
  for (auto* column : {&events.category, &events.compile_context, &events.user_metadata, &events.other_action}) {
    renumber(*column, new_row);
    sort_by_row(*column);
  }
}

void ObjectBuilder::finish_segments(Value segments) {
  tables_.has_segments = true;
  if (segments.kind() == ValueKind::kNothing) return;
  SegmentTable& table = tables_.segments;
  BlockTable& blocks = tables_.blocks;
  std::vector<std::int32_t> segment_rows, block_rows;
  std::vector<std::int64_t> begins, ends;
  std::vector<std::uint8_t> segment_taken(table.size_rows(), 0), block_taken(blocks.size_rows(), 0);
  for (const Value item : as_items(segments, "segments")) {
    const std::int32_t segment = record_of(item, RecordKind::kSegment, "a segment (with 'blocks')").row;
    const auto row = static_cast<std::size_t>(segment);
    if (segment_taken[row]) fail("each segment once", "a segment that is listed twice");
    segment_taken[row] = 1;
    segment_rows.push_back(segment);
    begins.push_back(static_cast<std::int64_t>(block_rows.size()));
    Address next = table.address[row];
    Bytes total = 0;
    if (table.blocks_begin[row] != kNone) {
      const Value blocks_list(ValueKind::kSequence, static_cast<std::uint64_t>(table.blocks_begin[row]));
      for (const Value inner : as_items(blocks_list, "blocks")) {
        const std::int32_t block = record_of(inner, RecordKind::kBlock, "a block (with 'state')").row;
        const auto block_row = static_cast<std::size_t>(block);
        if (block_taken[block_row]) fail("each block once", "a block that is listed twice");
        block_taken[block_row] = 1;
        block_rows.push_back(block);
        if (blocks.address[block_row] == 0) blocks.address[block_row] = next;  // torch 2.0 gives sizes alone
        next = blocks.address[block_row] + static_cast<Address>(blocks.size[block_row]);
        total += blocks.size[block_row];
        if (total >= kSizeLimit) fail("blocks of less than 2**60 bytes in a segment", "more");
        const bool is_active = blocks.state[block_row] != BlockState::kInactive;
        if (blocks.requested_size[block_row] == kNone) {
          blocks.requested_size[block_row] = is_active ? blocks.size[block_row] : 0;
        }
      }
    }
    if (table.total_size[row] == kNone) table.total_size[row] = total;
    ends.push_back(static_cast<std::int64_t>(block_rows.size()));
  }
  gather(table.device, segment_rows);
  gather(table.address, segment_rows);
  for (auto* column : {&table.total_size, &table.allocated_size, &table.active_size, &table.requested_size}) {
    gather(*column, segment_rows);
  }
  gather(table.stream, segment_rows);
  gather(table.pool_size, segment_rows);
  gather(table.pool, segment_rows);
  gather(table.is_expandable, segment_rows);
  gather(table.site, segment_rows);
  table.blocks_begin = std::move(begins);
  table.blocks_end = std::move(ends);
  gather(blocks.address, block_rows);
  gather(blocks.size, block_rows);
  gather(blocks.requested_size, block_rows);
  gather(blocks.state, block_rows);
  gather(blocks.site, block_rows);
}

void ObjectBuilder::finish_annotations(Value annotations) {
  if (annotations.kind() == ValueKind::kNothing) return;
  AnnotationTable& table = tables_.annotations;
  std::vector<std::int32_t> rows;
  for (const Value item : as_items(annotations, "annotations")) {
    if (item.kind() == ValueKind::kDict && dicts_[item.row()].kind == RecordKind::kAnnotation) {
      rows.push_back(dicts_[item.row()].row);
    }
  }
  gather(table.name, rows);
  gather(table.stage, rows);
  gather(table.device, rows);
  gather(table.time, rows);
}

void ObjectBuilder::flatten_settings(const std::string& prefix, Value value, int depth) {
  constexpr int kMaxDepth = 4;
  constexpr std::size_t kMaxSettings = 1000;
  constexpr std::size_t kMaxVisits = 100'000;  // a file can name one dictionary many times over
  if (tables_.settings.size() >= kMaxSettings || ++num_settings_visits_ > kMaxVisits) return;
  const auto inner = [&](std::string_view name) {
    const std::string last(name.substr(0, 80));
    return prefix.empty() ? last : prefix + "." + last;
  };
  switch (value.kind()) {
    case ValueKind::kBool: tables_.settings.emplace_back(prefix, value.payload() != 0); return;
    case ValueKind::kInt:
    case ValueKind::kWideInt: tables_.settings.emplace_back(prefix, as_integer(value, Key::kSize)); return;
    case ValueKind::kFloat: tables_.settings.emplace_back(prefix, floats_[value.row()]); return;
    case ValueKind::kText: {
      const std::string_view text = strings().at(static_cast<StringId>(value.payload()));
      tables_.settings.emplace_back(prefix, std::string(text.substr(0, 4096)));
      return;
    }
    case ValueKind::kSequence: {
      if (depth >= kMaxDepth) return;
      const std::span<const Value> items = items_of(sequences_[value.row()]);
      for (std::size_t i = 0; i < items.size() && i < kMaxSettings; ++i) {
        flatten_settings(inner(std::to_string(i)), items[i], depth + 1);
      }
      return;
    }
    case ValueKind::kDict:
      if (depth >= kMaxDepth || generic(value) == nullptr) return;
      for (const auto& [key, item] : *generic(value)) {
        if (key.kind() == ValueKind::kText) {
          flatten_settings(inner(strings().at(static_cast<StringId>(key.payload()))), item, depth + 1);
        }
      }
      return;
    default: return;
  }
}

}  // namespace ullage
