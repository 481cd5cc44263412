// Writes pickles: trees in the styles of the two producers, or single opcodes for what no producer would write.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "node.hpp"

namespace ullage::test {

// The little-endian bytes of a number.
template <typename T>
std::string le(T number) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &number, sizeof(T));
  return out;
}

// BINUNICODE, which every protocol from 2 on knows.
inline std::string text_op(std::string_view text) {
  return "X" + le(static_cast<std::uint32_t>(text.size())) + std::string(text);
}

// LONG1 with `length` bytes of two's complement.
inline std::string long1(std::int64_t number, std::size_t length = 8) {
  std::string bytes = le(number);
  bytes.resize(length, number < 0 ? '\xff' : '\0');
  return "\x8a" + std::string(1, static_cast<char>(length)) + bytes;
}

struct PickleStyle {
  int protocol = 4;
  bool is_jit = false;  // as libtorch's pickler: protocol 2, only texts go into the memo, lists always append
};

class PickleWriter {
 public:
  explicit PickleWriter(PickleStyle style) : style_(style) {}

  std::string write(const Node& root) {
    put(root);
    body_ += '.';
    std::string head = "\x80" + std::string(1, static_cast<char>(style_.protocol));
    if (style_.protocol >= 4) head += "\x95" + le(static_cast<std::uint64_t>(body_.size()));
    return head + body_;
  }

 private:
  void put(const Node& node) {
    std::visit([this](const auto& value) { put_value(value); }, node.value);
  }

  void put_value(std::monostate) { body_ += 'N'; }
  void put_value(bool flag) { body_ += flag ? '\x88' : '\x89'; }
  void put_value(std::uint64_t number) {
    if (number >> 63 == 0) return put_value(static_cast<std::int64_t>(number));
    body_ += "\x8a\x09" + le(number) + std::string(1, '\0');
  }
  void put_value(std::int64_t number) {
    if (number >= 0 && number < 256) {
      body_ += 'K' + le(static_cast<std::uint8_t>(number));
    } else if (number >= 0 && number < 65536) {
      body_ += 'M' + le(static_cast<std::uint16_t>(number));
    } else if (number == static_cast<std::int32_t>(number)) {
      body_ += 'J' + le(static_cast<std::int32_t>(number));
    } else {
      body_ += long1(number);
    }
  }
  void put_value(double number) { body_ += 'G' + le(__builtin_bswap64(std::bit_cast<std::uint64_t>(number))); }
  void put_value(const std::string& text) {
    if (const auto known = texts_.find(text); known != texts_.end()) {
      body_ += known->second < 256 ? 'h' + le(static_cast<std::uint8_t>(known->second)) : 'j' + le(known->second);
      return;
    }
    const bool is_short = style_.protocol >= 4 && text.size() < 256;
    body_ += is_short ? "\x8c" + le(static_cast<std::uint8_t>(text.size())) + text : text_op(text);
    texts_[text] = num_memo_;
    memoize();
  }
  void put_value(const List& items) {
    body_ += ']';
    if (!style_.is_jit) memoize();
    if (items.empty() && !style_.is_jit) return;
    if (items.size() == 1 && !style_.is_jit) {
      put(items[0]);
      body_ += 'a';
      return;
    }
    body_ += '(';
    for (const Node& item : items) put(item);
    body_ += 'e';
  }
  void put_value(const Tuple& tuple) {
    const std::size_t count = tuple.items.size();
    if (style_.is_jit || count > 3) body_ += '(';
    for (const Node& item : tuple.items) put(item);
    body_ += style_.is_jit || count > 3 ? 't' : count == 0 ? ')' : static_cast<char>(0x84 + count);
    if (!style_.is_jit && count > 0) memoize();
  }
  void put_value(const Dict& pairs) {
    body_ += '}';
    if (!style_.is_jit) memoize();
    if (pairs.empty()) return;
    const bool is_single = pairs.size() == 1 && !style_.is_jit;
    if (!is_single) body_ += '(';
    for (const auto& [key, value] : pairs) {
      put_value(key);
      put(value);
    }
    body_ += is_single ? 's' : 'u';
  }

  void memoize() {
    if (style_.protocol >= 4) {
      body_ += '\x94';
    } else if (num_memo_ < 256) {
      body_ += 'q' + le(static_cast<std::uint8_t>(num_memo_));
    } else {
      body_ += 'r' + le(num_memo_);
    }
    ++num_memo_;
  }

  PickleStyle style_;
  std::string body_;
  std::unordered_map<std::string, std::uint32_t> texts_;
  std::uint32_t num_memo_ = 0;
};

inline std::string to_pickle(const Node& root, PickleStyle style = {}) { return PickleWriter(style).write(root); }

}  // namespace ullage::test
