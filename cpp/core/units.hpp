// The core's integer types, each named for its unit.
#pragma once

#include <cstdint>

namespace ullage {

using Bytes = std::int64_t;       // a size; never negative in a table
using Address = std::uint64_t;    // a device virtual address
using TimeUs = std::int64_t;      // microseconds since the epoch
using EventIndex = std::int32_t;  // a row of one device's events; kNone where there is none
using StringId = std::int32_t;    // a row of the string table
using FrameId = std::int32_t;     // a row of the frame table
using SiteId = std::int32_t;      // a row of the site table; kNone for "no stack recorded"

inline constexpr std::int32_t kNone = -1;
inline constexpr EventIndex kBefore = -2;  // an event from before the recording

inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;

// PyTorch refuses requests of 1 EiB, so a larger size in a file is damage, and sums of sizes below it fit 64 bits.
inline constexpr Bytes kSizeLimit = Bytes{1} << 60;

}  // namespace ullage
