// How each key of an event, a frame, a segment, a block or an annotation becomes a cell of a table.
#include <limits>

#include "core/error.hpp"
#include "core/object_builder.hpp"

namespace ullage {
namespace {

struct ActionWord {
  std::string_view text;
  Action action;
};

constexpr ActionWord kActionWords[] = {
    {"alloc", Action::kAlloc},
    {"free_requested", Action::kFreeRequested},
    {"free_completed", Action::kFreeCompleted},
    {"segment_alloc", Action::kSegmentAlloc},
    {"segment_free", Action::kSegmentFree},
    {"segment_map", Action::kSegmentMap},
    {"segment_unmap", Action::kSegmentUnmap},
    {"snapshot", Action::kSnapshot},
    {"oom", Action::kOom},
    {"annotate", Action::kAnnotate},
    {"free", Action::kFree},
};

Action action_of(std::string_view text) {
  for (const ActionWord& word : kActionWords) {
    if (word.text == text) return word.action;
  }
  return Action::kOther;
}

std::string quoted(Key key) { return "'" + std::string(kKeyTexts[static_cast<std::size_t>(key)]) + "'"; }

}  // namespace

std::string ObjectBuilder::describe(Value value) const {
  switch (value.kind()) {
    case ValueKind::kNothing: return "None";
    case ValueKind::kBool: return value.payload() ? "True" : "False";
    case ValueKind::kInt: return "the integer " + std::to_string(value.number());
    case ValueKind::kWideInt: {
      const WideInt& wide = wide_[value.row()];
      if (wide.overflows) return "an integer of more than 64 bits";
      return "the integer " +
             (wide.is_negative ? std::to_string(static_cast<std::int64_t>(wide.low)) : std::to_string(wide.low));
    }
    case ValueKind::kFloat: return "the number " + std::to_string(floats_[value.row()]);
    case ValueKind::kText: {
      const std::string text(tables_.strings.at(static_cast<StringId>(value.payload())).substr(0, 40));
      return "the text '" + text + "'";
    }
    case ValueKind::kDict: return "a dictionary";
    default: return "a list";
  }
}

std::int64_t ObjectBuilder::as_rare_integer(Value value, Key key) const {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  switch (value.kind()) {
    case ValueKind::kNothing: return 0;
    case ValueKind::kInt: return value.number();
    case ValueKind::kBool: return value.payload() ? 1 : 0;
    case ValueKind::kWideInt: {
      const WideInt& wide = wide_[value.row()];
      if (wide.overflows) return wide.is_negative ? kMin : kMax;
      if (!wide.is_negative && wide.low > static_cast<std::uint64_t>(kMax)) return kMax;
      return static_cast<std::int64_t>(wide.low);
    }
    default: fail("an integer for " + quoted(key), describe(value));
  }
}

Action ObjectBuilder::action_of_new_text(StringId text) {
  const auto row = static_cast<std::size_t>(text);
  if (row >= actions_.size()) actions_.resize(row + 1, kActionUnknown);
  if (actions_[row] == kActionUnknown) actions_[row] = static_cast<std::uint8_t>(action_of(strings().at(text)));
  return static_cast<Action>(actions_[row]);
}

// libtorch writes addresses as signed 64-bit integers, so a negative one stands for its two's complement.
Address ObjectBuilder::as_rare_address(Value value, Key key) const {
  if (value.kind() != ValueKind::kWideInt) return static_cast<Address>(as_integer(value, key));
  const WideInt& wide = wide_[value.row()];
  if (wide.overflows) fail("a 64-bit address for " + quoted(key), "a larger integer");
  return wide.low;
}

void ObjectBuilder::fail_size(Value value, Key key) const {
  fail("a size in bytes below 2**60 for " + quoted(key), describe(value));
}

StringId ObjectBuilder::as_text(Value value, Key key) const {
  if (value.kind() == ValueKind::kNothing) return kNone;
  if (value.kind() != ValueKind::kText) fail("text for " + quoted(key), describe(value));
  return static_cast<StringId>(value.payload());
}

// Fills `stack_frames_` with the frames among some values; says whether all are.
bool ObjectBuilder::collect_frames(const Value* first, const Value* last) {
  stack_frames_.clear();
  for (const Value* item = first; item != last; ++item) {
    if (item->kind() != ValueKind::kDict) continue;
    const DictRecord record = dicts_[item->row()];
    if (record.kind == RecordKind::kFrame) stack_frames_.push_back(record.row);
  }
  return stack_frames_.size() == static_cast<std::size_t>(last - first);
}

// The sequence means the collected frames. If it holds nothing else, it gives up its items: many files write each stack
// anew, and what the list held lives on in the site.
void ObjectBuilder::set_site(Sequence& sequence, bool is_stack) {
  sequence.site = stack_frames_.empty() ? kNone : tables_.sites.intern(stack_frames_);
  sequence.site_known = true;
  if (!is_stack) return;
  if (sequence.items != kNone) item_lists_[static_cast<std::size_t>(sequence.items)] = {};
  sequence.items = kNone;
  sequence.is_spent = true;
}

SiteId ObjectBuilder::as_site(Value value) {
  if (value.kind() == ValueKind::kNothing) return kNone;
  if (value.kind() != ValueKind::kSequence) fail("a list of frames", describe(value));
  Sequence& sequence = sequences_[value.row()];
  if (sequence.site_known) return sequence.site;
  const std::span<const Value> items = items_of(sequence);
  const bool is_stack = collect_frames(items.data(), items.data() + items.size());
  set_site(sequence, is_stack && !items.empty());
  return sequence.site;
}

std::int32_t ObjectBuilder::as_pool(Value value, Key key) {
  if (value.kind() == ValueKind::kNothing) return kNone;
  const std::span<const Value> items =
      value.kind() == ValueKind::kSequence ? items_of(sequences_[value.row()]) : std::span<const Value>();
  if (items.size() != 2) fail("a pair of integers for " + quoted(key), describe(value));
  const PoolId id{as_integer(items[0], key), as_integer(items[1], key)};
  const auto next = static_cast<std::int32_t>(tables_.pools.size());
  const auto [found, is_new] = pool_rows_.try_emplace({id.first, id.second}, next);
  if (!is_new) return found->second;
  if (next >= 4096) fail("at most 4,096 memory pools", "more");
  tables_.pools.push_back(id);
  return next;
}

void ObjectBuilder::note_unknown(Value key) {
  if (key.kind() != ValueKind::kText) return;
  if (key.row() >= unknown_seen_.size()) unknown_seen_.resize(strings().size(), 0);
  if (unknown_seen_[key.row()] || tables_.unknown_keys.size() >= 64) return;
  unknown_seen_[key.row()] = 1;
  tables_.unknown_keys.emplace_back(strings().at(static_cast<StringId>(key.payload())).substr(0, 80));
}

void ObjectBuilder::set_field(std::size_t dict, Value key, Value value) {
  const DictRecord record = dicts_[dict];
  const auto row = static_cast<std::size_t>(record.row);
  if (record.kind == RecordKind::kGeneric) {
    generic_[row].emplace_back(key, value);
    return;
  }
  if (key.kind() != ValueKind::kText || key.row() >= kKeyTexts.size()) return note_unknown(key);
  const auto word = static_cast<Key>(key.payload());
  switch (record.kind) {
    case RecordKind::kEvent: {
      Event event = tables_.events.at(row);
      set_event_field(event, row, word, value);
      return tables_.events.set(row, event);
    }
    case RecordKind::kSegment: return set_segment_field(row, word, value);
    case RecordKind::kBlock: return set_block_field(row, word, value);
    case RecordKind::kFrame: return set_frame_field(dict, word, value);
    case RecordKind::kAnnotation: return set_annotation_field(row, word, value);
    default: return;
  }
}

// Called nine times an event. `row` is the event's, also where it is not in the table yet.
inline __attribute__((always_inline)) void ObjectBuilder::set_event_field(Event& event, std::size_t row, Key key,
                                                                          Value value) {
  EventTable& events = tables_.events;
  const auto row_index = static_cast<std::int32_t>(row);
  const auto note = [&](auto& column) {
    if (value.kind() != ValueKind::kText || value.payload() == not_available_ || value.payload() == empty_text_) return;
    column.emplace_back(row_index, static_cast<StringId>(value.payload()));
  };
  switch (key) {
    case Key::kAction: {
      const StringId text = as_text(value, key);
      event.action = text == kNone ? Action::kOther : action_of_text(text);
      if (event.action == Action::kOther && text != kNone) events.other_action.emplace_back(row_index, text);
      return;
    }
    case Key::kAddr: event.address = as_address(value, key); return;
    case Key::kSize: event.size = as_size(value, key); return;
    case Key::kStream: event.stream = as_integer(value, key); return;
    case Key::kTimeUs: event.time = as_integer(value, key); return;
    case Key::kFrames: event.site = as_site(value); return;
    case Key::kPoolId: event.pool = as_pool(value, key); return;
    case Key::kDeviceFree: events.device_free.emplace_back(row_index, as_integer(value, key)); return;
    case Key::kCategory: return note(events.category);
    case Key::kCompileContext: return note(events.compile_context);
    case Key::kUserMetadata: return note(events.user_metadata);
    default: return note_unknown({ValueKind::kText, static_cast<std::uint64_t>(key)});
  }
}

// The stack's pairs from `first` on become fields of the event.
void ObjectBuilder::set_event_fields(Event& event, std::size_t row, std::size_t first) {
  const Value* const end = stack_.end();
  std::uint64_t seen = 0;
  for (const Value* pair = stack_.begin() + first; pair < end; pair += 2) {
    const Value key = pair[0];
    if (key.kind() == ValueKind::kText && key.row() < kKeyTexts.size()) {
      seen |= std::uint64_t{1} << key.row();
      set_event_field(event, row, static_cast<Key>(key.payload()), pair[1]);
    } else {
      note_unknown(key);
    }
  }
  seen_ |= seen;
}

void ObjectBuilder::set_segment_field(std::size_t row, Key key, Value value) {
  SegmentTable& segments = tables_.segments;
  switch (key) {
    case Key::kDevice: {
      const std::int64_t device = as_integer(value, key);
      if (device < 0 || device >= 4096) fail("a device number from 0 to 4095", describe(value));
      segments.device[row] = static_cast<std::int32_t>(device);
      return;
    }
    case Key::kAddress: segments.address[row] = as_address(value, key); return;
    case Key::kTotalSize: segments.total_size[row] = as_size(value, key); return;
    case Key::kAllocatedSize: segments.allocated_size[row] = as_size(value, key); return;
    case Key::kActiveSize: segments.active_size[row] = as_size(value, key); return;
    case Key::kRequestedSize: segments.requested_size[row] = as_size(value, key); return;
    case Key::kStream: segments.stream[row] = as_integer(value, key); return;
    case Key::kSegmentPoolId: segments.pool[row] = as_pool(value, key); return;
    case Key::kIsExpandable: segments.is_expandable[row] = as_integer(value, key) != 0; return;
    case Key::kFrames: segments.site[row] = as_site(value); return;
    case Key::kSegmentType: {
      const StringId text = as_text(value, key);
      const std::string_view word = text == kNone ? "" : strings().at(text);
      segments.pool_size[row] = word == "small"   ? PoolSize::kSmall
                                : word == "large" ? PoolSize::kLarge
                                                  : PoolSize::kUnknown;
      return;
    }
    case Key::kBlocks:
      if (value.kind() == ValueKind::kNothing) return;
      if (value.kind() != ValueKind::kSequence) fail("a list of blocks", describe(value));
      segments.blocks_begin[row] = static_cast<std::int64_t>(value.payload());
      return;
    default: return note_unknown({ValueKind::kText, static_cast<std::uint64_t>(key)});
  }
}

void ObjectBuilder::set_block_field(std::size_t row, Key key, Value value) {
  BlockTable& blocks = tables_.blocks;
  switch (key) {
    case Key::kAddress: blocks.address[row] = as_address(value, key); return;
    case Key::kSize: blocks.size[row] = as_size(value, key); return;
    case Key::kRequestedSize: blocks.requested_size[row] = as_size(value, key); return;
    case Key::kFrames: blocks.site[row] = as_site(value); return;
    case Key::kHistory: return set_legacy_history(row, value);
    case Key::kState: {
      const StringId text = as_text(value, key);
      const std::string_view word = text == kNone ? "" : strings().at(text);
      if (word == "active_allocated") {
        blocks.state[row] = BlockState::kActiveAllocated;
      } else if (word == "active_pending_free" || word == "active_awaiting_free") {
        blocks.state[row] = BlockState::kActivePendingFree;
      } else if (word == "inactive") {
        blocks.state[row] = BlockState::kInactive;
      } else {
        fail("'active_allocated', 'active_pending_free' or 'inactive' for 'state'", describe(value));
      }
      return;
    }
    default: return note_unknown({ValueKind::kText, static_cast<std::uint64_t>(key)});
  }
}

// torch 2.0 keeps a block's stack and requested size in `history`, newest first.
void ObjectBuilder::set_legacy_history(std::size_t row, Value history) {
  if (history.kind() != ValueKind::kSequence || items_of(sequences_[history.row()]).empty()) return;
  const Value newest = items_of(sequences_[history.row()]).front();
  constexpr std::size_t kMaxKeys = 64;  // it has three; a long one, shared by many blocks, would be searched for each
  if (const Pairs* pairs = generic(newest); pairs == nullptr || pairs->size() > kMaxKeys) return;
  if (const Value* size = find(newest, Key::kRealSize)) set_block_field(row, Key::kRequestedSize, *size);
  if (const Value* frames = find(newest, Key::kFrames)) set_block_field(row, Key::kFrames, *frames);
}

void ObjectBuilder::set_annotation_field(std::size_t row, Key key, Value value) {
  AnnotationTable& annotations = tables_.annotations;
  switch (key) {
    case Key::kName: annotations.name[row] = as_text(value, key); return;
    case Key::kDevice: {
      const std::int64_t device = as_integer(value, key);
      annotations.device[row] = device < 0 || device >= 4096 ? kNone : static_cast<std::int32_t>(device);
      return;
    }
    case Key::kTimeUs: annotations.time[row] = as_integer(value, key); return;
    case Key::kStage: {
      const StringId text = as_text(value, key);
      const std::string_view word = text == kNone ? "" : strings().at(text);
      annotations.stage[row] = word == "START" ? Stage::kStart : word == "END" ? Stage::kEnd : Stage::kOther;
      return;
    }
    default: return note_unknown({ValueKind::kText, static_cast<std::uint64_t>(key)});
  }
}

// A frame's row is the interned frame itself, so each field moves the record to the frame that has it.
void ObjectBuilder::set_frame_field(std::size_t dict, Key key, Value value) {
  Frame frame = tables_.frames.at(dicts_[dict].row);
  switch (key) {
    case Key::kFilename: frame.file = as_text(value, key); break;
    case Key::kName: frame.function = as_text(value, key); break;
    case Key::kLine: {
      const std::int64_t line = as_integer(value, key);
      frame.line = line < 0 || line > std::numeric_limits<std::int32_t>::max() ? 0 : static_cast<std::int32_t>(line);
      break;
    }
    default: return;  // fx_node_op and friends
  }
  dicts_[dict].row = tables_.frames.intern(frame);
}

}  // namespace ullage
