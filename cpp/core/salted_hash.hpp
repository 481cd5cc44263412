// Hashes that a file cannot aim at: each begins with a number drawn anew in every process, so texts, frames or
// addresses made to share one slot of a table, and to make it slow, do not.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace ullage {

inline std::uint64_t hash_salt() {
  static const std::uint64_t drawn = [] {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }();
  return drawn;
}

// Both halves of the 128-bit product with an odd constant, folded into one: every bit of `value` reaches every other.
inline std::uint64_t fold_product(std::uint64_t value) {
  const auto product = static_cast<unsigned __int128>(value) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_number(std::uint64_t number) { return fold_product(number ^ hash_salt()); }

inline std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = hash_number(text.size());
  for (; text.size() >= 8; text.remove_prefix(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    hash = fold_product(hash ^ word);
  }
  std::uint64_t rest = 0;
  if (!text.empty()) std::memcpy(&rest, text.data(), text.size());
  return fold_product(hash ^ rest);
}

}  // namespace ullage
