#include "core/placement/placement.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/placement/improve.hpp"
#include "core/placement/section.hpp"

namespace ullage {
namespace {

std::vector<Buffer> rounded(const std::vector<Buffer>& buffers, Bytes alignment) {
  if (alignment < 1 || alignment > kSizeLimit) throw std::invalid_argument("the alignment has to be 1 or more");
  std::vector<Buffer> out = buffers;
  Bytes sum = 0;
  for (Buffer& buffer : out) {
    if (buffer.size < 0) throw std::invalid_argument("a buffer's size is negative");
    if (buffer.size >= kSizeLimit - alignment) throw std::invalid_argument("a buffer's size is 2^60 or more");
    buffer.size = (buffer.size + alignment - 1) / alignment * alignment;
    sum += buffer.size;
    if (sum >= kSizeLimit) throw std::invalid_argument("the buffers' sizes add up to 2^60 or more");
  }
  return out;
}

}  // namespace

Plan place(const std::vector<Buffer>& buffers, const PlaceOptions& options) {
  const std::vector<Buffer> all = rounded(buffers, options.alignment);
  Plan plan;
  std::vector<Section> sections = sections_of(all, plan.offset);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].begin < all[i].end) plan.largest_live = std::max(plan.largest_live, plan.offset[i] + all[i].size);
  }
  for (const Section& section : sections) plan.largest_live = std::max(plan.largest_live, section.base + section.bound);
  const Bytes target = std::max(plan.largest_live, options.enough);
  std::int64_t steps = 0;
  for (Section& section : sections) steps += place_greedily(section, target - section.base);
  // The highest first: the others matter only once it is as low as they are.
  std::stable_sort(sections.begin(), sections.end(),
                   [](const Section& a, const Section& b) { return a.base + a.height > b.base + b.height; });
  for (Section& section : sections) {
    if (section.base + section.height <= target || steps >= options.max_steps) continue;
    steps += improve(section, target - section.base, options.max_steps - steps);
  }
  plan.height = plan.largest_live;
  for (const Section& section : sections) {
    for (std::size_t i = 0; i < section.row.size(); ++i) plan.offset[section.row[i]] = section.base + section.offset[i];
    plan.height = std::max(plan.height, section.base + section.height);
  }
  return plan;
}

}  // namespace ullage
