// The contract that every allocator model keeps.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "core/models/model_policy.hpp"

namespace ullage::test {
namespace {

struct NamedPolicy {
  std::string name;
  CachingPolicy policy;
  BinPolicy bins = {};

  ModelPolicy whole() const { return {policy, bins}; }
};

std::vector<NamedPolicy> policies() {
  std::vector<NamedPolicy> all(10);
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
  all[8].name = "slabs";
  all[8].policy = all[7].policy;
  all[8].policy.parts_streams = true;
  all[8].bins = {quarter_steps(64 * kKiB), 2 * kMiB, 0, true, true};
  all[9].name = "binning";
  all[9].policy = all[7].policy;
  all[9].bins = {powers_of_two(256 * kKiB, 4 * kMiB), 0, 8, false, false};
  return all;
}

Bytes random_size(std::mt19937& random) {
  switch (random() % 3) {
    case 0: return 1 + static_cast<Bytes>(random() % 4000);
    case 1: return 1 + static_cast<Bytes>(random() % (2 * kMiB));
    default: return 1 + static_cast<Bytes>(random() % (40 * kMiB));
  }
}

void check_layout(const AllocatorModel& model, const NamedPolicy& named) {
  const CachingPolicy& policy = named.policy;
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
      REQUIRE(!(is_free && was_free && named.bins.sizes.empty()));  // slots of a bin never merge
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
  const Waste waste = model.waste(0);
  REQUIRE(waste.requested + waste.rounding + waste.pending + waste.stranded + waste.small_pool + waste.other_stream +
              waste.private_pool + waste.cached ==
          reserved);
}

// Runs a random program; returns a digest of all that the model did.
std::vector<Bytes> run_random(const NamedPolicy& policy, unsigned seed, bool check) {
  std::mt19937 random(seed);
  const std::unique_ptr<AllocatorModel> held = make_model(policy.whole());
  AllocatorModel& model = *held;
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
  if (policy.bins.sizes.empty() || policy.bins.returns_chunks) CHECK(model.counters().reserved == 0);
  CHECK(model.counters().num_device_alloc >= 1);
  return digest;
}

}  // namespace

TEST_CASE("every model keeps its blocks apart, its sums right and its cap, and gives all back") {
  for (const NamedPolicy& one : policies()) {
    CAPTURE(one.name);
    for (unsigned seed = 0; seed < 6; ++seed) {
      CAPTURE(seed);
      run_random(one, seed, true);
    }
  }
}

TEST_CASE("every model does the same each time") {
  for (const NamedPolicy& one : policies()) {
    CAPTURE(one.name);
    CHECK(run_random(one, 7, false) == run_random(one, 7, false));
  }
}

TEST_CASE("a request that does not fit under the cap fails and leaves the live blocks alone") {
  for (NamedPolicy& one : policies()) {
    CAPTURE(one.name);
    one.policy.cap = 64 * kMiB;
    const std::unique_ptr<AllocatorModel> held = make_model(one.whole());
    AllocatorModel& model = *held;
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
    const std::unique_ptr<AllocatorModel> held = make_model(one.whole());
    AllocatorModel& model = *held;
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

TEST_CASE("slabs serve many small requests from one granule and go back when they are empty") {
  ModelPolicy policy = policies()[8].whole();
  const std::unique_ptr<AllocatorModel> model = make_model(policy);
  for (std::int32_t id = 0; id < 64; ++id) REQUIRE(model->request({id, 20'000, 0, kNone}));
  CHECK(model->counters().reserved == 2 * kMiB);
  CHECK(model->counters().allocated == 64 * 20'480);  // of 16,384 20,480 24,576 ... the first that is enough
  CHECK(model->waste(0).small_pool == (2 * kMiB / 20'480 - 64) * 20'480);
  for (std::int32_t id = 0; id < 64; ++id) {
    model->free_requested(id);
    model->free_completed(id);
  }
  CHECK(model->waste(0).cached == 2 * kMiB);
  REQUIRE(model->request({0, 2 * kMiB, 0, kNone}));  // another use of the same granule
  CHECK(model->counters().reserved == 2 * kMiB);
}

TEST_CASE("a slab of one stream does not serve another") {
  const std::unique_ptr<AllocatorModel> model = make_model(policies()[8].whole());
  REQUIRE(model->request({0, 4'000, 0, kNone}));
  REQUIRE(model->request({1, 4'000, 1, kNone}));
  CHECK(model->counters().reserved == 4 * kMiB);
  CHECK(model->waste(0).other_stream == 2 * kMiB / 4'096 * 4'096 - 4'096);
}

TEST_CASE("a bin keeps its chunks, and where none is to be had the pool behind it serves") {
  NamedPolicy binning = policies()[9];
  binning.policy.cap = 12 * kMiB;
  const std::unique_ptr<AllocatorModel> model = make_model(binning.whole());
  REQUIRE(model->request({0, kMiB, 0, kNone}));  // a chunk of 8 slots of 1 MiB
  CHECK(model->counters().reserved == 8 * kMiB);
  CHECK(model->counters().allocated == kMiB);
  model->free_requested(0);
  model->free_completed(0);
  model->empty_cache();
  CHECK(model->counters().reserved == 8 * kMiB);
  REQUIRE(model->request({1, 2 * kMiB, 0, kNone}));  // 8 slots of 2 MiB would go over the cap
  CHECK(model->counters().reserved == 10 * kMiB);
  CHECK(model->counters().num_retries == 1);
}

TEST_CASE("four sizes of slot lie in each doubling") {
  CHECK(quarter_steps(8'192) ==
        std::vector<Bytes>{512, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192});
  CHECK(powers_of_two(256, 2048) == std::vector<Bytes>{256, 512, 1024, 2048});
}

}  // namespace ullage::test
