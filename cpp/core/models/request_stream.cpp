#include "core/models/request_stream.hpp"

#include <algorithm>

namespace ullage {
namespace {

// Sites whose stack passes through a function of this name.
std::vector<std::uint8_t> sites_through(const Tables& tables, std::string_view function) {
  std::vector<std::uint8_t> through(tables.sites.size(), 0);
  const auto& frames = tables.frames.all();
  std::vector<std::uint8_t> named(frames.size(), 0);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    named[i] = frames[i].function != kNone && tables.strings.at(frames[i].function) == function;
  }
  const auto& starts = tables.sites.starts();
  for (std::size_t site = 0; site < through.size(); ++site) {
    for (std::int64_t i = starts[site]; i < starts[site + 1]; ++i) {
      through[site] |= named[static_cast<std::size_t>(tables.sites.frames()[static_cast<std::size_t>(i)])];
    }
  }
  return through;
}

class StreamBuilder {
 public:
  StreamBuilder(const Tables& tables, const DeviceTrace& trace, const History& history)
      : tables_(tables),
        events_(tables.events),
        first_(static_cast<std::size_t>(trace.events_begin)),
        count_(static_cast<EventIndex>(trace.events_end - trace.events_begin)),
        history_(history),
        through_empty_cache_(sites_through(tables, "empty_cache")) {}

  RequestStream build() {
    const BlockLifetimes& blocks = history_.blocks;
    std::vector<std::int32_t> freed_at(static_cast<std::size_t>(count_), kNone);
    std::vector<std::int32_t> completed_at(static_cast<std::size_t>(count_), kNone);
    for (std::size_t row = 0; row < blocks.size_rows(); ++row) {
      const auto request = static_cast<std::int32_t>(row);
      if (blocks.free_requested[row] >= 0) freed_at[static_cast<std::size_t>(blocks.free_requested[row])] = request;
      if (blocks.death[row] >= 0) completed_at[static_cast<std::size_t>(blocks.death[row])] = request;
      add_request(row);
    }
    out_.num_initial = history_.num_initial_blocks;
    for (std::int64_t row = 0; row < out_.num_initial; ++row) {
      const auto request = static_cast<std::int32_t>(row);
      out_.ops.push_back({OpKind::kRequest, request, kNone, kNone});
      if (blocks.free_requested[static_cast<std::size_t>(row)] == kBefore) {
        out_.ops.push_back({OpKind::kFreeRequested, request, kNone, kNone});
      }
    }
    auto next_born = static_cast<std::int32_t>(out_.num_initial);
    const auto num_recorded = static_cast<std::int32_t>(blocks.size_rows());
    for (EventIndex i = 0; i < count_; ++i) {
      if (next_born < num_recorded && blocks.birth[static_cast<std::size_t>(next_born)] == i) {
        out_.ops.push_back({OpKind::kRequest, next_born++, i, kNone});
      }
      const std::int32_t freed = freed_at[static_cast<std::size_t>(i)];
      const std::int32_t completed = completed_at[static_cast<std::size_t>(i)];
      if (freed != kNone) out_.ops.push_back({OpKind::kFreeRequested, freed, i, kNone});
      if (completed != kNone) out_.ops.push_back({OpKind::kFreeCompleted, completed, i, kNone});
      const Action what = action(i);
      if (what == Action::kOom) add_failed(i);
      if ((what == Action::kSegmentFree || what == Action::kSegmentUnmap) && ends_release(i) && is_empty_cache(i)) {
        out_.ops.push_back({OpKind::kEmptyCache, kNone, i, kNone});
      }
    }
    name_requests(out_);
    return std::move(out_);
  }

 private:
  Action action(EventIndex i) const { return events_.action[first_ + static_cast<std::size_t>(i)]; }
  SiteId site(EventIndex i) const { return events_.site[first_ + static_cast<std::size_t>(i)]; }

  void add_request(std::size_t row) {
    const BlockLifetimes& blocks = history_.blocks;
    const auto segment = static_cast<std::size_t>(blocks.segment[row]);
    const EventIndex birth = blocks.birth[row];
    out_.size.push_back(blocks.requested_size[row]);
    out_.stream.push_back(birth == kNone ? history_.segments.stream[segment]
                                         : events_.stream[first_ + static_cast<std::size_t>(birth)]);
    out_.pool.push_back(history_.segments.pool[segment]);
    out_.site.push_back(blocks.site[row]);
  }

  void add_failed(EventIndex i) {
    const auto row = first_ + static_cast<std::size_t>(i);
    out_.ops.push_back({OpKind::kFailedRequest, static_cast<std::int32_t>(out_.size.size()), i, kNone});
    out_.size.push_back(events_.size[row]);
    out_.stream.push_back(events_.stream[row]);
    const std::int32_t pool = events_.pool[row];
    const bool is_default = pool == kNone || tables_.pools[static_cast<std::size_t>(pool)].is_default();
    out_.pool.push_back(is_default ? kNone : pool);
    out_.site.push_back(events_.site[row]);
  }

  bool ends_release(EventIndex i) const {
    return i + 1 >= count_ || (action(i + 1) != Action::kSegmentFree && action(i + 1) != Action::kSegmentUnmap);
  }

  // A release that the allocator made for a request has that request's stack, and a driver allocation or an error right
  // behind it. Every other one was asked for.
  bool is_empty_cache(EventIndex last) const {
    const SiteId from = site(last);
    if (from != kNone && through_empty_cache_[static_cast<std::size_t>(from)]) return true;
    if (last + 1 >= count_) return true;
    const Action follows = action(last + 1);
    if (follows == Action::kOom) return false;
    if (follows != Action::kSegmentAlloc && follows != Action::kSegmentMap) return true;
    return site(last + 1) != from;
  }

  const Tables& tables_;
  const EventTable& events_;
  const std::size_t first_;
  const EventIndex count_;
  const History& history_;
  const std::vector<std::uint8_t> through_empty_cache_;
  RequestStream out_;
};

}  // namespace

void name_requests(RequestStream& stream) {
  std::vector<std::int32_t> name_of(stream.num_requests(), kNone);
  std::vector<std::int32_t> given_back;
  stream.num_names = 0;
  for (Op& op : stream.ops) {
    if (op.request == kNone) continue;
    std::int32_t& name = name_of[static_cast<std::size_t>(op.request)];
    if (op.kind == OpKind::kRequest || op.kind == OpKind::kFailedRequest) {
      if (given_back.empty()) given_back.push_back(stream.num_names++);
      name = given_back.back();
      given_back.pop_back();
    }
    op.name = name;
    if (op.kind == OpKind::kFreeCompleted || op.kind == OpKind::kFailedRequest) given_back.push_back(name);
  }
}

RequestStream request_stream(const Tables& tables, const DeviceTrace& trace, const History& history) {
  return StreamBuilder(tables, trace, history).build();
}

RequestStream with_waits_scaled(const RequestStream& stream, double factor) {
  RequestStream out = stream;
  const auto count = stream.ops.size();
  std::vector<std::size_t> requested_at(stream.num_requests(), count);
  struct Moved {
    std::size_t at;
    Op op;
  };
  std::vector<Moved> moved;
  std::vector<std::uint8_t> is_moved(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const Op& op = stream.ops[i];
    if (op.request == kNone) continue;
    const auto row = static_cast<std::size_t>(op.request);
    if (op.kind == OpKind::kFreeRequested) requested_at[row] = i;
    if (op.kind != OpKind::kFreeCompleted || requested_at[row] + 1 >= i) continue;
    const double wait = static_cast<double>(i - requested_at[row]) * factor;
    const double place =
        std::min(static_cast<double>(requested_at[row]) + std::max(wait, 0.0), static_cast<double>(count));
    moved.push_back({static_cast<std::size_t>(place), op});
    is_moved[i] = 1;
  }
  std::stable_sort(moved.begin(), moved.end(), [](const Moved& a, const Moved& b) { return a.at < b.at; });
  out.ops.clear();
  auto next = moved.begin();
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_moved[i]) out.ops.push_back(stream.ops[i]);
    for (; next != moved.end() && next->at <= i; ++next) out.ops.push_back(next->op);
  }
  for (; next != moved.end(); ++next) out.ops.push_back(next->op);
  name_requests(out);
  return out;
}

std::int64_t num_waiting_frees(const RequestStream& stream) {
  std::int64_t waiting = 0;
  for (std::size_t i = 1; i < stream.ops.size(); ++i) {
    const Op& op = stream.ops[i];
    const Op& before = stream.ops[i - 1];
    if (op.kind != OpKind::kFreeCompleted) continue;
    waiting += before.kind != OpKind::kFreeRequested || before.request != op.request;
  }
  return waiting;
}

}  // namespace ullage
