// The stack machine behind both readers. Pickle and JSON push values here; dictionaries that look like an event, a
// frame, a segment, a block or an annotation go straight into the tables and leave an eight-byte record behind.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/byte_source.hpp"
#include "core/column.hpp"
#include "core/keys.hpp"
#include "core/tables.hpp"
#include "core/value.hpp"
#include "core/value_stack.hpp"

namespace ullage {

enum class RecordKind : std::uint8_t { kEmpty, kGeneric, kEvent, kFrame, kSegment, kBlock, kAnnotation };

struct DictRecord {
  RecordKind kind = RecordKind::kEmpty;
  std::int32_t row = kNone;
};

// A list, tuple or set. Most are stacks, whose items nobody needs, so the items lie elsewhere.
struct Sequence {
  std::int32_t items = kNone;  // row of ObjectBuilder's item lists; kNone: empty, or given up
  SiteId site = kNone;         // what the items mean as a stack, once asked
  bool site_known = false;
  bool is_spent = false;  // its items were given up when it became a stack
};

struct WideInt {
  std::uint64_t low = 0;  // two's complement
  bool is_negative = false;
  bool overflows = false;  // does not fit 64 bits
};

class ObjectBuilder {
 public:
  ObjectBuilder(Tables& tables, const ByteReader& reader);

  void push(Value value) { stack_.push(value); }
  void push_integer(std::int64_t number);
  void push_wide(const WideInt& number);
  void push_float(double number);
  void push_text(std::string_view text) {
    push({ValueKind::kText, static_cast<std::uint64_t>(strings().intern(text))});
  }
  void push_empty_dict();
  void push_empty_list();

  void mark() { marks_.push_back(stack_.size()); }
  void pop();
  void pop_mark() { stack_.cut(take_mark()); }
  void duplicate_top() { push(top()); }

  void append();
  void appends();
  void set_item();
  void set_items();
  void sequence_from_mark();
  void sequence_of(std::size_t count);
  void dict_from_mark();

  void memo_put(std::uint64_t index);
  void memo_put_next() { memoize(top()); }
  // As memo_put_next, for the value that is on top of the stack.
  void memoize(Value value) {
    // In a pickle of Python's own, each memo goes to the end of a dense list.
    if (memo_count_ == memo_.size()) {
      memo_.push_back(value);
      ++memo_count_;
    } else {
      memo_put(memo_count_);
    }
  }
  void memo_get(std::uint64_t index) {
    if (index < memo_.size() && memo_[index].kind() != ValueKind::kUnset) return push(memo_[index]);
    memo_get_sparse(index);
  }

  // For the loop that runs nearly all of a pickle: the stack, and the memo unless it has holes (then nothing).
  ValueStack& stack() { return stack_; }
  std::span<const Value> whole_memo() const {
    return memo_has_holes_ ? std::span<const Value>() : std::span<const Value>(memo_);
  }
  Value empty_text() const { return {ValueKind::kText, empty_text_}; }
  Value not_available() const { return {ValueKind::kText, not_available_}; }

  // Makes room for a file of this size; memory is only touched as values arrive.
  void reserve_for(std::uint64_t file_bytes);

  // The number of values above the last mark.
  std::size_t num_above_mark() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  Value take_root();
  // Moves what the root describes into the tables' final order.
  void finish(Value root);

  [[noreturn]] void fail(std::string expected, std::string found) const;

 private:
  using Pairs = std::vector<std::pair<Value, Value>>;

  StringTable& strings() { return tables_.strings; }
  Value top();
  void memo_get_sparse(std::uint64_t index);
  std::size_t take_mark();
  std::size_t below_mark_as(ValueKind kind, std::size_t first) const;
  Sequence& growing(std::size_t row);
  void add_pairs(std::size_t dict, std::size_t first);
  std::uint64_t keys_from(std::size_t first) const;
  RecordKind classify(std::uint64_t keys) const;
  std::int32_t new_row(RecordKind kind);
  void add_event(std::size_t dict, std::size_t first);
  void set_event_fields(Event& event, std::size_t row, std::size_t first);
  void set_field(std::size_t dict, Value key, Value value);
  void set_event_field(Event& event, std::size_t row, Key key, Value value);
  void set_segment_field(std::size_t row, Key key, Value value);
  void set_block_field(std::size_t row, Key key, Value value);
  void set_annotation_field(std::size_t row, Key key, Value value);
  void set_frame_field(std::size_t dict, Key key, Value value);
  void note_unknown(Value key);

  Action action_of_text(StringId text) {
    const auto row = static_cast<std::size_t>(text);
    const bool is_known = row < actions_.size() && actions_[row] != kActionUnknown;
    return is_known ? static_cast<Action>(actions_[row]) : action_of_new_text(text);
  }
  Action action_of_new_text(StringId text);
  std::int64_t as_integer(Value value, Key key) const {
    return value.kind() == ValueKind::kInt ? value.number() : as_rare_integer(value, key);
  }
  std::int64_t as_rare_integer(Value value, Key key) const;
  Address as_address(Value value, Key key) const {
    return value.kind() == ValueKind::kInt ? static_cast<Address>(value.number()) : as_rare_address(value, key);
  }
  Address as_rare_address(Value value, Key key) const;
  Bytes as_size(Value value, Key key) const {
    const std::int64_t size = as_integer(value, key);
    if (size < 0 || size >= kSizeLimit) fail_size(value, key);
    return size;
  }
  [[noreturn]] void fail_size(Value value, Key key) const;
  StringId as_text(Value value, Key key) const;
  bool collect_frames(const Value* first, const Value* last);
  void set_site(Sequence& sequence, bool is_stack);
  SiteId as_site(Value value);
  std::int32_t as_pool(Value value, Key key);
  std::string describe(Value value) const;

  const Pairs* generic(Value value) const;
  const Value* find(Value dict, Key key) const;
  std::span<const Value> items_of(const Sequence& sequence) const {
    if (sequence.items == kNone) return {};
    return item_lists_[static_cast<std::size_t>(sequence.items)];
  }
  Column<Value>& items_to_fill(Sequence& sequence);
  std::span<const Value> as_items(Value value, std::string_view what) const;
  DictRecord record_of(Value value, RecordKind kind, std::string_view what) const;
  void finish_events(Value traces);
  void finish_segments(Value segments);
  void finish_annotations(Value annotations);
  void reorder_events(const Column<std::int32_t>& rows);
  void flatten_settings(const std::string& prefix, Value value, int depth);
  void read_root(Value root);
  void set_legacy_history(std::size_t row, Value history);

  Tables& tables_;
  const ByteReader& reader_;
  ValueStack stack_;
  std::vector<std::size_t> marks_;
  Column<Value> memo_;
  std::unordered_map<std::uint64_t, Value> sparse_memo_;
  std::uint64_t memo_count_ = 0;
  bool memo_has_holes_ = false;
  Column<DictRecord> dicts_;
  std::vector<Pairs> generic_;
  Column<Sequence> sequences_;
  std::vector<Column<Value>> item_lists_;
  std::vector<WideInt> wide_;
  std::vector<double> floats_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int32_t> pool_rows_;
  std::size_t num_settings_visits_ = 0;
  std::uint64_t not_available_;  // the StringId of "N/A", torch's word for no compile context
  std::uint64_t empty_text_;     // that of ""
  static constexpr std::uint8_t kActionUnknown = 0xff;
  std::vector<std::uint8_t> actions_;       // by StringId, once asked
  std::vector<FrameId> stack_frames_;       // scratch of as_site()
  std::uint64_t seen_ = 0;                  // bits of Key
  std::vector<std::uint8_t> unknown_seen_;  // by StringId
};

}  // namespace ullage
