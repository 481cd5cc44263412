// JSON of the snapshot's shape: objects, arrays, numbers, text. No recursion, so depth costs memory, not stack.
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/snapshot_reader.hpp"

namespace ullage {
namespace {

constexpr std::size_t kBatch = 1024;         // an array's items go to their list in batches of this many
constexpr std::size_t kTextLimit = 1 << 28;  // a single text of more than 256 MiB is damage

class JsonParser {
 public:
  JsonParser(ByteReader& reader, ObjectBuilder& builder) : reader_(reader), builder_(builder) {}

  void parse() {
    for (;;) {
      if (value()) continue;  // a container was opened: its first value is next
      while (!open_.empty() && !another()) {}
      if (open_.empty()) break;
    }
    skip_space();
    if (!reader_.at_end()) fail("the end of the file");
  }

 private:
  [[noreturn]] void fail(std::string expected) {
    std::string found = "the end of the file";
    if (!reader_.at_end()) found = std::string("'") + static_cast<char>(reader_.peek()) + "'";
    throw TraceError(reader_.offset(), std::move(expected), std::move(found));
  }

  void skip_space() {
    while (!reader_.at_end()) {
      const unsigned char c = reader_.peek();
      if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
      reader_.byte();
    }
  }

  void expect(char wanted) {
    skip_space();
    if (reader_.at_end() || reader_.peek() != static_cast<unsigned char>(wanted)) fail(std::string("'") + wanted + "'");
    reader_.byte();
  }

  bool next_is(char wanted) {
    skip_space();
    if (reader_.at_end() || reader_.peek() != static_cast<unsigned char>(wanted)) return false;
    reader_.byte();
    return true;
  }

  // Reads one value. True if it opened a container that still has values to come.
  bool value() {
    skip_space();
    if (reader_.at_end()) fail("a value");
    switch (reader_.peek()) {
      case '{':
        reader_.byte();
        builder_.push_empty_dict();
        if (next_is('}')) return false;
        builder_.mark();
        open_.push_back('{');
        key();
        return true;
      case '[':
        reader_.byte();
        builder_.push_empty_list();
        if (next_is(']')) return false;
        builder_.mark();
        open_.push_back('[');
        return true;
      case '"': builder_.push_text(text()); return false;
      case 't':
        word("true");
        builder_.push({ValueKind::kBool, 1});
        return false;
      case 'f':
        word("false");
        builder_.push({ValueKind::kBool, 0});
        return false;
      case 'n':
        word("null");
        builder_.push(Value());
        return false;
      case 'N':
        word("NaN");
        builder_.push_float(std::nan(""));
        return false;
      default: number(); return false;
    }
  }

  // After a value inside a container: true if another follows, false if the container closed.
  bool another() {
    const bool is_dict = open_.back() == '{';
    if (next_is(',')) {
      if (is_dict) {
        key();
      } else if (builder_.num_above_mark() >= kBatch) {
        builder_.appends();
        builder_.mark();
      }
      return true;
    }
    expect(is_dict ? '}' : ']');
    if (is_dict) {
      builder_.set_items();
    } else {
      builder_.appends();
    }
    open_.pop_back();
    return false;
  }

  void key() {
    skip_space();
    if (reader_.at_end() || reader_.peek() != '"') fail("a key in quotes");
    builder_.push_text(text());
    expect(':');
  }

  void word(std::string_view wanted) {
    for (const char c : wanted) {
      if (reader_.at_end() || reader_.peek() != static_cast<unsigned char>(c)) fail("'" + std::string(wanted) + "'");
      reader_.byte();
    }
  }

  void number() {
    token_.clear();
    bool is_integer = true;
    while (!reader_.at_end() && token_.size() < 400) {
      const unsigned char c = reader_.peek();
      const bool is_digit = c >= '0' && c <= '9';
      if (!is_digit && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E') break;
      if (c == '.' || c == 'e' || c == 'E') is_integer = false;
      token_.push_back(static_cast<char>(reader_.byte()));
    }
    const char* first = token_.data();
    const char* last = first + token_.size();
    if (is_integer) {
      std::int64_t signed_value = 0;
      std::uint64_t unsigned_value = 0;
      if (const auto [end, error] = std::from_chars(first, last, signed_value); error == std::errc() && end == last) {
        return builder_.push_integer(signed_value);
      }
      if (const auto [end, error] = std::from_chars(first, last, unsigned_value); error == std::errc() && end == last) {
        return builder_.push_wide({unsigned_value, false, false});
      } else if (error == std::errc::result_out_of_range && end == last) {
        return builder_.push_wide({0, token_.front() == '-', true});
      }
      if (token_.size() > 1 && token_.front() == '-' &&
          token_.find_first_not_of("0123456789", 1) == std::string::npos) {
        return builder_.push_wide({0, true, true});
      }
    } else {
      double value = 0;
      const auto [end, error] = std::from_chars(first, last, value);
      if (end == last && (error == std::errc() || error == std::errc::result_out_of_range)) {
        return builder_.push_float(value);
      }
    }
    throw TraceError(reader_.offset(), "a JSON value", token_.empty() ? "'" + unexpected() + "'" : "'" + token_ + "'");
  }

  std::string unexpected() { return reader_.at_end() ? "" : std::string(1, static_cast<char>(reader_.peek())); }

  const std::string& text() {
    reader_.byte();
    token_.clear();
    for (;;) {
      const unsigned char c = reader_.byte();
      if (c == '"') return token_;
      if (c == '\\') {
        escape();
      } else {
        token_.push_back(static_cast<char>(c));
      }
      if (token_.size() > kTextLimit) fail("a text of at most 256 MiB");
    }
  }

  void escape() {
    const unsigned char c = reader_.byte();
    switch (c) {
      case 'n': token_.push_back('\n'); return;
      case 't': token_.push_back('\t'); return;
      case 'r': token_.push_back('\r'); return;
      case 'b': token_.push_back('\b'); return;
      case 'f': token_.push_back('\f'); return;
      case '"':
      case '\\':
      case '/': token_.push_back(static_cast<char>(c)); return;
      case 'u': push_code_point(hex4()); return;
      default: throw TraceError(reader_.offset() - 1, "an escape such as \\n or \\u0041", "an unknown one");
    }
  }

  std::uint32_t hex4() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const unsigned char c = reader_.byte();
      std::uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = c - std::uint32_t{'0'};
      } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
        digit = (c | 0x20U) - 'a' + 10U;
      } else {
        throw TraceError(reader_.offset() - 1, "four hexadecimal digits after \\u", "something else");
      }
      code = code * 16 + digit;
    }
    return code;
  }

  void push_code_point(std::uint32_t code) {
    if (code >= 0xd800 && code < 0xdc00) {  // the first half of a pair
      if (reader_.byte() != '\\' || reader_.byte() != 'u') {
        throw TraceError(reader_.offset(), "the second half of a surrogate pair", "something else");
      }
      const std::uint32_t low = hex4();
      if (low < 0xdc00 || low >= 0xe000) {
        throw TraceError(reader_.offset(), "the second half of a surrogate pair", "another character");
      }
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code >= 0xdc00 && code < 0xe000) code = 0xfffd;
    const auto put = [&](std::uint32_t byte) { token_.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xc0 | code >> 6);
      put(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      put(0xe0 | code >> 12);
      put(0x80 | ((code >> 6) & 0x3f));
      put(0x80 | (code & 0x3f));
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | ((code >> 12) & 0x3f));
      put(0x80 | ((code >> 6) & 0x3f));
      put(0x80 | (code & 0x3f));
    }
  }

  ByteReader& reader_;
  ObjectBuilder& builder_;
  std::vector<char> open_;
  std::string token_;
};

}  // namespace

void read_json(ByteReader& reader, ObjectBuilder& builder) { JsonParser(reader, builder).parse(); }

}  // namespace ullage
