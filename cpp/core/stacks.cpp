#include "core/stacks.hpp"

#include <algorithm>

namespace ullage {
namespace {

std::size_t mix(std::size_t hash, std::size_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

std::size_t hash_of(const Frame& frame) {
  std::size_t hash = mix(0, static_cast<std::uint32_t>(frame.file));
  hash = mix(hash, static_cast<std::uint32_t>(frame.function));
  return mix(hash, static_cast<std::uint32_t>(frame.line)) >> 7;
}

}  // namespace

FrameTable::FrameTable() : slots_(1024, kNone) {}

FrameId FrameTable::intern(const Frame& frame) {
  std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_of(frame) & mask;
  for (; slots_[slot] != kNone; slot = (slot + 1) & mask) {
    if (at(slots_[slot]) == frame) return slots_[slot];
  }
  const auto id = static_cast<FrameId>(frames_.size());
  frames_.push_back(frame);
  slots_[slot] = id;
  if (frames_.size() * 2 > slots_.size()) {
    slots_.assign(slots_.size() * 2, kNone);
    mask = slots_.size() - 1;
    for (std::size_t row = 0; row < frames_.size(); ++row) {
      slot = hash_of(frames_[row]) & mask;
      while (slots_[slot] != kNone) slot = (slot + 1) & mask;
      slots_[slot] = static_cast<FrameId>(row);
    }
  }
  return id;
}

SiteTable::SiteTable() : slots_(1024, kNone) {}

SiteId SiteTable::intern(std::span<const FrameId> frames) {
  std::size_t hash = 0;
  for (const FrameId frame : frames) hash = mix(hash, static_cast<std::uint32_t>(frame));
  hash >>= 7;
  std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  for (; slots_[slot] != kNone; slot = (slot + 1) & mask) {
    const auto row = static_cast<std::size_t>(slots_[slot]);
    if (hashes_[row] != hash) continue;
    const auto length = static_cast<std::size_t>(starts_[row + 1] - starts_[row]);
    if (length == frames.size() && std::equal(frames.begin(), frames.end(), frames_.begin() + starts_[row])) {
      return slots_[slot];
    }
  }
  const auto id = static_cast<SiteId>(size());
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  starts_.push_back(static_cast<std::int64_t>(frames_.size()));
  hashes_.push_back(hash);
  slots_[slot] = id;
  if (size() * 2 > slots_.size()) {
    slots_.assign(slots_.size() * 2, kNone);
    mask = slots_.size() - 1;
    for (std::size_t row = 0; row < hashes_.size(); ++row) {
      slot = hashes_[row] & mask;
      while (slots_[slot] != kNone) slot = (slot + 1) & mask;
      slots_[slot] = static_cast<SiteId>(row);
    }
  }
  return id;
}

}  // namespace ullage
