// Ways to break a snapshot: of its bytes, whatever they mean, and of the tree that they were written from.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "node.hpp"

namespace ullage::test {

using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t limit) { return limit == 0 ? 0 : random() % limit; }

inline std::uint64_t odd_number(Random& random) {
  constexpr std::uint64_t kOdd[] = {
      0,          1,          0x7f,       0x80,       0xff,       0x100,        511,
      0xffff,     0x10000,    0x7fffffff, 0x80000000, 0xffffffff, 1ULL << 55,   1ULL << 56,
      1ULL << 59, 1ULL << 60, 1ULL << 62, 1ULL << 63, ~0ULL,      ~0ULL - 1023, (1ULL << 63) - 1};
  return kOdd[below(random, std::size(kOdd))];
}

// --- bytes ---

constexpr std::string_view kPickleOps =
    "(.012NJKMGXTUCB]ael)t}dsuqrhj\x88\x89\x8a\x8b\x8c\x8d\x8e\x96\x85\x86\x87\x8f\x90\x91\x94\x95"
    "c\x93Rbio\x81\x92\x82\x83\x84PQ\x97\x98";

inline void change_byte(std::string& bytes, Random& random) {
  char& byte = bytes[below(random, bytes.size())];
  switch (random() % 4) {
    case 0: byte = static_cast<char>(byte ^ (1 << random() % 8)); return;
    case 1: byte = static_cast<char>(random()); return;
    case 2: byte = static_cast<char>(odd_number(random)); return;
    default: byte = static_cast<char>(byte + (random() % 2 ? 1 : -1));
  }
}

// Cuts, copies, moves or swaps chunks.
inline void move_chunk(std::string& bytes, Random& random) {
  const std::size_t from = below(random, bytes.size());
  const std::size_t longest = random() % 4 == 0 ? bytes.size() - from : std::min<std::size_t>(bytes.size() - from, 64);
  const std::string chunk = bytes.substr(from, 1 + below(random, longest));
  const std::size_t to = below(random, bytes.size());
  switch (random() % 4) {
    case 0: bytes.erase(from, chunk.size()); return;
    case 1: bytes.insert(to, chunk); return;
    case 2: bytes.insert(from, chunk); return;
    default: bytes.replace(to, std::min(chunk.size(), bytes.size() - to), chunk);
  }
}

// Puts another opcode where one is.
inline void swap_opcode(std::string& bytes, Random& random) {
  const std::size_t start = below(random, bytes.size());
  const std::size_t at = bytes.find_first_of(kPickleOps, start);
  if (at == std::string::npos) return;
  const char op = kPickleOps[below(random, kPickleOps.size())];
  if (random() % 2) {
    bytes[at] = op;
  } else {
    bytes.insert(at, 1, op);
  }
}

// Gives an absurd operand to the next opcode that has one.
inline void blow_up_operand(std::string& bytes, Random& random) {
  constexpr std::string_view kWithOperand = "XTBJrj\x8b\x8d\x8e\x96\x95\x8a\x8cUCKMGqh";
  const std::size_t at = bytes.find_first_of(kWithOperand, below(random, bytes.size()));
  if (at == std::string::npos || at + 1 >= bytes.size()) return;
  const std::uint64_t number = odd_number(random);
  char raw[8];
  std::memcpy(raw, &number, 8);
  if (bytes[at] == '\x8a') {  // LONG1: as many bytes as it says
    const auto length = static_cast<unsigned char>(bytes[at + 1]);
    for (std::size_t i = 0; i < length && at + 2 + i < bytes.size(); ++i)
      bytes[at + 2 + i] = raw[std::min<std::size_t>(i, 7)];
    return;
  }
  constexpr std::string_view kOfOne = "\x8cUCKqh";
  const std::size_t width = kOfOne.find(bytes[at]) != std::string_view::npos ? 1
                            : bytes[at] == 'M'                               ? 2
                            : random() % 2                                   ? 4
                                                                             : 8;
  for (std::size_t i = 0; i < width && at + 1 + i < bytes.size(); ++i) bytes[at + 1 + i] = raw[i];
}

// JSON's numbers are runs of digits.
inline void blow_up_digits(std::string& bytes, Random& random) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t at = bytes.find_first_of(kDigits, below(random, bytes.size()));
  if (at == std::string::npos) return;
  const std::size_t end = std::min(bytes.find_first_not_of(kDigits, at), bytes.size());
  const std::string number = std::to_string(odd_number(random));
  const std::string written[] = {number, "-" + number, number + number, number + ".5", "1e400", "-", ""};
  bytes.replace(at, end - at, written[below(random, std::size(written))]);
}

inline std::string spliced(const std::string& front, const std::string& back, Random& random) {
  return front.substr(0, below(random, front.size())) + back.substr(below(random, back.size()));
}

inline void mutate_bytes(std::string& bytes, Random& random) {
  constexpr std::size_t kLongest = 1 << 20;
  for (std::size_t rounds = 1 + (random() % 2 ? 0 : below(random, 6)); rounds > 0; --rounds) {
    if (bytes.empty() || bytes.size() > kLongest) return;
    switch (random() % 10) {
      case 0:
      case 1:
      case 2: change_byte(bytes, random); break;
      case 3:
      case 4: move_chunk(bytes, random); break;
      case 5:
      case 6: swap_opcode(bytes, random); break;
      case 7:
      case 8: bytes[0] == '\x80' ? blow_up_operand(bytes, random) : blow_up_digits(bytes, random); break;
      default:
        if (random() % 4 == 0) bytes.resize(below(random, bytes.size()));
    }
  }
}

// --- trees ---

inline Node odd_value(Random& random) {
  switch (random() % 12) {
    case 0: return Node();
    case 1: return true;
    case 2: return 0.5;
    case 3: return "active_allocated";
    case 4: return "segment_map";
    case 5: return List{};
    case 6: return Dict{{"action", "free_completed"}};
    case 7: return Tuple{{0, static_cast<std::int64_t>(random() % 3)}};
    default: return odd_number(random);
  }
}

inline void mutate_items(List& items, Random& random) {
  const std::size_t at = below(random, items.size());
  const std::size_t other = below(random, items.size());
  switch (random() % 4) {
    case 0: items.erase(items.begin() + static_cast<std::ptrdiff_t>(at)); return;
    case 1: items.insert(items.begin() + static_cast<std::ptrdiff_t>(other), Node(items[at])); return;
    default: std::swap(items[at], items[other]);
  }
}

// A changed number mostly keeps its neighbourhood, so that events still meet the blocks that they speak of.
inline void mutate_leaf(Node& node, Random& random) {
  constexpr std::uint64_t kSteps[] = {1, 512, 4096, 1 << 20, 1 << 21, 20 << 20};
  const std::uint64_t step = kSteps[below(random, std::size(kSteps))] * (random() % 2 ? 1 : ~std::uint64_t{0});
  auto* number = std::get_if<std::int64_t>(&node.value);
  auto* wide = std::get_if<std::uint64_t>(&node.value);
  if (random() % 10 == 0) {
    node = odd_value(random);
  } else if (number) {
    node = static_cast<std::int64_t>(static_cast<std::uint64_t>(*number) + step);
  } else if (wide) {
    node = *wide + step;
  } else if (auto* text = std::get_if<std::string>(&node.value)) {
    constexpr const char* kWords[] = {"alloc",
                                      "free_requested",
                                      "free_completed",
                                      "segment_alloc",
                                      "segment_free",
                                      "segment_map",
                                      "segment_unmap",
                                      "active_allocated",
                                      "active_pending_free",
                                      "inactive",
                                      "small",
                                      "large",
                                      "oom",
                                      "free"};
    *text = kWords[below(random, std::size(kWords))];
  }
}

inline void mutate_tree(Node& root, Random& random) {
  Node* node = &root;
  for (;;) {
    if (auto* items = std::get_if<List>(&node->value); items && !items->empty()) {
      if (random() % 12 == 0) return mutate_items(*items, random);
      node = &(*items)[below(random, items->size())];
    } else if (auto* pairs = std::get_if<Dict>(&node->value); pairs && !pairs->empty()) {
      const std::size_t at = below(random, pairs->size());
      if (random() % 24 == 0) {
        pairs->erase(pairs->begin() + static_cast<std::ptrdiff_t>(at));
        return;
      }
      node = &(*pairs)[at].second;
    } else {
      return mutate_leaf(*node, random);
    }
  }
}

}  // namespace ullage::test
