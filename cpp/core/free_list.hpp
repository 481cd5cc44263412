// Free blocks of one pool and stream in the allocator's order: by size, then address. Sorted runs of bounded length, so
// that a search is two binary searches in contiguous memory and an insertion moves one run's tail.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <vector>

#include "core/units.hpp"

namespace ullage {

struct FreeEntry {
  Bytes size = 0;
  Address address = 0;
  std::int32_t block = kNone;

  auto operator<=>(const FreeEntry&) const = default;
};

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

  void erase(const FreeEntry& entry) {
    const Cursor place = lower_bound(entry);
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

  Cursor lower_bound(const FreeEntry& entry) const {
    const auto run =
        std::lower_bound(runs_.begin(), runs_.end(), entry,
                         [](const std::vector<FreeEntry>& some, const FreeEntry& key) { return some.back() < key; });
    if (run == runs_.end()) return end();
    const auto place = std::lower_bound(run->begin(), run->end(), entry);
    return {static_cast<std::size_t>(run - runs_.begin()), static_cast<std::size_t>(place - run->begin())};
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
