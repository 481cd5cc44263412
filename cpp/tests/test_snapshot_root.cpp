// From the root object to the tables' final order.
#include <doctest/doctest.h>

#include <algorithm>

#include "pickle_writer.hpp"
#include "snapshot_samples.hpp"

namespace ullage::test {
namespace {

const std::string kHead = "\x80\x04";

Tables read_node(const Node& root) { return read_text(to_pickle(root)); }

TEST_CASE("an empty file, and one that is neither pickle nor JSON, are refused") {
  CHECK_THROWS_AS(read_text(""), TraceError);
  CHECK_THROWS_AS(read_text("  \n"), TraceError);
  CHECK_THROWS_AS(read_text("(lp0\n."), TraceError);
  CHECK_THROWS_AS(read_text("PK\x03\x04"), TraceError);
  CHECK_THROWS_AS(read_text(" \x80\x04]."), TraceError);
}

TEST_CASE("a size that the file does not have is no harm") {
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{1} << 45, ~std::uint64_t{0}}) {
    MemorySource source(std::string_view("\x80\x04].", 4));
    CHECK(read_snapshot(source, size).has_segments);
  }
}

TEST_CASE("a root that is no snapshot is refused") {
  for (const Node& root :
       {Node(1), Node("x"), Node(), Node(Dict{}), Node(Dict{{"a", 1}}), Node(List{1}), Node(Dict{{"action", "alloc"}}),
        Node(Dict{{"device_traces", 1}}), Node(Dict{{"segments", 1}})}) {
    CHECK_THROWS_AS(read_node(root), TraceError);
  }
}

TEST_CASE("a bare list is a list of segments") {
  const Tables tables = read_node(torch_2_0_segments());
  CHECK(tables.has_segments);
  CHECK(tables.segments.size_rows() == 1);
  CHECK(tables.events.size_rows() == 0);
  CHECK(tables.devices.size() == 1);
  CHECK(read_node(List{}).devices.empty());
}

TEST_CASE("either of segments and traces may be missing or None") {
  const Tables traces = read_node(without(small_snapshot(), "segments"));
  CHECK_FALSE(traces.has_segments);
  CHECK(traces.events.size_rows() == 5);
  const Tables segments = read_node(without(small_snapshot(), "device_traces"));
  CHECK(segments.has_segments);
  CHECK(segments.events.size_rows() == 0);
  CHECK(read_node(with(small_snapshot(), "segments", Node())).segments.size_rows() == 0);
  CHECK(read_node(with(small_snapshot(), "device_traces", Node())).devices.size() == 1);
  CHECK(read_node(with(small_snapshot(), "external_annotations", Node())).annotations.name.empty());
  CHECK(read_node(with(small_snapshot(), "allocator_settings", Node())).settings.empty());
}

TEST_CASE("the profiler's form is read") {
  const Tables tables = read_node(profiler_snapshot());
  CHECK(tables.blocks.address == std::vector<Address>{16777216});
  CHECK(tables.events.category.size() == 1);
  REQUIRE(tables.devices.size() == 2);
  CHECK(tables.devices[1].events_begin == tables.devices[1].events_end);
}

TEST_CASE("each device has its rows, whatever order the file built its events in") {
  const std::string event_ops = "}(" + text_op("action") + text_op("oom") + text_op("addr");
  const std::string extra = text_op("category");
  // Events 1, 2 and 3 are built first; device 0 lists the third, device 2 the second and the first.
  const std::string bytes = kHead + event_ops + "K\x01" + extra + text_op("one") +
                            "uq\x01"
                            "0" +
                            event_ops +
                            "K\x02uq\x02"
                            "0" +
                            event_ops + "K\x03" + text_op("device_free") +
                            "K\x09uq\x03"
                            "0" +
                            "}" + text_op("device_traces") +
                            "](]h\x03"
                            "a]](h\x02h\x01"
                            "ees.";
  const Tables tables = read_text(bytes);
  CHECK(tables.events.address == Column<Address>{3, 2, 1});
  REQUIRE(tables.devices.size() == 2);
  CHECK(tables.devices[0].device == 0);
  CHECK(tables.devices[1].device == 2);
  CHECK(tables.devices[1].events_begin == 1);
  CHECK(tables.devices[1].events_end == 3);
  REQUIRE(tables.events.category.size() == 1);
  CHECK(tables.events.category[0].first == 2);
  CHECK(tables.events.device_free == std::vector<std::pair<std::int32_t, Bytes>>{{0, 9}});
}

TEST_CASE("events that no device lists are dropped") {
  const Tables tables = read_node(Dict{{"host_traces", List{event("alloc", 512, 512)}}, {"segments", List{}}});
  CHECK(tables.events.size_rows() == 0);
}

TEST_CASE("an event, a segment or a block that is listed twice is refused") {
  const std::string event_ops = "}" + text_op("action") + text_op("alloc") + "sq\x01";
  CHECK_THROWS_AS(read_text(kHead + "}" + text_op("device_traces") + "](](" + event_ops +
                            "h\x01"
                            "ees."),
                  TraceError);
  CHECK_THROWS_AS(read_text(kHead + "}" + text_op("device_traces") + "](]" + event_ops +
                            "aq\x02h\x02"
                            "es."),
                  TraceError);
  const std::string segment_ops = "}" + text_op("total_size") + "K\x01sq\x01";
  CHECK_THROWS_AS(read_text(kHead + "](" + segment_ops +
                            "h\x01"
                            "e."),
                  TraceError);
  const std::string block_ops = "}" + text_op("state") + text_op("inactive") + "sq\x01";
  CHECK_THROWS_AS(read_text(kHead + "]}" + text_op("blocks") + "](" + block_ops +
                            "h\x01"
                            "esa."),
                  TraceError);
}

TEST_CASE("a list that contains itself is no hang") {
  CHECK_THROWS_AS(read_text(kHead + "]q\x01h\x01"
                                    "a."),
                  TraceError);
  const Tables tables = read_text(kHead + "}(" + text_op("segments") + "]" + text_op("x") +
                                  "]q\x01h\x01"
                                  "au.");
  CHECK(tables.settings.empty());
}

TEST_CASE("a device's index above 4,095 is refused, an empty one passed over") {
  List devices(5000, Node(List{}));
  CHECK(read_node(Dict{{"device_traces", devices}}).devices.empty());
  devices.back() = List{event("alloc", 512, 512)};
  CHECK_THROWS_AS(read_node(Dict{{"device_traces", devices}}), TraceError);
}

TEST_CASE("many segments of many devices are no hang" * doctest::timeout(10)) {
  std::string bytes = kHead + text_op("total_size") +
                      "q\x01"
                      "0" +
                      text_op("device") +
                      "q\x02"
                      "0](";
  for (std::uint32_t i = 0; i < 1'000'000; ++i) bytes += "}(h\x01Nh\x02J" + le(i < 4096 ? i : 4095) + "u";
  CHECK(read_text(bytes + "e.").devices.size() == 4096);
}

TEST_CASE("blocks that add up to 2**60 bytes in a segment are refused") {
  const std::int64_t half = std::int64_t{1} << 59;
  CHECK_THROWS_AS(read_node(List{segment(0, 512, {block(0, half, 1, "inactive"), block(half, half, 1, "inactive")})}),
                  TraceError);
}

TEST_CASE("settings are flattened with dots") {
  const Dict settings = {{"expandable_segments", true},
                         {"max_split_size", -1},
                         {"garbage_collection_threshold", 0.5},
                         {"PYTORCH_CUDA_ALLOC_CONF", "a:1"},
                         {"roundup_power2_divisions", Dict{{"256", 4}}},
                         {"none", Node()}};
  const Tables tables = read_node(
      Dict{{"segments", List{}}, {"allocator_settings", settings}, {"rank", 3}, {"trace_alloc_overflowed", true}});
  REQUIRE(tables.settings.size() == 6);
  CHECK(tables.settings[0] == std::pair<std::string, SettingValue>{"expandable_segments", true});
  CHECK(tables.settings[1] == std::pair<std::string, SettingValue>{"max_split_size", std::int64_t{-1}});
  CHECK(tables.settings[2] == std::pair<std::string, SettingValue>{"garbage_collection_threshold", 0.5});
  CHECK(tables.settings[3] == std::pair<std::string, SettingValue>{"PYTORCH_CUDA_ALLOC_CONF", std::string("a:1")});
  CHECK(tables.settings[4] == std::pair<std::string, SettingValue>{"roundup_power2_divisions.256", std::int64_t{4}});
  CHECK(tables.settings[5] == std::pair<std::string, SettingValue>{"trace_alloc_overflowed", true});
  CHECK(tables.unknown_keys == std::vector<std::string>{"rank", "trace_alloc_overflowed"});
}

TEST_CASE("the keys that occur are listed, and the torch version taken where the file gives it") {
  const Tables tables = read_node(with(small_snapshot(), "torch_version", "2.14.1"));
  CHECK(tables.torch_version == "2.14.1");
  CHECK(std::count(tables.seen_keys.begin(), tables.seen_keys.end(), "time_us") == 1);
  CHECK(std::count(tables.seen_keys.begin(), tables.seen_keys.end(), "pool_id") == 0);
}

TEST_CASE("settings that share one dictionary over and over are no hang" * doctest::timeout(10)) {
  std::string nested = "}(";
  for (int i = 0; i < 3000; ++i) nested += "U\x01kN";
  nested += "u";
  for (int level = 0; level < 3; ++level) {
    nested += "q" + std::string(1, static_cast<char>(level + 1)) + "0}(";
    for (int i = 0; i < 3000; ++i) nested += "U\x01kh" + std::string(1, static_cast<char>(level + 1));
    nested += "u";
  }
  const std::string head = kHead + "}(" + text_op("segments") + "]";
  CHECK(read_text(head + text_op("allocator_settings") + nested + "u.").settings.empty());
  CHECK(read_text(head + text_op("other") + nested + "u.").settings.empty());
}

TEST_CASE("a long dictionary shared by many unknown keys is no hang" * doctest::timeout(10)) {
  std::string bytes = kHead + "}(NN";
  for (int i = 0; i < 100'000; ++i) bytes += "U\x01kN";
  bytes +=
      "uq\x01"
      "0}(" +
      text_op("segments") + "]";
  for (int i = 0; i < 100'000; ++i) bytes += "U\x01kh\x01";
  CHECK(read_text(bytes + "u.").settings.empty());
}

TEST_CASE("a long key shared by a thousand settings is kept short") {
  std::string bytes = kHead + text_op(std::string(1 << 20, 'k')) +
                      "q\x01"
                      "0}(" +
                      text_op("segments") + "]" + text_op("allocator_settings") + "}(";
  for (int i = 0; i < 1000; ++i) bytes += "h\x01K\x01";
  const Tables tables = read_text(bytes + "uu.");
  CHECK(tables.settings.size() == 1000);
  CHECK(tables.settings[999].first.size() <= 80);
}

}  // namespace
}  // namespace ullage::test
