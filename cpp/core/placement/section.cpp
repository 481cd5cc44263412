#include "core/placement/section.hpp"

#include <algorithm>
#include <numeric>

namespace ullage {
namespace {

constexpr int kMaxDepth = 64;  // nested sections cost their size at each depth

struct Part {
  Section section;
  int depth = 0;
};

// Rewrites times as moments; returns how many there are.
std::int64_t count_moments(std::vector<Buffer>& buffers) {
  struct Edge {
    std::int64_t time;
    bool is_begin;
    std::size_t index;
  };
  std::vector<Edge> edges;
  edges.reserve(2 * buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    edges.push_back({buffers[i].begin, true, i});
    edges.push_back({buffers[i].end, false, i});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    if (a.time != b.time) return a.time < b.time;
    return a.is_begin != b.is_begin ? b.is_begin : a.index < b.index;
  });
  std::int64_t moment = 0;
  bool has_ended = false;
  for (const Edge& edge : edges) {
    if (edge.is_begin) {
      moment += has_ended ? 1 : 0;
      has_ended = false;
      buffers[edge.index].begin = moment;
    } else {
      has_ended = true;
      buffers[edge.index].end = moment + 1;
    }
  }
  return buffers.empty() ? 0 : moment + 1;
}

void measure(Section& section, std::int64_t num_moments) {
  section.live.assign(static_cast<std::size_t>(num_moments) + 1, 0);
  for (const Buffer& buffer : section.buffers) {
    section.live[static_cast<std::size_t>(buffer.begin)] += buffer.size;
    section.live[static_cast<std::size_t>(buffer.end)] -= buffer.size;
  }
  std::partial_sum(section.live.begin(), section.live.end(), section.live.begin());
  section.live.pop_back();
  section.bound = section.live.empty() ? 0 : *std::max_element(section.live.begin(), section.live.end());
}

// Takes out what lives throughout, and moves the base above it; returns whether there was any.
bool settle_throughout(Section& section, std::int64_t num_moments, std::vector<Bytes>& settled) {
  Section rest;
  rest.base = section.base;
  for (std::size_t i = 0; i < section.buffers.size(); ++i) {
    const Buffer& buffer = section.buffers[i];
    if (buffer.begin == 0 && buffer.end == num_moments) {
      settled[section.row[i]] = rest.base;
      rest.base += buffer.size;
    } else {
      rest.buffers.push_back(buffer);
      rest.row.push_back(section.row[i]);
    }
  }
  const bool is_any = rest.row.size() != section.row.size();
  section = std::move(rest);
  return is_any;
}

std::vector<Section> part_in_time(const Section& whole) {
  std::vector<std::size_t> order(whole.buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return whole.buffers[a].begin < whole.buffers[b].begin; });
  std::vector<Section> parts;
  std::int64_t end = 0;
  for (const std::size_t i : order) {
    if (parts.empty() || whole.buffers[i].begin >= end) {
      parts.emplace_back();
      parts.back().base = whole.base;
    }
    end = std::max(end, whole.buffers[i].end);
    parts.back().buffers.push_back(whole.buffers[i]);
    parts.back().row.push_back(whole.row[i]);
  }
  return parts;
}

}  // namespace

std::vector<Section> sections_of(const std::vector<Buffer>& buffers, std::vector<Bytes>& settled) {
  settled.assign(buffers.size(), 0);
  Section whole;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size == 0 || buffers[i].begin >= buffers[i].end) continue;
    whole.buffers.push_back(buffers[i]);
    whole.row.push_back(i);
  }
  std::vector<Section> done;
  std::vector<Part> waiting;
  waiting.push_back({std::move(whole), 0});
  while (!waiting.empty()) {
    Part part = std::move(waiting.back());
    waiting.pop_back();
    const std::int64_t num_moments = count_moments(part.section.buffers);
    const bool is_any_settled = settle_throughout(part.section, num_moments, settled);
    if (part.section.row.empty()) continue;
    std::vector<Section> parts = part_in_time(part.section);
    const bool is_changed = parts.size() > 1 || is_any_settled;
    for (Section& one : parts) {
      if (is_changed && part.depth < kMaxDepth) {
        waiting.push_back({std::move(one), part.depth + 1});
      } else {
        measure(one, count_moments(one.buffers));
        done.push_back(std::move(one));
      }
    }
  }
  return done;
}

}  // namespace ullage
