#include "core/object_builder.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace ullage {
namespace {
constexpr std::uint64_t kMemoGap = 1 << 16;   // a memo index further ahead of the slots put is kept in a hash map
constexpr std::size_t kSmallestBatch = 1000;  // both readers append a longer list in pieces of so many items or more
constexpr std::size_t kRowLimit = std::size_t{1} << 31;
}  // namespace

ObjectBuilder::ObjectBuilder(Tables& tables, const ByteReader& reader) : tables_(tables), reader_(reader) {
  for (const std::string_view text : kKeyTexts) strings().intern(text);
  not_available_ = static_cast<std::uint64_t>(strings().intern("N/A"));
  empty_text_ = static_cast<std::uint64_t>(strings().intern(""));
}

void ObjectBuilder::fail(std::string expected, std::string found) const {
  throw TraceError(reader_.offset(), std::move(expected), std::move(found));
}

void ObjectBuilder::reserve_for(std::uint64_t file_bytes) {
  // Real recordings take 75 to 350 bytes an event, and put three memos for each.
  constexpr std::uint64_t kBytesPerEvent = 72;
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 22;  // a file can be sparse, and say any size
  const auto events = static_cast<std::size_t>(std::min(file_bytes / kBytesPerEvent, kLargest));
  EventTable& table = tables_.events;
  table.action.reserve(events);
  table.address.reserve(events);
  table.size.reserve(events);
  table.stream.reserve(events);
  table.time.reserve(events);
  table.site.reserve(events);
  table.pool.reserve(events);
  dicts_.reserve(events);
  sequences_.reserve(events);
  memo_.reserve(3 * events);
}

void ObjectBuilder::push_integer(std::int64_t number) {
  if (Value::fits(number)) return push(Value::integer(number));
  push_wide({static_cast<std::uint64_t>(number), number < 0, false});
}

void ObjectBuilder::push_wide(const WideInt& number) {
  wide_.push_back(number);
  push({ValueKind::kWideInt, wide_.size() - 1});
}

void ObjectBuilder::push_float(double number) {
  floats_.push_back(number);
  push({ValueKind::kFloat, floats_.size() - 1});
}

void ObjectBuilder::push_empty_dict() {
  if (dicts_.size() >= kRowLimit) fail("fewer than 2**31 dictionaries", "more");
  dicts_.emplace_back();
  push({ValueKind::kDict, dicts_.size() - 1});
}

void ObjectBuilder::push_empty_list() {
  if (sequences_.size() >= kRowLimit) fail("fewer than 2**31 lists", "more");
  sequences_.emplace_back();
  push({ValueKind::kSequence, sequences_.size() - 1});
}

Value ObjectBuilder::top() {
  if (num_above_mark() == 0 || stack_.empty()) fail("a value on the stack", "an empty stack");
  return stack_.back();
}

std::size_t ObjectBuilder::take_mark() {
  if (marks_.empty()) fail("a mark on the stack", "none");
  const std::size_t first = marks_.back();
  marks_.pop_back();
  return first;
}

void ObjectBuilder::pop() {
  if (num_above_mark() > 0) {
    stack_.pop();
  } else {
    take_mark();
  }
}

// The row of the container just below stack position `first`.
std::size_t ObjectBuilder::below_mark_as(ValueKind kind, std::size_t first) const {
  const std::size_t floor = marks_.empty() ? 0 : marks_.back();
  if (first <= floor || first > stack_.size() || stack_[first - 1].kind() != kind) {
    fail(kind == ValueKind::kDict ? "a dictionary to put items into" : "a list to append to",
         first <= floor || first > stack_.size() ? "nothing" : describe(stack_[first - 1]));
  }
  return stack_[first - 1].row();
}

// No pickler appends to a list that it has used: the sites of a list that kept growing would be quadratic in the file.
Sequence& ObjectBuilder::growing(std::size_t row) {
  if (sequences_[row].site_known)
    fail("a list that is complete when it is used as a stack", "one that grows afterwards");
  return sequences_[row];
}

Column<Value>& ObjectBuilder::items_to_fill(Sequence& sequence) {
  if (sequence.items == kNone) {
    sequence.items = static_cast<std::int32_t>(item_lists_.size());
    item_lists_.emplace_back();
  }
  return item_lists_[static_cast<std::size_t>(sequence.items)];
}

void ObjectBuilder::append() {
  const Value item = top();
  items_to_fill(growing(below_mark_as(ValueKind::kSequence, stack_.size() - 1))).push_back(item);
  stack_.pop();
}

void ObjectBuilder::appends() {
  const std::size_t first = take_mark();
  Sequence& sequence = growing(below_mark_as(ValueKind::kSequence, first));
  const Value* const items = stack_.begin() + first;
  const auto count = static_cast<std::size_t>(stack_.end() - items);
  // A list that comes in one batch and holds frames alone is a stack: its items need no place of their own.
  if (count > 0 && count < kSmallestBatch && sequence.items == kNone && collect_frames(items, stack_.end())) {
    set_site(sequence, true);
  } else if (count > 0) {
    Column<Value>& list = items_to_fill(sequence);
    list.insert(list.end(), items, stack_.end());
  }
  stack_.cut(first);
}

void ObjectBuilder::set_item() {
  if (num_above_mark() < 3) fail("a dictionary, a key and a value", "fewer values");
  const std::size_t first = stack_.size() - 2;
  add_pairs(below_mark_as(ValueKind::kDict, first), first);
  stack_.cut(first);
}

void ObjectBuilder::set_items() {
  const std::size_t first = take_mark();
  const std::size_t dict = below_mark_as(ValueKind::kDict, first);
  if ((stack_.size() - first) % 2 != 0) fail("pairs of keys and values", "a key without a value");
  add_pairs(dict, first);
  stack_.cut(first);
}

void ObjectBuilder::sequence_from_mark() {
  const std::size_t first = take_mark();
  Column<Value> items(stack_.begin() + first, stack_.end());
  stack_.cut(first);
  push_empty_list();
  if (!items.empty()) items_to_fill(sequences_.back()) = std::move(items);
}

void ObjectBuilder::sequence_of(std::size_t count) {
  if (num_above_mark() < count) fail(std::to_string(count) + " values for a tuple", "fewer");
  mark();
  marks_.back() -= count;
  sequence_from_mark();
}

void ObjectBuilder::dict_from_mark() {
  const std::size_t first = take_mark();
  if ((stack_.size() - first) % 2 != 0) fail("pairs of keys and values", "a key without a value");
  dicts_.emplace_back();
  const std::size_t dict = dicts_.size() - 1;
  add_pairs(dict, first);
  stack_.cut(first);
  push({ValueKind::kDict, dict});
}

void ObjectBuilder::memo_put(std::uint64_t index) {
  const Value value = top();
  if (index >= memo_.size()) {
    if (index > 2 * memo_count_ + kMemoGap) {
      memo_count_ += sparse_memo_.insert_or_assign(index, value).second;
      return;
    }
    memo_has_holes_ |= index > memo_.size();
    memo_.resize(index + 1, Value(ValueKind::kUnset, 0));
  }
  const bool is_new = memo_[index].kind() == ValueKind::kUnset;
  if (is_new && (sparse_memo_.empty() || sparse_memo_.erase(index) == 0)) ++memo_count_;
  memo_[index] = value;
}

void ObjectBuilder::memo_get_sparse(std::uint64_t index) {
  const auto found = sparse_memo_.find(index);
  if (found == sparse_memo_.end()) fail("memo " + std::to_string(index) + " to have been put", "an empty slot");
  push(found->second);
}

Value ObjectBuilder::take_root() {
  if (!marks_.empty() || stack_.size() != 1)
    fail("one finished object", std::to_string(stack_.size()) + " on the stack");
  const Value root = stack_.back();
  stack_.cut(0);
  return root;
}

// The known keys among the stack's pairs from `first` on. An event is told by its first keys: the rest is not looked
// at.
std::uint64_t ObjectBuilder::keys_from(std::size_t first) const {
  std::uint64_t keys = 0;
  for (std::size_t i = first; i < stack_.size(); i += 2) {
    const Value key = stack_[i];
    if (key.kind() == ValueKind::kText && key.row() < kKeyTexts.size()) keys |= std::uint64_t{1} << key.row();
    if (keys & bit(Key::kAction)) break;
  }
  return keys;
}

// Adds the stack's pairs from `first` on. A dictionary takes its kind from the first keys that tell it apart.
void ObjectBuilder::add_pairs(std::size_t dict, std::size_t first) {
  if (first >= stack_.size()) return;
  DictRecord record = dicts_[dict];
  if (record.kind == RecordKind::kEmpty || record.kind == RecordKind::kGeneric) {
    const std::uint64_t keys = keys_from(first);
    seen_ |= keys;
    const RecordKind kind = classify(keys);
    if (kind == RecordKind::kEvent && record.kind == RecordKind::kEmpty) return add_event(dict, first);
    if (kind != RecordKind::kGeneric) {
      const DictRecord before = record;
      record = {kind, new_row(kind)};
      dicts_[dict] = record;
      if (before.kind == RecordKind::kGeneric) {
        const Pairs pairs = std::exchange(generic_[static_cast<std::size_t>(before.row)], {});
        for (const auto& [key, value] : pairs) set_field(dict, key, value);
      }
    } else if (record.kind == RecordKind::kEmpty) {
      generic_.emplace_back();
      record = {kind, static_cast<std::int32_t>(generic_.size() - 1)};
      dicts_[dict] = record;
    }
  }
  for (std::size_t i = first; i < stack_.size(); i += 2) set_field(dict, stack_[i], stack_[i + 1]);
}

// The dictionary is an event, whole with the stack's pairs from `first` on, as nearly every event is.
void ObjectBuilder::add_event(std::size_t dict, std::size_t first) {
  const std::size_t row = tables_.events.size_rows();
  if (row >= kRowLimit - 1) fail("fewer than 2**31 events", "more");
  Event event;
  set_event_fields(event, row, first);
  tables_.events.push_back(event);
  dicts_[dict] = {RecordKind::kEvent, static_cast<std::int32_t>(row)};
}

RecordKind ObjectBuilder::classify(std::uint64_t keys) const {
  if (keys & bit(Key::kAction)) return RecordKind::kEvent;
  if (keys & bit(Key::kFilename)) return RecordKind::kFrame;
  if (keys & (bit(Key::kTotalSize) | bit(Key::kBlocks))) return RecordKind::kSegment;
  if (keys & bit(Key::kState)) return RecordKind::kBlock;
  if (keys & bit(Key::kStage)) return RecordKind::kAnnotation;
  return RecordKind::kGeneric;
}

std::int32_t ObjectBuilder::new_row(RecordKind kind) {
  Tables& t = tables_;
  switch (kind) {
    case RecordKind::kEvent:
      if (t.events.size_rows() >= kRowLimit - 1) fail("fewer than 2**31 events", "more");
      t.events.push_back({});
      return static_cast<std::int32_t>(t.events.size_rows() - 1);
    case RecordKind::kFrame: return t.frames.intern({});
    case RecordKind::kSegment:
      t.segments.device.push_back(0);
      t.segments.address.push_back(0);
      for (auto* column :
           {&t.segments.total_size, &t.segments.allocated_size, &t.segments.active_size, &t.segments.requested_size}) {
        column->push_back(kNone);
      }
      t.segments.stream.push_back(0);
      t.segments.pool_size.push_back(PoolSize::kUnknown);
      t.segments.pool.push_back(kNone);
      t.segments.is_expandable.push_back(0);
      t.segments.site.push_back(kNone);
      t.segments.blocks_begin.push_back(kNone);  // the row of its list of blocks, until finish()
      t.segments.blocks_end.push_back(kNone);
      return static_cast<std::int32_t>(t.segments.size_rows() - 1);
    case RecordKind::kBlock:
      t.blocks.address.push_back(0);
      t.blocks.size.push_back(0);
      t.blocks.requested_size.push_back(kNone);
      t.blocks.state.push_back(BlockState::kInactive);
      t.blocks.site.push_back(kNone);
      return static_cast<std::int32_t>(t.blocks.size_rows() - 1);
    case RecordKind::kAnnotation:
      t.annotations.name.push_back(kNone);
      t.annotations.stage.push_back(Stage::kOther);
      t.annotations.device.push_back(kNone);
      t.annotations.time.push_back(0);
      return static_cast<std::int32_t>(t.annotations.name.size() - 1);
    default: return kNone;
  }
}

}  // namespace ullage
