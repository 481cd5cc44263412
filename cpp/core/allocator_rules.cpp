#include "core/allocator_rules.hpp"

#include <bit>
#include <charconv>
#include <optional>
#include <string>

namespace ullage {
namespace {

Bytes round_up(Bytes size, Bytes multiple) { return (size + multiple - 1) / multiple * multiple; }

// The integer after "key:" in a configuration string.
std::optional<Bytes> configured(std::string_view conf, std::string_view key) {
  for (std::size_t at = conf.find(key); at != std::string_view::npos; at = conf.find(key, at + 1)) {
    const bool starts = at == 0 || conf[at - 1] == ',' || conf[at - 1] == ' ';
    std::size_t next = at + key.size();
    while (next < conf.size() && conf[next] == ' ') ++next;
    if (!starts || next >= conf.size() || conf[next] != ':') continue;
    ++next;
    while (next < conf.size() && conf[next] == ' ') ++next;
    Bytes value = 0;
    const auto [end, error] = std::from_chars(conf.data() + next, conf.data() + conf.size(), value);
    if (error == std::errc() && value > 0 && value < kSizeLimit / kMiB) return value;
  }
  return std::nullopt;
}

std::int64_t number_of(const SettingValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  return 0;
}

}  // namespace

AllocatorSettings settings_of(const Tables& tables) {
  constexpr std::string_view kRoundup = "roundup_power2_divisions.";
  AllocatorSettings settings;
  for (const auto& [key, value] : tables.settings) {
    if (key == "max_split_size") {
      const Bytes size = number_of(value);
      settings.max_split_size = size <= 0 ? kUnlimited : size;  // SIZE_MAX is written as -1
    } else if (key == "expandable_segments") {
      settings.expandable_segments = number_of(value) != 0;
    } else if (key == "PYTORCH_CUDA_ALLOC_CONF") {
      const auto* conf = std::get_if<std::string>(&value);
      if (conf == nullptr) continue;
      if (const auto size = configured(*conf, "max_non_split_rounding_mb"))
        settings.max_non_split_rounding = *size * kMiB;
      if (const auto size = configured(*conf, "large_segment_size_mb")) settings.large_segment_size = *size * kMiB;
    } else if (key.starts_with(kRoundup)) {
      std::uint64_t megabytes = 0;
      std::from_chars(key.data() + kRoundup.size(), key.data() + key.size(), megabytes);
      const std::int64_t divisions = number_of(value);
      if (std::has_single_bit(megabytes) && megabytes <= 32768 && divisions >= 0 && divisions <= 1024) {
        settings.roundup_power2_divisions[static_cast<std::size_t>(std::countr_zero(megabytes))] = divisions;
      }
    }
  }
  return settings;
}

Bytes round_size(Bytes requested, const AllocatorSettings& settings) {
  if (requested < kMinBlockSize) return kMinBlockSize;
  const int log2 = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(requested))) - 1;
  const int bucket = log2 < 20 ? 0 : log2 - 20 > 15 ? 15 : log2 - 20;
  const std::int64_t divisions = settings.roundup_power2_divisions[static_cast<std::size_t>(bucket)];
  if (divisions > 1 && requested > kMinBlockSize * divisions) {
    const Bytes power = Bytes{1} << log2;
    if (requested == power) return requested;
    const Bytes step = power / divisions;
    return step == 0 ? power * 2 : round_up(requested, step);
  }
  return round_up(requested, kMinBlockSize);
}

Bytes segment_size(Bytes rounded, const AllocatorSettings& settings) {
  if (is_small(rounded)) return kSmallBuffer;
  if (rounded < kMinLargeAlloc) return settings.large_segment_size;
  return round_up(rounded, kRoundLarge);
}

bool should_split(Bytes block, Bytes rounded, bool small_pool, const AllocatorSettings& settings) {
  const Bytes remainder = block - rounded;
  if (small_pool || settings.expandable_segments) return remainder >= kMinBlockSize;
  return rounded < settings.max_split_size && remainder > kSmallSize;
}

}  // namespace ullage
