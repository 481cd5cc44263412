#include "core/strings.hpp"

#include "core/salted_hash.hpp"

namespace ullage {

StringTable::StringTable() : slots_(1024, kNone) {}

StringId StringTable::intern(std::string_view text) {
  const auto hash = static_cast<std::size_t>(hash_text(text));
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  while (slots_[slot] != kNone) {
    const auto row = static_cast<std::size_t>(slots_[slot]);
    if (hashes_[row] == hash && strings_[row] == text) return slots_[slot];
    slot = (slot + 1) & mask;
  }
  const auto id = static_cast<StringId>(strings_.size());
  strings_.emplace_back(text);
  hashes_.push_back(hash);
  slots_[slot] = id;
  if (strings_.size() * 2 > slots_.size()) grow();
  return id;
}

void StringTable::grow() {
  slots_.assign(slots_.size() * 2, kNone);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t row = 0; row < hashes_.size(); ++row) {
    std::size_t slot = hashes_[row] & mask;
    while (slots_[slot] != kNone) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<StringId>(row);
  }
}

}  // namespace ullage
