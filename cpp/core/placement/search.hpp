// Looks through all placements of a small section that stay below a capacity.
#pragma once

#include <cstdint>
#include <vector>

#include "core/placement/section.hpp"

namespace ullage {

enum class SearchEnd : std::uint8_t { kFound, kNoneExists, kOutOfSteps };

// Fills the section from the bottom up. At the lowest place that is not filled, at the moment there with the fewest
// ways to go on, it tries each buffer that can lie there, then to leave a gap:
//
//   height
//     |  +-----+        +---+        valley: the moments whose height is the lowest
//     |  |     |        |   |        way 1, 2: a waiting buffer that lives at the moment and within the valley
//     +--+     +--------+   +--      way 3: nothing; then everything that lives at the moment lies higher
//              ^ moment
//
// Every way is another arrangement, so none is met twice. A branch ends where some moment cannot hold what is still to
// be placed there; what has become independent in time is searched apart.
class Search {
 public:
  explicit Search(const Section& section);

  // `rank` says which buffer to try first among those that can lie at a place.
  SearchEnd run(Bytes capacity, const std::vector<std::uint32_t>& rank, std::int64_t max_steps);
  // Of the last run that found a placement.
  const std::vector<Bytes>& offset() const { return offset_; }
  std::int64_t num_steps() const { return num_steps_; }

 private:
  using Indices = std::vector<std::uint32_t>;

  enum Gap : std::uint8_t { kNone, kMayBe };
  struct Choice {
    std::size_t moment = 0;
    Bytes height = 0;
    Indices buffers;  // the first to try first
    bool may_leave_gap = false;
  };

  bool place_all(const Indices& waiting);
  bool go_on(const Indices& waiting);
  bool choose(const Indices& waiting, Choice& choice);
  double choose_moment(std::size_t begin, std::size_t end, Choice& choice);
  bool try_buffer(const Indices& waiting, std::uint32_t chosen, Bytes offset);
  bool try_gap(const Indices& waiting, const Choice& choice);
  Bytes raised_above(std::uint32_t i, std::size_t moment, Bytes height);
  Bytes next_above(std::size_t moment, Bytes height);
  void raise(std::uint32_t i, Bytes to);
  bool raised_ones_fit();
  bool fits(std::size_t moment);
  std::vector<Indices> apart(const Indices& waiting, std::uint32_t without) const;
  bool is_twin(std::uint32_t a, std::uint32_t b) const;
  bool lives_at(std::uint32_t i, std::size_t moment) const {
    const Buffer& buffer = section_.buffers[i];
    return static_cast<std::size_t>(buffer.begin) <= moment && moment < static_cast<std::size_t>(buffer.end);
  }

  struct Before {
    std::uint32_t index;
    Bytes value;
  };
  void blame(std::size_t moment) { weight_[moment] += kBlame; }
  static constexpr double kBlame = 0.1;
  static constexpr double kForget = 0.9;  // what is left of a weight in the next run
  void undo(std::size_t lowest_mark, std::size_t height_mark);
  void set_height(std::size_t moment, Bytes height);

  const Section& section_;
  Indices by_begin_;
  std::vector<Indices> overlapping_;
  std::vector<Indices> living_;  // by moment
  std::vector<Bytes> offset_;
  std::vector<std::uint8_t> is_placed_;
  std::vector<Bytes> lowest_;                          // by buffer, the highest top below which it cannot lie
  std::vector<Bytes> height_;                          // by moment, below which nothing more can lie
  std::vector<Bytes> rest_;                            // by moment, what is still to be placed
  std::vector<Before> lowest_before_, height_before_;  // what to take back on leaving a branch
  std::size_t checked_ = 0;                            // of lowest_before_, those whose moments were looked at
  std::vector<std::int64_t> looked_at_;                // by moment, the look that it was last looked at in
  std::int64_t look_ = 0;
  std::vector<double> weight_;                // by moment, how often a branch ended there, the latest counting most
  std::vector<Gap> gap_;                      // by moment, whether a gap was found to be possible; scratch of choose()
  std::vector<std::int32_t> num_candidates_;  // by moment, scratch of choose()
  struct Piece {
    Bytes lowest, size;
  };
  std::vector<Piece> pieces_;  // scratch of fits()
  const std::vector<std::uint32_t>* rank_ = nullptr;
  Bytes capacity_ = 0;
  std::int64_t num_steps_ = 0, max_steps_ = 0;
  static constexpr int kDeepest = 10'000;  // branches within branches: each takes some of the stack
  int depth_ = 0;
};

}  // namespace ullage
