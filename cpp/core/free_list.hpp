// Free blocks of one pool and stream in the allocator's order: by size, then address. Sorted runs of bounded length, so
// that a search is two binary searches in contiguous memory and an insertion moves one run's tail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/units.hpp"

namespace ullage {

struct FreeEntry {
  Bytes size = 0;
  Address address = 0;
  std::int32_t block = kNone;

  bool operator==(const FreeEntry&) const = default;
};

// Whether `a` comes first. Without a branch: searches among free blocks go either way as often as not.
inline bool comes_before(const FreeEntry& a, const FreeEntry& b) {
  const auto key = [](const FreeEntry& entry) {
    return static_cast<unsigned __int128>(static_cast<std::uint64_t>(entry.size)) << 64 | entry.address;
  };
  return key(a) < key(b);
}

class FreeList {
 public:
  // A place in the list; valid until the list changes.
  struct Cursor {
    std::size_t run = 0;
    std::size_t index = 0;
    bool operator==(const Cursor&) const = default;
  };

  Cursor end() const { return {runs_.size(), 0}; }
  const FreeEntry& at(Cursor cursor) const { return runs_[cursor.run][cursor.index]; }
  Cursor next(Cursor cursor) const {
    if (++cursor.index < runs_[cursor.run].size()) return cursor;
    return {cursor.run + 1, 0};
  }

  // The first block of at least `size` bytes.
  Cursor at_least(Bytes size) const { return lower_bound({size, 0, kNone}); }

  void insert(const FreeEntry& entry) {
    if (runs_.empty()) {
      runs_.emplace_back().reserve(kLongest);
      runs_.back().push_back(entry);
      return;
    }
    Cursor place = lower_bound(entry);
    if (place.run == runs_.size()) place = {runs_.size() - 1, runs_.back().size()};
    std::vector<FreeEntry>& run = runs_[place.run];
    run.insert(run.begin() + static_cast<std::ptrdiff_t>(place.index), entry);
    if (run.size() == kLongest) split(place.run);
  }

  void erase(const FreeEntry& entry) { erase(lower_bound(entry)); }

  void erase(Cursor place) {
    std::vector<FreeEntry>& run = runs_[place.run];
    run.erase(run.begin() + static_cast<std::ptrdiff_t>(place.index));
    if (run.empty()) runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(place.run));
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& run : runs_) {
      for (const FreeEntry& entry : run) visit(entry);
    }
  }

 private:
  static constexpr std::size_t kLongest = 64;

  // The first of `count` things, from `first` on, that is_before() does not hold for; it holds for those before it
  // alone. Three places are looked at a time: they do not wait for each other, and nothing branches on what they say.
  template <typename T, typename IsBefore>
  static const T* partition_point(const T* first, std::size_t count, IsBefore is_before) {
    const auto holds = [&](std::size_t index) { return static_cast<std::size_t>(is_before(first[index])); };
    while (count > 3) {
      const std::size_t quarter = count / 4;
      first += quarter * (holds(quarter - 1) + holds(2 * quarter - 1) + holds(3 * quarter - 1));
      count -= 3 * quarter;
    }
    std::size_t before = 0;
    for (std::size_t i = 0; i < count; ++i) before += holds(i);
    return first + before;
  }

  Cursor lower_bound(const FreeEntry& entry) const {
    const auto* const runs = runs_.data();
    const auto* const run = partition_point(
        runs, runs_.size(), [&](const std::vector<FreeEntry>& some) { return comes_before(some.back(), entry); });
    if (run == runs + runs_.size()) return end();
    const FreeEntry* const place =
        partition_point(run->data(), run->size(), [&](const FreeEntry& some) { return comes_before(some, entry); });
    return {static_cast<std::size_t>(run - runs), static_cast<std::size_t>(place - run->data())};
  }

  void split(std::size_t row) {
    std::vector<FreeEntry> upper;
    upper.reserve(kLongest);
    std::vector<FreeEntry>& lower = runs_[row];
    const auto middle = lower.begin() + static_cast<std::ptrdiff_t>(kLongest / 2);
    upper.assign(middle, lower.end());
    lower.erase(middle, lower.end());
    runs_.insert(runs_.begin() + static_cast<std::ptrdiff_t>(row + 1), std::move(upper));
  }

  std::vector<std::vector<FreeEntry>> runs_;  // none is empty
};

}  // namespace ullage
