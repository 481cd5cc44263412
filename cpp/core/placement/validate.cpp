#include "core/placement/validate.hpp"

#include <algorithm>
#include <map>

namespace ullage {
namespace {

Bytes rounded(Bytes size, Bytes alignment) { return (size + alignment - 1) / alignment * alignment; }

// Sweeps over time; what is live lies in a map by offset, so an overlap shows between neighbours.
std::string overlap_in(const std::vector<Buffer>& buffers, const Plan& plan, Bytes alignment) {
  std::map<std::int64_t, std::vector<std::size_t>> begins, ends;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size == 0 || buffers[i].begin >= buffers[i].end) continue;
    begins[buffers[i].begin].push_back(i);
    ends[buffers[i].end].push_back(i);
  }
  std::map<Bytes, std::size_t> live;  // by offset
  Bytes sum = 0, largest = 0;
  for (const auto& [time, born] : begins) {
    while (!ends.empty() && ends.begin()->first <= time) {
      for (const std::size_t i : ends.begin()->second) {
        live.erase(plan.offset[i]);
        sum -= rounded(buffers[i].size, alignment);
      }
      ends.erase(ends.begin());
    }
    for (const std::size_t i : born) {
      const auto [place, is_new] = live.emplace(plan.offset[i], i);
      const auto next = std::next(place);
      bool is_clear = is_new && (next == live.end() || plan.offset[i] + buffers[i].size <= next->first);
      if (is_clear && place != live.begin()) {
        const auto before = std::prev(place);
        is_clear = before->first + buffers[before->second].size <= plan.offset[i];
      }
      if (!is_clear) return "buffer " + std::to_string(i) + " overlaps another that is live";
      sum += rounded(buffers[i].size, alignment);
    }
    largest = std::max(largest, sum);
  }
  return largest == plan.largest_live ? "" : "the largest live sum is " + std::to_string(largest);
}

}  // namespace

std::string validate(const std::vector<Buffer>& buffers, const Plan& plan, Bytes alignment) {
  if (plan.offset.size() != buffers.size()) return "not one offset a buffer";
  Bytes height = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Bytes offset = plan.offset[i];
    if (offset < 0) return "buffer " + std::to_string(i) + " lies below 0";
    if (offset % alignment != 0) return "buffer " + std::to_string(i) + " is not aligned";
    if (buffers[i].begin < buffers[i].end) height = std::max(height, offset + rounded(buffers[i].size, alignment));
  }
  if (height != plan.height) return "the height is " + std::to_string(height);
  return overlap_in(buffers, plan, alignment);
}

}  // namespace ullage
