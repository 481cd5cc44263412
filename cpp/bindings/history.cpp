// Reconstruction: one device's history, its checks, and its layouts at chosen instants.
#include <nanobind/stl/vector.h>

#include "bindings/binding.hpp"
#include "core/drawing.hpp"
#include "core/error.hpp"
#include "core/rebuild.hpp"

namespace ullage::bindings {
namespace {

const DeviceTrace& trace_of(const Tables& tables, std::int32_t device) {
  for (const DeviceTrace& trace : tables.devices) {
    if (trace.device == device) return trace;
  }
  throw nb::index_error("no such device in the trace");
}

History rebuild_device(const Tables& tables, std::int32_t device, bool verify, bool counters) {
  const DeviceTrace& trace = trace_of(tables, device);
  nb::gil_scoped_release release;
  RebuildOptions options;
  options.verify = verify;
  options.counters = counters;
  return rebuild(tables, trace, options);
}

nb::list layouts(const Tables& tables, std::int32_t device, const std::vector<EventIndex>& events) {
  nb::list out;
  for (LayoutTable& table : layouts_after(tables, trace_of(tables, device), events))
    out.append(nb::cast(std::move(table)));
  return out;
}

Drawing draw(const History& history, EventIndex num_events) {
  const nb::gil_scoped_release release;
  return draw_blocks(history.blocks, num_events);
}

nb::tuple values(const CounterValues& counters) {
  return nb::make_tuple(counters[0], counters[1], counters[2], counters[3]);
}

nb::dict verification(const History& history) {
  const Verification& v = history.verification;
  nb::dict out;
  out["allocs"] = v.allocs;
  out["address_matches"] = v.address_matches;
  out["segments"] = v.segments;
  out["segment_matches"] = v.segment_matches;
  out["final_blocks"] = v.final_blocks;
  out["final_block_matches"] = v.final_block_matches;
  out["undetermined_blocks"] = history.num_undetermined;
  out["first_mismatch_event"] = v.first_mismatch;
  return out;
}

void bind_history_columns(nb::class_<History>& cls) {
#define ULLAGE_COLUMN(name, column) \
  cls.def_prop_ro(name, [](nb::handle self) { return view(nb::cast<const History&>(self).column, self); })
  ULLAGE_COLUMN("block_birth", blocks.birth);
  ULLAGE_COLUMN("block_free_requested", blocks.free_requested);
  ULLAGE_COLUMN("block_death", blocks.death);
  ULLAGE_COLUMN("block_address", blocks.address);
  ULLAGE_COLUMN("block_size", blocks.size);
  ULLAGE_COLUMN("block_requested_size", blocks.requested_size);
  ULLAGE_COLUMN("block_site", blocks.site);
  ULLAGE_COLUMN("block_segment", blocks.segment);
  ULLAGE_COLUMN("block_is_open", blocks.is_open);
  ULLAGE_COLUMN("segment_birth", segments.birth);
  ULLAGE_COLUMN("segment_death", segments.death);
  ULLAGE_COLUMN("segment_address", segments.address);
  ULLAGE_COLUMN("segment_size", segments.size);
  ULLAGE_COLUMN("segment_stream", segments.stream);
  ULLAGE_COLUMN("segment_pool", segments.pool);
  ULLAGE_COLUMN("segment_pool_size", segments.pool_size);
  ULLAGE_COLUMN("segment_is_expandable", segments.is_expandable);
  ULLAGE_COLUMN("segment_site", segments.site);
  ULLAGE_COLUMN("requested", after[0]);
  ULLAGE_COLUMN("allocated", after[1]);
  ULLAGE_COLUMN("active", after[2]);
  ULLAGE_COLUMN("reserved", after[3]);
#undef ULLAGE_COLUMN
}

void bind_layout_columns(nb::class_<LayoutTable>& cls) {
#define ULLAGE_COLUMN(name) \
  cls.def_prop_ro(#name, [](nb::handle self) { return view(nb::cast<const LayoutTable&>(self).name, self); })
  ULLAGE_COLUMN(segment_lifetime);
  ULLAGE_COLUMN(segment_address);
  ULLAGE_COLUMN(segment_size);
  ULLAGE_COLUMN(blocks_begin);
  ULLAGE_COLUMN(blocks_end);
  ULLAGE_COLUMN(address);
  ULLAGE_COLUMN(size);
  ULLAGE_COLUMN(requested_size);
  ULLAGE_COLUMN(state);
  ULLAGE_COLUMN(lifetime);
#undef ULLAGE_COLUMN
}

}  // namespace

void bind_history(nb::module_& module) {
  nb::class_<History> cls(module, "History");
  bind_history_columns(cls);
  cls.def_prop_ro("is_complete", [](const History& h) { return h.kind == HistoryKind::kComplete; });
  cls.def_prop_ro("has_events", [](const History& h) { return h.kind != HistoryKind::kNoEvents; });
  cls.def_prop_ro("before", [](const History& h) { return values(h.before); });
  cls.def_prop_ro("peak", [](const History& h) { return values(h.peak); });
  cls.def_prop_ro("end", [](const History& h) { return values(h.end); });
  cls.def_ro("fullest_event", &History::fullest_event);
  cls.def_prop_ro("recorded_end", [](const History& h) -> nb::object {
    return h.has_recorded_end ? nb::object(values(h.recorded_end)) : nb::object(nb::none());
  });
  cls.def_prop_ro("ends_as_recorded", [](const History& h) {
    const Verification& v = h.verification;
    return v.segments == v.segment_matches && v.final_blocks == v.final_block_matches;
  });
  cls.def_prop_ro("peak_event", [](const History& h) {
    return nb::make_tuple(h.peak_event[0], h.peak_event[1], h.peak_event[2], h.peak_event[3]);
  });
  cls.def_prop_ro("verification", verification);
  cls.def_ro("num_device_alloc", &History::num_device_alloc);
  cls.def_ro("num_device_free", &History::num_device_free);
  cls.def_ro("num_ooms", &History::num_ooms);
  cls.def_ro("num_initial_blocks", &History::num_initial_blocks);
  cls.def_ro("num_undetermined", &History::num_undetermined);
  cls.def_ro("undetermined_bytes", &History::undetermined_bytes);
  cls.def_ro("num_conflicts", &History::num_conflicts);
  cls.def_ro("first_conflict", &History::first_conflict);
  cls.def_ro("starts_inside_free", &History::starts_inside_free);
  nb::class_<Drawing> drawing(module, "Drawing");
  drawing.def_ro("height", &Drawing::height);
  drawing.def_prop_ro("offset", [](nb::handle self) { return view(nb::cast<const Drawing&>(self).offset, self); });
  module.def("draw_blocks", draw, nb::arg("history"), nb::arg("num_events"));
  nb::class_<LayoutTable> layout(module, "LayoutTable");
  bind_layout_columns(layout);
  module.def("rebuild", rebuild_device, nb::arg("tables"), nb::arg("device"), nb::arg("verify") = false,
             nb::arg("counters") = true);
  module.def("layouts_after", layouts, nb::arg("tables"), nb::arg("device"), nb::arg("events"));
}

}  // namespace ullage::bindings
