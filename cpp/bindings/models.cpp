// Request streams, and the allocator models that they run through.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/binding.hpp"
#include "core/models/model_policy.hpp"
#include "core/models/request_stream.hpp"

namespace ullage::bindings {
namespace {

RequestStream stream_of(const Tables& tables, std::int32_t device, const History& history) {
  for (const DeviceTrace& trace : tables.devices) {
    if (trace.device == device) {
      nb::gil_scoped_release release;
      return request_stream(tables, trace, history);
    }
  }
  throw nb::index_error("no such device in the trace");
}

Outcome run_model(const RequestStream& stream, const ModelPolicy& policy, bool stop_at_oom, bool keep_reserved) {
  nb::gil_scoped_release release;
  RunOptions options;
  options.stop_at_oom = stop_at_oom;
  options.keep_reserved = keep_reserved;
  return run(*make_model(policy), stream, options);
}

// What was wasted when reserved peaked: the run again, up to that operation.
nb::dict waste_at_peak(const RequestStream& stream, const ModelPolicy& policy, const Outcome& outcome) {
  const std::unique_ptr<AllocatorModel> model = make_model(policy);
  RunOptions options;
  options.last_op = outcome.peak_reserved_op;
  run(*model, stream, options);
  const std::int32_t request = stream.ops.empty() ? kNone : stream.ops[outcome.peak_reserved_op].request;
  const std::int64_t asking = request == kNone ? 0 : stream.stream[static_cast<std::size_t>(request)];
  const Waste waste = model->waste(asking);
  nb::dict out;
  out["requested"] = waste.requested;
  out["rounding"] = waste.rounding;
  out["pending"] = waste.pending;
  out["stranded"] = waste.stranded;
  out["small_pool"] = waste.small_pool;
  out["other_stream"] = waste.other_stream;
  out["private_pool"] = waste.private_pool;
  out["cached"] = waste.cached;
  return out;
}

void bind_policy(nb::module_& module) {
  nb::class_<ModelPolicy> policy(module, "ModelPolicy");
  policy.def(nb::init<>());
#define ULLAGE_FIELD(name, field)                                     \
  policy.def_prop_rw(                                                 \
      #name, [](const ModelPolicy& self) { return self.field.name; }, \
      [](ModelPolicy& self, decltype(ModelPolicy::field.name) value) { self.field.name = value; })
  ULLAGE_FIELD(cap, base);
  ULLAGE_FIELD(garbage_collection, base);
  ULLAGE_FIELD(has_small_pool, base);
  ULLAGE_FIELD(parts_streams, base);
  ULLAGE_FIELD(counts_requested, base);
  ULLAGE_FIELD(descending_addresses, base);
  ULLAGE_FIELD(max_split_size, base.settings);
  ULLAGE_FIELD(max_non_split_rounding, base.settings);
  ULLAGE_FIELD(large_segment_size, base.settings);
  ULLAGE_FIELD(expandable_segments, base.settings);
#undef ULLAGE_FIELD
  policy.def("set_roundup", [](ModelPolicy& self, std::size_t power, std::int64_t divisions) {
    if (power >= self.base.settings.roundup_power2_divisions.size()) throw nb::index_error();
    self.base.settings.roundup_power2_divisions[power] = divisions;
  });
  policy.def(
      "put_slabs_in_front",
      [](ModelPolicy& self, Bytes largest, Bytes slab_bytes) {
        self.bins = {quarter_steps(largest), slab_bytes, 0, true, self.base.parts_streams};
      },
      nb::arg("largest"), nb::arg("slab_bytes"));
  policy.def(
      "put_bins_in_front",
      [](ModelPolicy& self, Bytes smallest, Bytes largest, std::int64_t slots_per_chunk) {
        self.bins = {powers_of_two(smallest, largest), 0, slots_per_chunk, false, self.base.parts_streams};
      },
      nb::arg("smallest"), nb::arg("largest"), nb::arg("slots_per_chunk"));
  policy.def("use_recorded_segments", [](ModelPolicy& self, const Tables& tables, std::int32_t device) {
    for (const DeviceTrace& trace : tables.devices) {
      if (trace.device == device) self.base.recorded_segments = recorded_segments(tables, trace);
    }
  });
}

// The event of each operation, which `reserved_after` has a row for.
nb::object op_events(const RequestStream& stream) {
  auto* out = new std::vector<EventIndex>;
  out->reserve(stream.ops.size());
  for (const Op& op : stream.ops) out->push_back(op.event);
  const nb::capsule owner(out, [](void* pointer) noexcept { delete static_cast<std::vector<EventIndex>*>(pointer); });
  return nb::cast(View<EventIndex>(out->data(), {out->size()}, owner));
}

void bind_outcome(nb::module_& module) {
  nb::class_<Outcome> outcome(module, "Outcome");
  outcome.def_ro("peak_reserved", &Outcome::peak_reserved);
  outcome.def_ro("peak_allocated", &Outcome::peak_allocated);
  outcome.def_ro("peak_active", &Outcome::peak_active);
  outcome.def_ro("peak_reserved_event", &Outcome::peak_reserved_event);
  outcome.def_ro("end_reserved", &Outcome::end_reserved);
  outcome.def_ro("end_allocated", &Outcome::end_allocated);
  outcome.def_ro("num_device_alloc", &Outcome::num_device_alloc);
  outcome.def_ro("num_device_free", &Outcome::num_device_free);
  outcome.def_ro("num_retries", &Outcome::num_retries);
  outcome.def_ro("num_ooms", &Outcome::num_ooms);
  outcome.def_prop_ro("first_oom_event", [](const Outcome& self) { return self.first_oom.event; });
  outcome.def_prop_ro("first_oom_size", [](const Outcome& self) { return self.first_oom.size; });
  outcome.def_prop_ro("first_oom_site", [](const Outcome& self) { return self.first_oom.site; });
  outcome.def_prop_ro("first_oom_reserved", [](const Outcome& self) { return self.first_oom.reserved; });
  outcome.def_prop_ro("first_oom_allocated", [](const Outcome& self) { return self.first_oom.allocated; });
  outcome.def_prop_ro("reserved_after",
                      [](nb::handle self) { return view(nb::cast<const Outcome&>(self).reserved_after, self); });
}

}  // namespace

void bind_models(nb::module_& module) {
  nb::class_<RequestStream> stream(module, "RequestStream");
  stream.def_prop_ro("num_ops", [](const RequestStream& self) { return self.ops.size(); });
  stream.def_prop_ro("num_requests", [](const RequestStream& self) { return self.num_requests(); });
  stream.def_ro("num_initial", &RequestStream::num_initial);
  stream.def_prop_ro("op_event", op_events);
  bind_policy(module);
  bind_outcome(module);
  module.def("waste_at_peak", waste_at_peak, nb::arg("stream"), nb::arg("policy"), nb::arg("outcome"));
  module.def("with_waits_scaled", with_waits_scaled, nb::arg("stream"), nb::arg("factor"));
  module.def("num_waiting_frees", num_waiting_frees, nb::arg("stream"));
  module.def("request_stream", stream_of, nb::arg("tables"), nb::arg("device"), nb::arg("history"));
  module.def("run_model", run_model, nb::arg("stream"), nb::arg("policy"), nb::arg("stop_at_oom") = true,
             nb::arg("keep_reserved") = false);
}

}  // namespace ullage::bindings
