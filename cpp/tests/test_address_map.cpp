#include <doctest/doctest.h>

#include <map>
#include <random>

#include "core/address_map.hpp"

namespace ullage {
namespace {

TEST_CASE("a map finds what was put in, and nothing else") {
  AddressMap map;
  CHECK(map.find(0) == kNone);
  map.insert_or_assign(0, 7);
  map.insert_or_assign(512, 8);
  map.insert_or_assign(0, 9);
  CHECK(map.find(0) == 9);
  CHECK(map.find(512) == 8);
  CHECK(map.find(1024) == kNone);
  map.erase(0);
  map.erase(4096);
  CHECK(map.find(0) == kNone);
  CHECK(map.find(512) == 8);
}

TEST_CASE("a map agrees with std::map over random insertions and erasures") {
  std::mt19937_64 random(1);
  AddressMap map;
  std::map<Address, std::int32_t> model;
  for (std::int32_t i = 0; i < 50'000; ++i) {
    const Address address = random() % 4000 * 512;
    if (random() % 3 == 0) {
      map.erase(address);
      model.erase(address);
    } else {
      map.insert_or_assign(address, i);
      model[address] = i;
    }
    const Address probe = random() % 4000 * 512;
    CHECK(map.find(probe) == (model.contains(probe) ? model[probe] : kNone));
  }
}

TEST_CASE("addresses that differ only in their highest bits do not pile up" * doctest::timeout(10)) {
  AddressMap map;
  for (std::int32_t i = 0; i < 1 << 17; ++i) map.insert_or_assign(static_cast<Address>(i) << 47, i);
  CHECK(map.find(Address{5} << 47) == 5);
}

TEST_CASE("addresses that differ only in their lowest bits do not pile up" * doctest::timeout(10)) {
  AddressMap map;
  for (std::int32_t i = 0; i < 1 << 17; ++i) {
    const auto bits = static_cast<Address>(i);
    map.insert_or_assign((bits & 511) | (bits >> 9) << 52, i);
  }
  CHECK(map.find(5) == 5);
}

}  // namespace
}  // namespace ullage
