// Frames and sites. A site is one stack, innermost frame first; both are interned.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/units.hpp"

namespace ullage {

struct Frame {
  StringId file = kNone;
  StringId function = kNone;
  std::int32_t line = 0;

  bool operator==(const Frame&) const = default;
};

class FrameTable {
 public:
  FrameTable();
  FrameId intern(const Frame& frame);
  const Frame& at(FrameId id) const { return frames_[static_cast<std::size_t>(id)]; }
  const std::vector<Frame>& all() const { return frames_; }

 private:
  std::vector<Frame> frames_;
  std::vector<FrameId> slots_;
};

class SiteTable {
 public:
  SiteTable();
  SiteId intern(std::span<const FrameId> frames);
  std::size_t size() const { return starts_.size() - 1; }

  // Site i is frames()[starts()[i] .. starts()[i + 1]).
  const std::vector<FrameId>& frames() const { return frames_; }
  const std::vector<std::int64_t>& starts() const { return starts_; }

 private:
  std::vector<FrameId> frames_;
  std::vector<std::int64_t> starts_{0};
  std::vector<std::size_t> hashes_;
  std::vector<SiteId> slots_;
};

}  // namespace ullage
