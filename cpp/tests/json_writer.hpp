// Writes trees as JSON; tuples become arrays.
#pragma once

#include <cstdio>
#include <string>

#include "node.hpp"

namespace ullage::test {

inline std::string to_json(const Node& node);

inline std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

inline std::string json_array(const List& items) {
  std::string out = "[";
  for (const Node& item : items) out += (out.size() > 1 ? ", " : "") + to_json(item);
  return out + "]";
}

inline std::string json_number(double number) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.9e", number);
  return digits;
}

struct JsonVisitor {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool flag) const { return flag ? "true" : "false"; }
  std::string operator()(std::int64_t number) const { return std::to_string(number); }
  std::string operator()(std::uint64_t number) const { return std::to_string(number); }
  std::string operator()(double number) const { return json_number(number); }
  std::string operator()(const std::string& text) const { return json_text(text); }
  std::string operator()(const List& items) const { return json_array(items); }
  std::string operator()(const Tuple& tuple) const { return json_array(tuple.items); }
  std::string operator()(const Dict& pairs) const {
    std::string out = "{";
    for (const auto& [key, value] : pairs) out += (out.size() > 1 ? ", " : "") + json_text(key) + ": " + to_json(value);
    return out + "}";
  }
};

inline std::string to_json(const Node& node) { return std::visit(JsonVisitor{}, node.value); }

}  // namespace ullage::test
