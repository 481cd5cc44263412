// The contract that every allocator model keeps.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "core/models/caching_allocator.hpp"
#include "core/models/waste.hpp"

namespace ullage::test {
namespace {

struct NamedPolicy {
  std::string name;
  CachingPolicy policy;
};

std::vector<NamedPolicy> policies() {
  std::vector<NamedPolicy> all(8);
  all[0].name = "default";
  all[1].name = "expandable";
  all[1].policy.settings.expandable_segments = true;
  all[2].name = "max_split";
  all[2].policy.settings.max_split_size = 32 * kMiB;
  all[3].name = "roundup";
  all[3].policy.settings.roundup_power2_divisions.fill(4);
  all[4].name = "large segments";
  all[4].policy.settings.large_segment_size = 64 * kMiB;
  all[5].name = "garbage collection under a cap";
  all[5].policy.garbage_collection = 0.6;
  all[5].policy.cap = 600 * kMiB;
  all[6].name = "stream-ordered pool";
  all[6].policy.settings.expandable_segments = true;
  all[6].policy.settings.large_segment_size = 32 * kMiB;
  all[6].policy.has_small_pool = false;
  all[6].policy.counts_requested = true;
  all[7].name = "arena";
  all[7].policy.settings.expandable_segments = true;
  all[7].policy.settings.large_segment_size = 2 * kMiB;
  all[7].policy.has_small_pool = false;
  all[7].policy.parts_streams = false;
  return all;
}

Bytes random_size(std::mt19937& random) {
  switch (random() % 3) {
    case 0: return 1 + static_cast<Bytes>(random() % 4000);
    case 1: return 1 + static_cast<Bytes>(random() % (2 * kMiB));
    default: return 1 + static_cast<Bytes>(random() % (40 * kMiB));
  }
}

void check_layout(const CachingAllocator& model, const CachingPolicy& policy) {
  const LayoutTable table = model.layout();
  Bytes reserved = 0, active = 0, allocated = 0;
  for (std::size_t segment = 0; segment < table.segment_address.size(); ++segment) {
    reserved += table.segment_size[segment];
    Address next = table.segment_address[segment];
    bool was_free = false;
    for (auto i = static_cast<std::size_t>(table.blocks_begin[segment]);
         i < static_cast<std::size_t>(table.blocks_end[segment]); ++i) {
      REQUIRE(table.address[i] == next);  // blocks cover the segment, so none overlap
      next += static_cast<Address>(table.size[i]);
      const bool is_free = table.state[i] == BlockState::kInactive;
      REQUIRE(!(is_free && was_free));
      was_free = is_free;
      REQUIRE(table.size[i] >= table.requested_size[i]);
      const Bytes charge = policy.counts_requested ? table.requested_size[i] : table.size[i];
      if (!is_free) active += charge;
      if (table.state[i] == BlockState::kActiveAllocated) allocated += charge;
    }
    REQUIRE(next == table.segment_address[segment] + static_cast<Address>(table.segment_size[segment]));
  }
  REQUIRE(reserved == model.counters().reserved);
  REQUIRE(active == model.counters().active);
  REQUIRE(allocated == model.counters().allocated);
  REQUIRE(model.counters().reserved <= policy.cap);
  const Waste waste = waste_of(model.state(), 0, policy.settings);
  REQUIRE(waste.requested + waste.rounding + waste.pending + waste.stranded + waste.small_pool + waste.other_stream +
              waste.private_pool + waste.cached ==
          reserved);
}

// Runs a random program; returns a digest of all that the model did.
std::vector<Bytes> run_random(const CachingPolicy& policy, unsigned seed, bool check) {
  std::mt19937 random(seed);
  CachingAllocator model(policy);
  std::vector<std::int32_t> live, pending;
  std::vector<Bytes> digest;
  std::int32_t next = 0;
  const auto take = [&](std::vector<std::int32_t>& from) {
    const std::size_t index = random() % from.size();
    const std::int32_t id = from[index];
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(index));
    return id;
  };
  for (int step = 0; step < 600; ++step) {
    const unsigned what = random() % 100;
    if (what < 50 || live.empty()) {
      const ModelRequest request{next, random_size(random), static_cast<std::int64_t>(random() % 2), kNone};
      if (model.request(request)) live.push_back(next);
      ++next;
    } else if (what < 90) {
      const std::int32_t id = take(live);
      model.free_requested(id);
      if (random() % 3 == 0) {
        pending.push_back(id);
      } else {
        model.free_completed(id);
      }
    } else if (what < 97) {
      if (!pending.empty()) model.free_completed(take(pending));
    } else {
      model.empty_cache();
    }
    digest.push_back(model.counters().reserved);
    if (check) check_layout(model, policy);
  }
  for (const std::int32_t id : live) {
    model.free_requested(id);
    model.free_completed(id);
  }
  for (const std::int32_t id : pending) model.free_completed(id);
  CHECK(model.counters().active == 0);
  CHECK(model.counters().allocated == 0);
  model.empty_cache();
  CHECK(model.counters().reserved == 0);
  CHECK(model.counters().num_device_alloc >= 1);
  return digest;
}

}  // namespace

TEST_CASE("every model keeps its blocks apart, its sums right and its cap, and gives all back") {
  for (const NamedPolicy& one : policies()) {
    CAPTURE(one.name);
    for (unsigned seed = 0; seed < 6; ++seed) {
      CAPTURE(seed);
      run_random(one.policy, seed, true);
    }
  }
}

TEST_CASE("every model does the same each time") {
  for (const NamedPolicy& one : policies()) {
    CAPTURE(one.name);
    CHECK(run_random(one.policy, 7, false) == run_random(one.policy, 7, false));
  }
}

TEST_CASE("a request that does not fit under the cap fails and leaves the live blocks alone") {
  for (NamedPolicy& one : policies()) {
    CAPTURE(one.name);
    one.policy.cap = 64 * kMiB;
    CachingAllocator model(one.policy);
    REQUIRE(model.request({0, 10 * kMiB, 0, kNone}));
    const Bytes allocated = model.counters().allocated;
    CHECK_FALSE(model.request({1, 100 * kMiB, 0, kNone}));
    CHECK(model.counters().allocated == allocated);
    model.free_requested(0);
    model.free_completed(0);
    CHECK(model.request({2, 40 * kMiB, 0, kNone}));
  }
}

TEST_CASE("a freed block serves the next request of its size without the driver") {
  for (const NamedPolicy& one : policies()) {
    CAPTURE(one.name);
    CachingAllocator model(one.policy);
    for (std::int32_t id = 0; id < 10; ++id) {
      REQUIRE(model.request({id, 12 * kMiB, 0, kNone}));
      model.free_requested(id);
      model.free_completed(id);
    }
    CHECK(model.counters().num_device_alloc == 1);
  }
}

TEST_CASE("a retry waits for pending frees, so that what they hold can serve") {
  CachingPolicy policy;
  policy.cap = 40 * kMiB;
  CachingAllocator model(policy);
  REQUIRE(model.request({0, 30 * kMiB, 1, kNone}));
  model.free_requested(0);
  CHECK(model.request({1, 30 * kMiB, 0, kNone}));
  CHECK(model.counters().num_retries == 1);
  model.free_completed(0);  // recorded later than the retry made it happen
  CHECK(model.counters().active == model.counters().allocated);
}

TEST_CASE("with max_split_size the smallest oversize block that is enough goes before the whole cache") {
  CachingPolicy policy;
  policy.settings.max_split_size = 20 * kMiB;
  policy.cap = 140 * kMiB;
  CachingAllocator model(policy);
  REQUIRE(model.request({0, 30 * kMiB, 0, kNone}));
  REQUIRE(model.request({1, 100 * kMiB, 0, kNone}));
  for (const std::int32_t id : {0, 1}) {
    model.free_requested(id);
    model.free_completed(id);
  }
  REQUIRE(model.request({2, 60 * kMiB, 0, kNone}));  // the block of 100 MiB is too large to be handed out for it
  CHECK(model.counters().num_device_free == 1);
  CHECK(model.counters().num_retries == 0);
  CHECK(model.counters().reserved == 90 * kMiB);
}

TEST_CASE("expandable segments fill the hole that unmapping left before they grow") {
  CachingPolicy policy;
  policy.settings.expandable_segments = true;
  CachingAllocator model(policy);
  for (std::int32_t id = 0; id < 3; ++id) REQUIRE(model.request({id, 40 * kMiB, 0, kNone}));
  model.free_requested(1);
  model.free_completed(1);
  model.empty_cache();
  CHECK(model.counters().reserved == 80 * kMiB);
  REQUIRE(model.request({3, 40 * kMiB, 0, kNone}));
  const LayoutTable table = model.layout();
  CHECK(table.segment_address.size() == 1);
  CHECK(table.segment_size[0] == 120 * kMiB);
}

}  // namespace ullage::test
