// The caching allocator in its plainest form: lists searched from end to end. It runs random programs and writes down,
// for each event, the event and the layout after it, so that a test can compare what the core rebuilds.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/allocator_rules.hpp"
#include "trace_builder.hpp"

namespace ullage::test {

struct NaiveBlock {
  Address address = 0;
  Bytes size = 0;
  Bytes requested = 0;
  BlockState state = BlockState::kInactive;
};

struct NaiveSegment {
  Address address = 0;
  Bytes size = 0;
  std::int64_t stream = 0;
  bool is_small = false;
  bool is_expandable = false;
  std::vector<NaiveBlock> blocks;

  Address end() const { return address + static_cast<Address>(size); }
};

class NaiveAllocator {
 public:
  NaiveAllocator(const AllocatorSettings& settings, unsigned seed) : settings_(settings), random_(seed) {
    trace.set("expandable_segments", settings.expandable_segments);
    if (settings.max_split_size != kUnlimited) trace.set("max_split_size", settings.max_split_size);
  }

  // Does something random.
  void step() {
    const unsigned what = random_() % 100;
    if (what < 50) {
      allocate();
    } else if (what < 85) {
      request_free(random_() % 4 != 0);
    } else if (what < 97) {
      complete_a_pending();
    } else {
      empty_cache();
    }
  }

  // Writes the layout as it is now into the trace, as the snapshot's end.
  void finish() {
    for (const auto& [address, segment] : segments_) {
      FinalSegment last{address,
                        segment.size,
                        {},
                        segment.is_small ? PoolSize::kSmall : PoolSize::kLarge,
                        segment.is_expandable,
                        segment.stream,
                        kNone};
      for (const NaiveBlock& block : segment.blocks) last.blocks.push_back({block.size, block.state, block.requested});
      trace.end_with(last);
    }
  }

  TraceBuilder trace;
  std::vector<std::string> shapes;  // after each event, as layout_checks.hpp writes them

 private:
  struct Place {
    Address segment = 0;
    std::size_t block = 0;
  };

  NaiveBlock& at(const Place& place) { return segments_.at(place.segment).blocks[place.block]; }

  Bytes random_request() {
    switch (random_() % 4) {
      case 0: return 1 + static_cast<Bytes>(random_() % 4000);
      case 1: return 1 + static_cast<Bytes>(random_() % (1 << 20));
      case 2: return kMiB + 1 + static_cast<Bytes>(random_() % (8 << 20));
      default: return 10 * kMiB + static_cast<Bytes>(random_() % (16 << 20));
    }
  }

  void allocate() {
    const Bytes requested = random_request();
    const Bytes rounded = (std::max<Bytes>(requested, 1) + 511) / 512 * 512;
    const std::int64_t stream = random_() % 4 == 0 ? 7 : 0;
    const bool is_small = rounded <= kMiB;
    Place place;
    if (!find_fit(stream, is_small, rounded, place)) {
      place =
          settings_.expandable_segments ? map_for(stream, is_small, rounded) : new_segment(stream, is_small, rounded);
    }
    NaiveSegment& segment = segments_.at(place.segment);
    const Bytes left = at(place).size - rounded;
    const bool splits =
        is_small || settings_.expandable_segments ? left >= 512 : rounded < settings_.max_split_size && left > kMiB;
    if (splits) {
      const NaiveBlock behind = {at(place).address + static_cast<Address>(rounded), left, 0, BlockState::kInactive};
      at(place).size = rounded;
      segment.blocks.insert(segment.blocks.begin() + static_cast<std::ptrdiff_t>(place.block) + 1, behind);
    }
    at(place).requested = requested;
    at(place).state = BlockState::kActiveAllocated;
    emit(Action::kAlloc, at(place).address, requested, stream);
  }

  // What a free block counts as: with the unmapped room behind it, if it ends a mapped range.
  Bytes size_with_room(const NaiveSegment& segment, std::size_t index) const {
    if (!segment.is_expandable || index + 1 < segment.blocks.size()) return segment.blocks[index].size;
    const auto next = segments_.upper_bound(segment.address);
    const bool same =
        next != segments_.end() && next->second.is_small == segment.is_small && next->second.stream == segment.stream;
    const Address room_end = same ? next->first : reservation(segment.stream, segment.is_small) + kReservation;
    return static_cast<Bytes>(room_end - segment.blocks[index].address);
  }

  bool find_fit(std::int64_t stream, bool is_small, Bytes rounded, Place& out) {
    std::vector<std::pair<std::pair<Bytes, Address>, Place>> fits;
    for (const auto& [address, segment] : segments_) {
      if (segment.stream != stream || segment.is_small != is_small) continue;
      for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
        const NaiveBlock& block = segment.blocks[i];
        if (block.state == BlockState::kInactive && block.size >= rounded)
          fits.push_back({{block.size, block.address}, {address, i}});
      }
    }
    if (fits.empty()) return false;
    std::sort(fits.begin(), fits.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::size_t best = 0;
    const auto room = [&](std::size_t i) {
      return size_with_room(segments_.at(fits[i].second.segment), fits[i].second.block);
    };
    while (settings_.expandable_segments && best + 1 < fits.size() && room(best + 1) < room(best)) ++best;
    const Bytes size = fits[best].first.first;
    if (rounded < settings_.max_split_size ? size >= settings_.max_split_size
                                           : size >= rounded + settings_.max_non_split_rounding) {
      return false;
    }
    out = fits[best].second;
    return true;
  }

  Place new_segment(std::int64_t stream, bool is_small, Bytes rounded) {
    const Bytes size = is_small              ? 2 * kMiB
                       : rounded < 10 * kMiB ? 20 * kMiB
                                             : (rounded + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
    const Address address = next_address_;
    next_address_ -= Address{1} << 26;  // the driver hands out addresses downwards
    segments_[address] = {address, size, stream, is_small, false, {{address, size, 0, BlockState::kInactive}}};
    emit(Action::kSegmentAlloc, address, size, stream);
    return {address, 0};
  }

  // Each stream and pool size has one reservation of addresses, mapped in granules.
  static constexpr Address kReservation = Address{1} << 36;
  static Address reservation(std::int64_t stream, bool is_small) {
    return kReservation * static_cast<Address>(2 + stream * 2 + (is_small ? 1 : 0));
  }

  // Maps what is missing behind the first free end, or in the first gap, that has room for the request.
  Place map_for(std::int64_t stream, bool is_small, Bytes rounded) {
    const Bytes granule = is_small ? 2 * kMiB : 20 * kMiB;
    Address gap = reservation(stream, is_small);
    Bytes free_before = 0;
    for (auto walk = segments_.lower_bound(gap);; ++walk) {
      const bool is_last = walk == segments_.end() || walk->first >= reservation(stream, is_small) + kReservation;
      const Address gap_end = is_last ? reservation(stream, is_small) + kReservation : walk->first;
      const auto room = static_cast<Bytes>(gap_end - gap);
      if (room > 0 && free_before + room >= rounded) {
        const Bytes missing = (rounded - free_before + granule - 1) / granule * granule;
        return map(gap, std::min(missing, room), stream, is_small);
      }
      const NaiveBlock& last = walk->second.blocks.back();
      free_before = last.state == BlockState::kInactive ? last.size : 0;
      gap = walk->second.end();
    }
  }

  // Returns the free block that the mapped range has become part of.
  Place map(Address address, Bytes size, std::int64_t stream, bool is_small) {
    NaiveSegment joined = {address, size, stream, is_small, true, {{address, size, 0, BlockState::kInactive}}};
    const auto behind = segments_.find(joined.end());
    if (behind != segments_.end() && behind->second.stream == stream && behind->second.is_small == is_small) {
      joined.blocks.insert(joined.blocks.end(), behind->second.blocks.begin(), behind->second.blocks.end());
      joined.size += behind->second.size;
      segments_.erase(behind);
    }
    auto before = segments_.lower_bound(address);
    if (before != segments_.begin() && (--before)->second.end() == address && before->second.stream == stream &&
        before->second.is_small == is_small) {
      joined.blocks.insert(joined.blocks.begin(), before->second.blocks.begin(), before->second.blocks.end());
      joined.size += before->second.size;
      joined.address = before->first;
      segments_.erase(before);
    }
    segments_[joined.address] = joined;
    merge_free(segments_[joined.address]);
    emit(Action::kSegmentMap, address, size, stream);
    const auto& blocks = segments_[joined.address].blocks;
    for (std::size_t i = blocks.size(); i-- > 0;) {
      if (blocks[i].address <= address) return {joined.address, i};
    }
    return {joined.address, 0};
  }

  static void merge_free(NaiveSegment& segment) {
    std::vector<NaiveBlock> merged;
    for (const NaiveBlock& block : segment.blocks) {
      const bool joins =
          !merged.empty() && merged.back().state == BlockState::kInactive && block.state == BlockState::kInactive;
      if (joins) {
        merged.back().size += block.size;
      } else {
        merged.push_back(block);
      }
    }
    segment.blocks = merged;
  }

  bool pick(BlockState state, Place& out) {
    std::vector<Place> places;
    for (const auto& [address, segment] : segments_) {
      for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
        if (segment.blocks[i].state == state) places.push_back({address, i});
      }
    }
    if (places.empty()) return false;
    out = places[random_() % places.size()];
    return true;
  }

  void request_free(bool completes) {
    Place place;
    if (!pick(BlockState::kActiveAllocated, place)) return;
    at(place).state = BlockState::kActivePendingFree;
    emit(Action::kFreeRequested, at(place).address, at(place).requested, segments_.at(place.segment).stream);
    if (completes) complete_free(place);
  }

  void complete_a_pending() {
    Place place;
    if (pick(BlockState::kActivePendingFree, place)) complete_free(place);
  }

  void complete_free(const Place& place) {
    const NaiveBlock freed = at(place);
    at(place).state = BlockState::kInactive;
    at(place).requested = 0;
    merge_free(segments_.at(place.segment));
    emit(Action::kFreeCompleted, freed.address, freed.requested, segments_.at(place.segment).stream);
  }

  void empty_cache() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [address, segment] : segments_) {
        if (segment.is_expandable ? unmap_some(segment) : free_whole(segment)) {
          changed = true;
          break;
        }
      }
    }
  }

  bool free_whole(const NaiveSegment& segment) {
    if (segment.blocks.size() > 1 || segment.blocks[0].state != BlockState::kInactive) return false;
    const NaiveSegment gone = segment;
    segments_.erase(gone.address);
    emit(Action::kSegmentFree, gone.address, gone.size, gone.stream);
    return true;
  }

  // Unmaps the whole granules of the first free block that has any.
  bool unmap_some(const NaiveSegment& segment) {
    const auto granule = static_cast<Address>(segment.is_small ? 2 * kMiB : 20 * kMiB);
    const Address base = reservation(segment.stream, segment.is_small);
    for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
      const NaiveBlock& block = segment.blocks[i];
      if (block.state != BlockState::kInactive) continue;
      const Address begin = base + (block.address - base + granule - 1) / granule * granule;
      const Address end = base + (block.address + static_cast<Address>(block.size) - base) / granule * granule;
      if (begin >= end) continue;
      unmap(segment, i, begin, end);
      return true;
    }
    return false;
  }

  void unmap(const NaiveSegment& segment, std::size_t index, Address begin, Address end) {
    const NaiveSegment whole = segment;
    const NaiveBlock cut = whole.blocks[index];
    const auto at_cut = whole.blocks.begin() + static_cast<std::ptrdiff_t>(index);
    segments_.erase(whole.address);
    NaiveSegment front = whole;
    front.blocks.assign(whole.blocks.begin(), at_cut);
    if (begin > cut.address)
      front.blocks.push_back({cut.address, static_cast<Bytes>(begin - cut.address), 0, BlockState::kInactive});
    front.size = static_cast<Bytes>(begin - whole.address);
    if (front.size > 0) segments_[front.address] = front;
    NaiveSegment back = whole;
    back.address = end;
    back.blocks.assign(at_cut + 1, whole.blocks.end());
    const Address cut_end = cut.address + static_cast<Address>(cut.size);
    if (end < cut_end)
      back.blocks.insert(back.blocks.begin(), {end, static_cast<Bytes>(cut_end - end), 0, BlockState::kInactive});
    back.size = static_cast<Bytes>(whole.end() - end);
    if (back.size > 0) segments_[end] = back;
    emit(Action::kSegmentUnmap, begin, static_cast<Bytes>(end - begin), whole.stream);
  }

  void emit(Action action, Address address, Bytes size, std::int64_t stream) {
    trace.add(action, address, size, stream);
    std::string shape;
    for (const auto& [at_address, segment] : segments_) {
      shape += (shape.empty() ? "" : " ") + std::to_string(at_address) + ":";
      for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
        shape += (i ? "+" : "") + std::to_string(segment.blocks[i].size);
        shape += "fap"[static_cast<std::size_t>(segment.blocks[i].state)];
      }
    }
    shapes.push_back(shape);
  }

  AllocatorSettings settings_;
  std::mt19937 random_;
  std::map<Address, NaiveSegment> segments_;
  Address next_address_ = Address{1} << 34;
};

}  // namespace ullage::test
