// A tree of plain values, to be written as a pickle or as JSON.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ullage::test {

struct Node;
using List = std::vector<Node>;
using Dict = std::vector<std::pair<std::string, Node>>;
struct Tuple {
  List items;
};

struct Node {
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, List, Tuple, Dict> value;

  Node() = default;
  Node(bool flag) : value(flag) {}
  template <std::signed_integral T>
  Node(T number) : value(std::int64_t{number}) {}
  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  Node(T number) : value(std::uint64_t{number}) {}
  Node(double number) : value(number) {}
  Node(const char* text) : value(std::string(text)) {}
  Node(std::string text) : value(std::move(text)) {}
  Node(List items) : value(std::move(items)) {}
  Node(Tuple items) : value(std::move(items)) {}
  Node(Dict pairs) : value(std::move(pairs)) {}
};

// A dictionary with one key set, replacing the value that it may have.
inline Dict with(Dict dict, const std::string& key, Node value) {
  for (auto& [name, old] : dict) {
    if (name == key) {
      old = std::move(value);
      return dict;
    }
  }
  dict.emplace_back(key, std::move(value));
  return dict;
}

inline Dict without(const Dict& dict, const std::string& key) {
  Dict out;
  for (const auto& pair : dict) {
    if (pair.first != key) out.push_back(pair);
  }
  return out;
}

}  // namespace ullage::test
