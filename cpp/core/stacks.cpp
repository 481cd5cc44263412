#include "core/stacks.hpp"

#include <algorithm>

#include "core/salted_hash.hpp"

namespace ullage {
namespace {

std::size_t hash_of(const Frame& frame) {
  const std::uint64_t names =
      std::uint64_t{static_cast<std::uint32_t>(frame.file)} << 32 | static_cast<std::uint32_t>(frame.function);
  return static_cast<std::size_t>(fold_product(hash_number(names) ^ static_cast<std::uint32_t>(frame.line)));
}

std::size_t hash_of(std::span<const FrameId> frames) {
  std::uint64_t hash = hash_number(frames.size());
  for (const FrameId frame : frames) hash = fold_product(hash ^ static_cast<std::uint32_t>(frame));
  return static_cast<std::size_t>(hash);
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
  const std::size_t hash = hash_of(frames);
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
