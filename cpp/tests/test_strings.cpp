#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "core/strings.hpp"

namespace ullage {
namespace {

TEST_CASE("equal texts have one id and different texts have different ids") {
  StringTable table;
  const StringId empty = table.intern("");
  const StringId word = table.intern("alloc");
  CHECK(table.intern("alloc") == word);
  CHECK(table.intern("") == empty);
  CHECK(word != empty);
  CHECK(table.at(word) == "alloc");
  CHECK(table.size() == 2);
}

TEST_CASE("a text may hold any byte") {
  StringTable table;
  const std::string_view odd("a\0b\xff", 4);
  CHECK(table.at(table.intern(odd)) == odd);
  CHECK(table.intern("a") != table.intern(odd));
}

TEST_CASE("ids survive the table's growth") {
  StringTable table;
  for (int i = 0; i < 5000; ++i) CHECK(table.intern("text " + std::to_string(i)) == i);
  for (int i = 0; i < 5000; ++i) CHECK(table.intern("text " + std::to_string(i)) == i);
  CHECK(table.at(4321) == "text 4321");
}

TEST_CASE("texts of every length up to 40 are told apart in each byte") {
  StringTable table;
  std::size_t num_texts = 0;
  for (std::size_t length = 0; length <= 40; ++length) {
    table.intern(std::string(length, 'a'));
    ++num_texts;
    for (std::size_t i = 0; i < length; ++i) {
      std::string changed(length, 'a');
      changed[i] = 'b';
      table.intern(changed);
      ++num_texts;
    }
  }
  CHECK(table.size() == num_texts);
}

// libstdc++'s std::hash mixes eight bytes at a time with steps that can be undone, so texts of one hash can be made:
// each pair of words has a twin that flips the hash's top bit and flips it back.
std::uint64_t undo_mixing(std::uint64_t mixed) {
  constexpr std::uint64_t kMultiplier = 0xc6a4a7935bd1e995;
  std::uint64_t inverse = kMultiplier;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMultiplier * inverse;
  mixed *= inverse;
  return (mixed ^ mixed >> 47) * inverse;
}

std::string colliding_text(std::uint32_t choice, int num_pairs) {
  std::string text;
  for (int pair = 0; pair < num_pairs; ++pair) {
    const std::uint64_t flip = choice >> pair & 1 ? std::uint64_t{1} << 63 : 0;
    for (std::uint64_t word = 0; word < 2; ++word) {
      const std::uint64_t bytes = undo_mixing((static_cast<std::uint64_t>(pair) * 2 + word + 1) ^ flip);
      char raw[8];
      std::memcpy(raw, &bytes, 8);
      text.append(raw, 8);
    }
  }
  return text;
}

TEST_CASE("texts made to collide under the library's hash cost no more than others" * doctest::timeout(10)) {
  constexpr int kPairs = 17;
  StringTable table;
  for (std::uint32_t choice = 0; choice < 1U << kPairs; ++choice) table.intern(colliding_text(choice, kPairs));
  CHECK(table.size() == std::size_t{1} << kPairs);
}

}  // namespace
}  // namespace ullage
