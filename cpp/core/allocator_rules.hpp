// The caching allocator's arithmetic: how a request is rounded, which pool it belongs to, when a block is split.
// Source: c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp, torch 2.11 to 2.13.
#pragma once

#include <array>
#include <limits>
#include <string_view>

#include "core/tables.hpp"
#include "core/units.hpp"

namespace ullage {

inline constexpr Bytes kMinBlockSize = 512;
inline constexpr Bytes kSmallSize = kMiB;           // a rounded request up to this comes from a small pool
inline constexpr Bytes kSmallBuffer = 2 * kMiB;     // segments of small pools
inline constexpr Bytes kMinLargeAlloc = 10 * kMiB;  // a request below this gets a segment of large_segment_size
inline constexpr Bytes kRoundLarge = 2 * kMiB;
inline constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

struct AllocatorSettings {
  Bytes max_split_size = kUnlimited;
  Bytes max_non_split_rounding = 20 * kMiB;
  Bytes large_segment_size = 20 * kMiB;
  bool expandable_segments = false;
  std::array<std::int64_t, 16> roundup_power2_divisions{};  // by power of two from 1 MiB; 0 is off
};

// The settings of a recording; what it does not say keeps its default.
AllocatorSettings settings_of(const Tables& tables);

Bytes round_size(Bytes requested, const AllocatorSettings& settings);
inline bool is_small(Bytes rounded) { return rounded <= kSmallSize; }
// The size of the segment that the driver is asked for when no cached block serves `rounded`.
Bytes segment_size(Bytes rounded, const AllocatorSettings& settings);
bool should_split(Bytes block, Bytes rounded, bool small_pool, const AllocatorSettings& settings);

}  // namespace ullage
