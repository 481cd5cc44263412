#include <doctest/doctest.h>

#include "core/stacks.hpp"

namespace ullage {
namespace {

TEST_CASE("equal frames have one id; each field tells frames apart") {
  FrameTable table;
  const FrameId frame = table.intern({1, 2, 3});
  CHECK(table.intern({1, 2, 3}) == frame);
  CHECK(table.intern({9, 2, 3}) != frame);
  CHECK(table.intern({1, 9, 3}) != frame);
  CHECK(table.intern({1, 2, 9}) != frame);
  CHECK(table.at(frame) == Frame{1, 2, 3});
  CHECK(table.all().size() == 4);
}

TEST_CASE("a site is its frames in their order") {
  SiteTable table;
  const SiteId site = table.intern(std::vector<FrameId>{1, 2});
  CHECK(table.intern(std::vector<FrameId>{1, 2}) == site);
  CHECK(table.intern(std::vector<FrameId>{2, 1}) != site);
  CHECK(table.intern(std::vector<FrameId>{1}) != site);
  CHECK(table.intern(std::vector<FrameId>{1, 2, 3}) != site);
  CHECK(table.size() == 4);
  CHECK(table.starts() == std::vector<std::int64_t>{0, 2, 4, 5, 8});
  CHECK(table.frames() == std::vector<FrameId>{1, 2, 2, 1, 1, 1, 2, 3});
}

TEST_CASE("frames and sites keep their ids while the tables grow") {
  FrameTable frames;
  SiteTable sites;
  for (int i = 0; i < 5000; ++i) {
    CHECK(frames.intern({i, i % 7, i % 11}) == i);
    CHECK(sites.intern(std::vector<FrameId>{i, i + 1}) == i);
  }
  for (int i = 0; i < 5000; ++i) {
    CHECK(frames.intern({i, i % 7, i % 11}) == i);
    CHECK(sites.intern(std::vector<FrameId>{i, i + 1}) == i);
  }
}

}  // namespace
}  // namespace ullage
