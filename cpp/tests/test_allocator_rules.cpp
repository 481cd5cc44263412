#include <doctest/doctest.h>

#include "core/allocator_rules.hpp"

namespace ullage {
namespace {

AllocatorSettings with_divisions(std::int64_t divisions) {
  AllocatorSettings settings;
  settings.roundup_power2_divisions.fill(divisions);
  return settings;
}

TEST_CASE("requests are rounded up to 512 bytes") {
  const AllocatorSettings settings;
  CHECK(round_size(0, settings) == 512);
  CHECK(round_size(1, settings) == 512);
  CHECK(round_size(512, settings) == 512);
  CHECK(round_size(513, settings) == 1024);
  CHECK(round_size(kMiB + 1, settings) == kMiB + 512);
}

TEST_CASE("divisions round to a share of the power of two below") {
  const AllocatorSettings settings = with_divisions(4);
  CHECK(round_size(2048, settings) == 2048);  // not over 512 * 4
  CHECK(round_size(2049, settings) == 2560);  // quarters of 2,048
  CHECK(round_size(1200 * kKiB, settings) == 1280 * kKiB);
  CHECK(round_size(1280 * kKiB, settings) == 1280 * kKiB);
  CHECK(round_size(1280 * kKiB + 1, settings) == 1536 * kKiB);
  CHECK(round_size(2 * kMiB, settings) == 2 * kMiB);  // powers of two stay
  CHECK(round_size(2 * kMiB - 1, settings) == 2 * kMiB);
}

TEST_CASE("divisions of 1 and 0 are off") {
  CHECK(round_size(1200 * kKiB, with_divisions(1)) == 1200 * kKiB);
  CHECK(round_size(1200 * kKiB, with_divisions(0)) == 1200 * kKiB);
}

TEST_CASE("each power of two from 1 MiB to 32 GiB has its own divisions") {
  AllocatorSettings settings;
  settings.roundup_power2_divisions[1] = 2;
  settings.roundup_power2_divisions[15] = 2;
  CHECK(round_size(kMiB + 1, settings) == kMiB + 512);
  CHECK(round_size(2 * kMiB + 1, settings) == 3 * kMiB);
  CHECK(round_size(4 * kMiB + 1, settings) == 4 * kMiB + 512);
  CHECK(round_size((32 * kKiB + 1) * kMiB, settings) == 48 * kKiB * kMiB);
  CHECK(round_size((128 * kKiB + 1) * kMiB, settings) == 192 * kKiB * kMiB);  // beyond the last: as the last
}

TEST_CASE("the largest sizes of a file round without overflow") {
  CHECK(round_size(kSizeLimit - 1, {}) == kSizeLimit);
  CHECK(round_size(kSizeLimit - 1, with_divisions(1024)) == kSizeLimit);
  CHECK(round_size(kSizeLimit - 1, with_divisions(1000)) > 0);
}

TEST_CASE("a request up to 1 MiB is small") {
  CHECK(is_small(kMiB));
  CHECK_FALSE(is_small(kMiB + 512));
}

TEST_CASE("segments are 2 MiB, 20 MiB or a multiple of 2 MiB") {
  const AllocatorSettings settings;
  CHECK(segment_size(512, settings) == 2 * kMiB);
  CHECK(segment_size(kMiB, settings) == 2 * kMiB);
  CHECK(segment_size(kMiB + 512, settings) == 20 * kMiB);
  CHECK(segment_size(10 * kMiB - 512, settings) == 20 * kMiB);
  CHECK(segment_size(10 * kMiB, settings) == 10 * kMiB);
  CHECK(segment_size(10 * kMiB + 512, settings) == 12 * kMiB);
}

TEST_CASE("a large block is split if more than 1 MiB is left") {
  const AllocatorSettings settings;
  CHECK_FALSE(should_split(3 * kMiB, 2 * kMiB, false, settings));
  CHECK(should_split(3 * kMiB + 512, 2 * kMiB, false, settings));
}

TEST_CASE("a small block, and any with expandable segments, is split if 512 bytes are left") {
  AllocatorSettings settings;
  CHECK(should_split(1024, 512, true, settings));
  CHECK_FALSE(should_split(512, 512, true, settings));
  settings.expandable_segments = true;
  CHECK(should_split(2 * kMiB + 512, 2 * kMiB, false, settings));
}

TEST_CASE("a request of max_split_size or more is not split") {
  AllocatorSettings settings;
  settings.max_split_size = 20 * kMiB;
  CHECK(should_split(40 * kMiB, 20 * kMiB - 512, false, settings));
  CHECK_FALSE(should_split(40 * kMiB, 20 * kMiB, false, settings));
}

Tables with_settings(std::vector<std::pair<std::string, SettingValue>> settings) {
  Tables tables;
  tables.settings = std::move(settings);
  return tables;
}

TEST_CASE("a recording's settings are taken over") {
  const AllocatorSettings settings = settings_of(with_settings({
      {"max_split_size", std::int64_t{20 * kMiB}},
      {"expandable_segments", true},
      {"roundup_power2_divisions.1", std::int64_t{8}},
      {"roundup_power2_divisions.32768", std::int64_t{2}},
      {"PYTORCH_CUDA_ALLOC_CONF", std::string("large_segment_size_mb:32, max_non_split_rounding_mb : 64")},
  }));
  CHECK(settings.max_split_size == 20 * kMiB);
  CHECK(settings.expandable_segments);
  CHECK(settings.roundup_power2_divisions[0] == 8);
  CHECK(settings.roundup_power2_divisions[15] == 2);
  CHECK(settings.large_segment_size == 32 * kMiB);
  CHECK(settings.max_non_split_rounding == 64 * kMiB);
}

TEST_CASE("-1 and 0 stand for no max_split_size") {
  CHECK(settings_of(with_settings({{"max_split_size", std::int64_t{-1}}})).max_split_size == kUnlimited);
  CHECK(settings_of(with_settings({{"max_split_size", std::int64_t{0}}})).max_split_size == kUnlimited);
  CHECK(settings_of({}).max_split_size == kUnlimited);
}

TEST_CASE("settings of the wrong kind or out of range keep their defaults") {
  const AllocatorSettings settings = settings_of(with_settings({
      {"max_split_size", std::string("x")},
      {"expandable_segments", 0.5},
      {"roundup_power2_divisions.3", std::int64_t{8}},
      {"roundup_power2_divisions.65536", std::int64_t{8}},
      {"roundup_power2_divisions.x", std::int64_t{8}},
      {"roundup_power2_divisions.2", std::int64_t{-1}},
      {"PYTORCH_CUDA_ALLOC_CONF",
       std::string("large_segment_size_mb:99999999999999999999,xlarge_segment_size_mb:4,max_non_split_rounding_mb:")},
  }));
  CHECK(settings.max_split_size == kUnlimited);
  CHECK_FALSE(settings.expandable_segments);
  for (const std::int64_t divisions : settings.roundup_power2_divisions) CHECK(divisions == 0);
  CHECK(settings.large_segment_size == 20 * kMiB);
  CHECK(settings.max_non_split_rounding == 20 * kMiB);
}

}  // namespace
}  // namespace ullage
