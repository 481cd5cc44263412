#include <doctest/doctest.h>

#include <random>
#include <set>
#include <tuple>

#include "core/free_list.hpp"

namespace ullage {
namespace {

std::vector<FreeEntry> entries_of(const FreeList& list) {
  std::vector<FreeEntry> out;
  list.for_each([&](const FreeEntry& entry) { out.push_back(entry); });
  return out;
}

struct BySizeThenAddress {
  bool operator()(const FreeEntry& a, const FreeEntry& b) const {
    return std::tie(a.size, a.address) < std::tie(b.size, b.address);
  }
};

TEST_CASE("an empty list has nothing of any size") {
  const FreeList list;
  CHECK(list.at_least(0) == list.end());
  CHECK(entries_of(list).empty());
}

TEST_CASE("blocks are in order of size, then address") {
  FreeList list;
  list.insert({1024, 8, 0});
  list.insert({512, 4, 1});
  list.insert({1024, 2, 2});
  CHECK(entries_of(list) == std::vector<FreeEntry>{{512, 4, 1}, {1024, 2, 2}, {1024, 8, 0}});
  CHECK(list.at(list.at_least(513)).block == 2);
  CHECK(list.at_least(1025) == list.end());
}

TEST_CASE("an emptied list can be filled again") {
  FreeList list;
  list.insert({512, 4, 1});
  list.erase({512, 4, 1});
  CHECK(list.at_least(1) == list.end());
  list.insert({1024, 8, 2});
  CHECK(list.at(list.at_least(1)).block == 2);
  CHECK(list.next(list.at_least(1)) == list.end());
}

TEST_CASE("a list agrees with std::set over random insertions and erasures") {
  std::mt19937 random(3);
  FreeList list;
  std::set<FreeEntry, BySizeThenAddress> model;
  for (int i = 0; i < 20'000; ++i) {
    const FreeEntry entry{static_cast<Bytes>(random() % 50), random() % 20, 7};
    if (model.contains(entry)) {
      list.erase(entry);
      model.erase(entry);
    } else if (i % 4000 < 2000 || random() % 8 == 0) {  // fills for a while, then drains
      list.insert(entry);
      model.insert(entry);
    }
    const auto size = static_cast<Bytes>(random() % 52);
    const auto found = list.at_least(size);
    const auto expected = model.lower_bound({size, 0, kNone});
    REQUIRE((found == list.end()) == (expected == model.end()));
    if (expected == model.end()) continue;
    REQUIRE(list.at(found) == *expected);
    REQUIRE((list.next(found) == list.end()) == (std::next(expected) == model.end()));
  }
  CHECK(entries_of(list) == std::vector<FreeEntry>(model.begin(), model.end()));
}

}  // namespace
}  // namespace ullage
