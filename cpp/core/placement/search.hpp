// Looks through all placements of a small section that stay below a capacity.
#pragma once

#include <cstdint>
#include <vector>

#include "core/placement/section.hpp"

namespace ullage {

enum class SearchEnd : std::uint8_t { kFound, kNoneExists, kOutOfSteps };

// Places buffers from the bottom up, none below the one before it, so that each arrangement is met once at most. A
// branch ends where a moment's lowest free place and what is still to be placed there pass the capacity; what has
// become independent in time is searched apart.
class Search {
 public:
  explicit Search(const Section& section);

  // `rank` says which buffer to try first among those that can lie equally low.
  SearchEnd run(Bytes capacity, const std::vector<std::uint32_t>& rank, std::int64_t max_steps);
  // Of the last run that found a placement.
  const std::vector<Bytes>& offset() const { return offset_; }
  std::int64_t num_steps() const { return num_steps_; }

 private:
  using Indices = std::vector<std::uint32_t>;

  bool place_all(const Indices& waiting, Bytes frontier);
  bool can_fit(const Indices& waiting, Bytes frontier);
  Indices candidates(const Indices& waiting, Bytes frontier) const;
  bool try_candidate(const Indices& waiting, std::uint32_t chosen, Bytes offset);
  std::vector<Indices> apart(const Indices& waiting, std::uint32_t without) const;
  bool is_twin(std::uint32_t a, std::uint32_t b) const;
  Bytes lowest(std::uint32_t i, Bytes frontier) const { return lowest_[i] > frontier ? lowest_[i] : frontier; }

  struct Raised {
    std::uint32_t index;
    Bytes before;
  };
  const Section& section_;
  Indices by_begin_;
  std::vector<Indices> overlapping_;
  std::vector<Bytes> offset_;
  std::vector<Bytes> lowest_;  // the highest top below which a buffer cannot lie
  std::vector<Raised> trail_;  // what to take back on leaving a branch
  std::vector<Bytes> above_;   // by moment, what has to lie at or above the place in hand
  Indices from_top_;
  const std::vector<std::uint32_t>* rank_ = nullptr;
  Bytes capacity_ = 0;
  std::int64_t num_steps_ = 0, max_steps_ = 0;
};

}  // namespace ullage
