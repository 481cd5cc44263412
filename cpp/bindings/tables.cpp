// The reader, and the tables that it fills.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "bindings/binding.hpp"
#include "core/snapshot_reader.hpp"

namespace ullage::bindings {
namespace {

// Bytes from a Python callable `read(size) -> bytes`, such as that of a decompressing file.
class CallableSource : public ByteSource {
 public:
  explicit CallableSource(nb::callable read) : read_(std::move(read)) {}

  std::size_t read(char* out, std::size_t capacity) override {
    const nb::object got = read_(capacity);
    char* bytes = nullptr;
    Py_ssize_t length = 0;
    if (PyBytes_AsStringAndSize(got.ptr(), &bytes, &length) != 0) throw nb::python_error();
    if (static_cast<std::size_t>(length) > capacity)
      throw nb::value_error("read() returned more than it was asked for");
    std::memcpy(out, bytes, static_cast<std::size_t>(length));
    return static_cast<std::size_t>(length);
  }

 private:
  nb::callable read_;
};

Tables read_descriptor(int descriptor) {
  nb::gil_scoped_release release;
  struct stat status{};
  const bool has_size = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  FileSource source(descriptor);
  return read_snapshot(source, has_size ? static_cast<std::uint64_t>(status.st_size) : 0);
}

Tables read_callable(nb::callable read) {
  CallableSource source(std::move(read));
  return read_snapshot(source);
}

nb::dict settings_dict(const Tables& tables) {
  nb::dict out;
  for (const auto& [key, value] : tables.settings) {
    const nb::object name = text(key);
    if (const auto* flag = std::get_if<bool>(&value)) out[name] = nb::bool_(*flag);
    if (const auto* number = std::get_if<std::int64_t>(&value)) out[name] = nb::int_(*number);
    if (const auto* real = std::get_if<double>(&value)) out[name] = nb::float_(*real);
    if (const auto* words = std::get_if<std::string>(&value)) out[name] = text(*words);
  }
  return out;
}

nb::list texts(const std::vector<std::string>& words) {
  nb::list out;
  for (const std::string& word : words) out.append(text(word));
  return out;
}

template <typename T>
nb::list sparse(const std::vector<std::pair<std::int32_t, T>>& column) {
  nb::list out;
  for (const auto& [row, value] : column) out.append(nb::make_tuple(row, value));
  return out;
}

void bind_columns(nb::class_<Tables>& cls) {
#define ULLAGE_COLUMN(name, column) \
  cls.def_prop_ro(name, [](nb::handle self) { return view(nb::cast<const Tables&>(self).column, self); })
  ULLAGE_COLUMN("event_action", events.action);
  ULLAGE_COLUMN("event_address", events.address);
  ULLAGE_COLUMN("event_size", events.size);
  ULLAGE_COLUMN("event_stream", events.stream);
  ULLAGE_COLUMN("event_time", events.time);
  ULLAGE_COLUMN("event_site", events.site);
  ULLAGE_COLUMN("event_pool", events.pool);
  ULLAGE_COLUMN("segment_device", segments.device);
  ULLAGE_COLUMN("segment_address", segments.address);
  ULLAGE_COLUMN("segment_total_size", segments.total_size);
  ULLAGE_COLUMN("segment_allocated_size", segments.allocated_size);
  ULLAGE_COLUMN("segment_active_size", segments.active_size);
  ULLAGE_COLUMN("segment_requested_size", segments.requested_size);
  ULLAGE_COLUMN("segment_stream", segments.stream);
  ULLAGE_COLUMN("segment_pool_size", segments.pool_size);
  ULLAGE_COLUMN("segment_pool", segments.pool);
  ULLAGE_COLUMN("segment_is_expandable", segments.is_expandable);
  ULLAGE_COLUMN("segment_site", segments.site);
  ULLAGE_COLUMN("segment_blocks_begin", segments.blocks_begin);
  ULLAGE_COLUMN("segment_blocks_end", segments.blocks_end);
  ULLAGE_COLUMN("block_address", blocks.address);
  ULLAGE_COLUMN("block_size", blocks.size);
  ULLAGE_COLUMN("block_requested_size", blocks.requested_size);
  ULLAGE_COLUMN("block_state", blocks.state);
  ULLAGE_COLUMN("block_site", blocks.site);
  ULLAGE_COLUMN("annotation_name", annotations.name);
  ULLAGE_COLUMN("annotation_stage", annotations.stage);
  ULLAGE_COLUMN("annotation_device", annotations.device);
  ULLAGE_COLUMN("annotation_time", annotations.time);
  ULLAGE_COLUMN("site_starts", sites.starts());
  ULLAGE_COLUMN("site_frames", sites.frames());
#undef ULLAGE_COLUMN
}

void bind_texts(nb::class_<Tables>& cls) {
  cls.def("text", [](const Tables& t, StringId id) {
    if (id < 0 || static_cast<std::size_t>(id) >= t.strings.size()) throw nb::index_error();
    return text(t.strings.at(id));
  });
  cls.def("frame", [](const Tables& t, FrameId id) {
    if (id < 0 || static_cast<std::size_t>(id) >= t.frames.all().size()) throw nb::index_error();
    const Frame& frame = t.frames.at(id);
    const auto word = [&](StringId name) { return name == kNone ? text("") : text(t.strings.at(name)); };
    return nb::make_tuple(word(frame.file), frame.line, word(frame.function));
  });
  cls.def_prop_ro("num_frames", [](const Tables& t) { return t.frames.all().size(); });
  cls.def_prop_ro("categories", [](const Tables& t) { return sparse(t.events.category); });
  cls.def_prop_ro("compile_contexts", [](const Tables& t) { return sparse(t.events.compile_context); });
  cls.def_prop_ro("user_metadata", [](const Tables& t) { return sparse(t.events.user_metadata); });
  cls.def_prop_ro("other_actions", [](const Tables& t) { return sparse(t.events.other_action); });
  cls.def_prop_ro("device_free", [](const Tables& t) { return sparse(t.events.device_free); });
}

}  // namespace

void bind_tables(nb::module_& module) {
  nb::class_<Tables> cls(module, "Tables");
  bind_columns(cls);
  bind_texts(cls);
  cls.def_prop_ro("pools", [](const Tables& t) {
    nb::list out;
    for (const PoolId& pool : t.pools) out.append(nb::make_tuple(pool.first, pool.second));
    return out;
  });
  cls.def_prop_ro("devices", [](const Tables& t) {
    nb::list out;
    for (const DeviceTrace& d : t.devices) out.append(nb::make_tuple(d.device, d.events_begin, d.events_end));
    return out;
  });
  // Scalars, so that a summary needs no NumPy.
  cls.def("event_span", [](const Tables& t, std::int64_t begin, std::int64_t end) {
    if (begin < 0 || begin >= end || end > static_cast<std::int64_t>(t.events.size_rows())) throw nb::index_error();
    return nb::make_tuple(t.events.time[static_cast<std::size_t>(begin)],
                          t.events.time[static_cast<std::size_t>(end - 1)]);
  });
  cls.def_prop_ro("first_annotation_end", [](const Tables& t) -> nb::object {
    nb::object first = nb::none();
    TimeUs earliest = 0;
    for (std::size_t row = 0; row < t.annotations.time.size(); ++row) {
      if (t.annotations.stage[row] != Stage::kEnd || (!first.is_none() && t.annotations.time[row] >= earliest))
        continue;
      earliest = t.annotations.time[row];
      first = nb::int_(earliest);
    }
    return first;
  });
  cls.def("num_device_segments", [](const Tables& t, std::int32_t device) {
    return std::count(t.segments.device.begin(), t.segments.device.end(), device);
  });
  cls.def_prop_ro("num_annotations", [](const Tables& t) { return t.annotations.name.size(); });
  cls.def_prop_ro("num_segments", [](const Tables& t) { return t.segments.size_rows(); });
  cls.def_prop_ro("settings", settings_dict);
  cls.def_prop_ro("seen_keys", [](const Tables& t) { return texts(t.seen_keys); });
  cls.def_prop_ro("unknown_keys", [](const Tables& t) { return texts(t.unknown_keys); });
  cls.def_prop_ro("format", [](const Tables& t) { return t.format; });
  cls.def_prop_ro("torch_version", [](const Tables& t) { return text(t.torch_version); });
  cls.def_prop_ro("has_segments", [](const Tables& t) { return t.has_segments; });
  cls.def_prop_ro("size_bytes", [](const Tables& t) { return t.size_bytes; });
  module.def("read_descriptor", read_descriptor, nb::arg("descriptor"));
  module.def("read_callable", read_callable, nb::arg("read"));
}

}  // namespace ullage::bindings
