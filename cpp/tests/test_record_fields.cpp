// What each key of an event, a frame, a segment, a block or an annotation means.
#include <doctest/doctest.h>

#include "json_writer.hpp"
#include "pickle_writer.hpp"
#include "snapshot_samples.hpp"

namespace ullage::test {
namespace {

Tables read_node(const Node& root) { return read_text(to_pickle(root)); }
Tables read_events(List events) { return read_node(Dict{{"device_traces", List{Node(std::move(events))}}}); }
Tables read_segments(List segments) { return read_node(Dict{{"segments", std::move(segments)}}); }

TEST_CASE("every action of the format is known, and others are kept by name") {
  const char* words[] = {"alloc",       "free_requested", "free_completed", "segment_alloc", "segment_free",
                         "segment_map", "segment_unmap",  "snapshot",       "oom",           "annotate",
                         "free"};
  List events;
  for (const char* word : words) events.push_back(Dict{{"action", word}});
  events.push_back(Dict{{"action", "workspace_snapshot"}});
  events.push_back(Dict{{"action", Node()}});
  const Tables tables = read_events(events);
  for (std::size_t i = 0; i < std::size(words); ++i) CHECK(tables.events.action[i] == static_cast<Action>(i));
  CHECK(tables.events.action[11] == Action::kOther);
  CHECK(tables.events.action[12] == Action::kOther);
  REQUIRE(tables.events.other_action.size() == 1);
  CHECK(tables.events.other_action[0].first == 11);
  CHECK(tables.strings.at(tables.events.other_action[0].second) == "workspace_snapshot");
}

TEST_CASE("an event without keys has the columns' empty values") {
  const Tables tables = read_events({Dict{{"action", "oom"}, {"device_free", 512}, {"size", 1024}}});
  CHECK(tables.events.address[0] == 0);
  CHECK(tables.events.site[0] == kNone);
  CHECK(tables.events.pool[0] == kNone);
  CHECK(tables.events.device_free == std::vector<std::pair<std::int32_t, Bytes>>{{0, 512}});
}

TEST_CASE("what events usually say of their context is left out") {
  const Dict plain = {{"action", "alloc"}, {"compile_context", "N/A"}, {"user_metadata", ""}, {"category", ""}};
  const Dict rich = {{"action", "alloc"}, {"compile_context", "0/1"}, {"user_metadata", "m"}, {"category", "INPUT"}};
  const Tables tables = read_events({plain, rich});
  for (const auto& column : {tables.events.compile_context, tables.events.user_metadata, tables.events.category}) {
    REQUIRE(column.size() == 1);
    CHECK(column[0].first == 1);
  }
}

TEST_CASE("pool ids are pairs, each kept once") {
  const auto in_pool = [](Node pool) { return Dict{{"action", "alloc"}, {"pool_id", std::move(pool)}}; };
  const Tables tables =
      read_events({in_pool(Tuple{{0, 0}}), in_pool(List{0, 3}), in_pool(Tuple{{0, 3}}), in_pool(Node())});
  CHECK(tables.events.pool == Column<std::int32_t>{0, 1, 1, kNone});
  CHECK(tables.pools == std::vector<PoolId>{{0, 0}, {0, 3}});
  CHECK_THROWS_AS(read_events({in_pool(3)}), TraceError);
  CHECK_THROWS_AS(read_events({in_pool(Tuple{{1, 2, 3}})}), TraceError);
  CHECK_THROWS_AS(read_events({in_pool(Tuple{{"a", "b"}})}), TraceError);
}

TEST_CASE("events that go from pool to pool are no hang" * doctest::timeout(10)) {
  std::string bytes = "\x80\x04" + text_op("action") +
                      "q\x01"
                      "0" +
                      text_op("pool_id") +
                      "q\x02"
                      "0";
  for (std::uint32_t i = 0; i < 4096; ++i) bytes += "K\x07J" + le(i) + "\x86r" + le(i + 100) + "0";
  bytes += "}" + text_op("device_traces") + "]](";
  for (std::uint32_t i = 0; i < 1'000'000; ++i) bytes += "}(h\x01Nh\x02j" + le(i < 4096 ? i + 100 : 100) + "u";
  CHECK(read_text(bytes + "eas.").pools.size() == 4096);
}

TEST_CASE("more than 4,096 pools are refused") {
  List events;
  for (int i = 0; i < 4097; ++i) events.push_back(Dict{{"action", "alloc"}, {"pool_id", Tuple{{0, i}}}});
  CHECK_THROWS_AS(read_events(events), TraceError);
}

TEST_CASE("values of the wrong kind are refused with the key's name") {
  const std::pair<const char*, Node> wrong[] = {{"action", 1},     {"addr", "x"},       {"size", List{}},
                                                {"stream", 0.5},   {"time_us", Dict{}}, {"frames", "x"},
                                                {"pool_id", true}, {"device_free", "x"}};
  for (const auto& [key, value] : wrong) {
    CAPTURE(key);
    CHECK_THROWS_AS(read_events({with({{"action", "alloc"}}, key, value)}), TraceError);
  }
  const auto error =
      error_of(to_pickle(Dict{{"device_traces", List{List{Dict{{"action", "alloc"}, {"size", "big"}}}}}}));
  REQUIRE(error);
  CHECK(error->expected().find("'size'") != std::string::npos);
  CHECK(error->found() == "the text 'big'");
}

TEST_CASE("unknown keys are carried past and named once") {
  List events;
  for (int i = 0; i < 3; ++i) events.push_back(Dict{{"action", "alloc"}, {"new_key", List{1, 2}}});
  const Tables tables = read_events(events);
  CHECK(tables.unknown_keys == std::vector<std::string>{"new_key"});
}

TEST_CASE("at most 64 unknown keys are named, each by 80 bytes") {
  Dict odd = {{"action", "alloc"}};
  for (int i = 0; i < 100; ++i) odd.emplace_back(std::string(200, 'x') + std::to_string(i), i);
  const Tables tables = read_events({odd});
  CHECK(tables.unknown_keys.size() == 64);
  CHECK(tables.unknown_keys[0].size() == 80);
}

TEST_CASE("a line beyond 31 bits, or below 0, is unknown") {
  const auto line_of = [](Node line) {
    const Dict frame_dict = {{"filename", "a.py"}, {"line", std::move(line)}, {"name", "f"}, {"fx_node_op", "x"}};
    const Tables tables = read_events({Dict{{"action", "alloc"}, {"frames", List{frame_dict}}}});
    return tables.frames.at(tables.sites.frames().at(0)).line;
  };
  CHECK(line_of(2147483647) == 2147483647);
  CHECK(line_of(std::int64_t{2147483648}) == 0);
  CHECK(line_of(-1) == 0);
}

TEST_CASE("items of a stack that are no frames are left out") {
  const Tables tables = read_events({Dict{{"action", "alloc"}, {"frames", List{1, "x", Dict{}}}}});
  CHECK(tables.events.site[0] == kNone);
}

TEST_CASE("a segment's keys fill its row") {
  Dict large = with(segment(4194304, 2097152, {}), "segment_type", "large");
  large = with(with(large, "is_expandable", true), "stream", 77);
  const Tables tables = read_segments({segment(2097152, 2097152, {}), with(large, "segment_pool_id", Tuple{{0, 3}})});
  const SegmentTable& table = tables.segments;
  CHECK(table.pool_size == std::vector<PoolSize>{PoolSize::kSmall, PoolSize::kLarge});
  CHECK(table.is_expandable == std::vector<std::uint8_t>{0, 1});
  CHECK(table.stream == std::vector<std::int64_t>{0, 77});
  CHECK(table.pool == std::vector<std::int32_t>{0, 1});
  CHECK(table.requested_size == std::vector<Bytes>{1000, 1000});
}

TEST_CASE("a segment's missing keys stay unknown") {
  const Tables tables = read_segments({Dict{{"blocks", List{block(512, 1024, 1000, "active_allocated")}}}});
  CHECK(tables.segments.total_size == std::vector<Bytes>{1024});
  CHECK(tables.segments.allocated_size == std::vector<Bytes>{kNone});
  CHECK(tables.segments.pool_size == std::vector<PoolSize>{PoolSize::kUnknown});
  CHECK(tables.segments.pool == std::vector<std::int32_t>{kNone});
}

TEST_CASE("a device below 0 or above 4,095 is refused") {
  CHECK_THROWS_AS(read_segments({with(segment(0, 512, {}), "device", -1)}), TraceError);
  CHECK_THROWS_AS(read_segments({with(segment(0, 512, {}), "device", 4096)}), TraceError);
  CHECK(read_segments({with(segment(0, 512, {}), "device", 4095)}).devices.at(0).device == 4095);
}

TEST_CASE("a block's state has three words and one old one") {
  const auto state_of = [](Node word) {
    return read_segments({segment(0, 512, {with(block(0, 512, 500, ""), "state", std::move(word))})})
        .blocks.state.at(0);
  };
  CHECK(state_of("active_allocated") == BlockState::kActiveAllocated);
  CHECK(state_of("active_pending_free") == BlockState::kActivePendingFree);
  CHECK(state_of("active_awaiting_free") == BlockState::kActivePendingFree);
  CHECK(state_of("inactive") == BlockState::kInactive);
  CHECK_THROWS_AS(state_of("idle"), TraceError);
  CHECK_THROWS_AS(state_of(Node()), TraceError);
}

TEST_CASE("torch 2.0's blocks take their addresses from their sizes and the rest from `history`") {
  const Tables tables = read_segments(torch_2_0_segments());
  CHECK(tables.blocks.address == std::vector<Address>{4194304, 4195328});
  CHECK(tables.blocks.requested_size == std::vector<Bytes>{1000, 0});
  CHECK(tables.blocks.site == std::vector<SiteId>{0, kNone});
}

TEST_CASE("a history that is odd is left aside") {
  for (const Node& history : {Node(), Node(List{}), Node(List{1}), Node(List{Dict{}}), Node("x")}) {
    Dict odd = with({{"size", 512}, {"state", "inactive"}}, "history", history);
    CHECK(read_segments({segment(0, 512, {odd})}).blocks.site.at(0) == kNone);
  }
}

// Every block names the same long dictionary as its history: searching it each time would be quadratic.
TEST_CASE("a long dictionary shared as the history of many blocks is no hang" * doctest::timeout(10)) {
  std::string bytes = "\x80\x04}" + text_op("segments") + "](" + text_op("state") +
                      "q\x01"
                      "0" +
                      text_op("history") +
                      "q\x02"
                      "0" +
                      text_op("inactive") +
                      "q\x03"
                      "0]}(";
  for (int i = 0; i < 200'000; ++i) bytes += "NN";
  bytes +=
      "uaq\x04"
      "0";
  for (int i = 0; i < 200'000; ++i) bytes += "}(h\x01h\x03h\x02h\x04u";
  CHECK_NOTHROW(error_of(bytes + "es."));
}

TEST_CASE("an annotation's keys fill its row") {
  const Dict start = {{"name", "step"}, {"stage", "START"}, {"device", 1}, {"time_us", 9}};
  const Dict end = {{"name", "step"}, {"stage", "END"}, {"device", 1}, {"time_us", 10}};
  const Tables tables =
      read_node(Dict{{"segments", List{}}, {"external_annotations", List{start, end, with(end, "stage", "PAUSE"), 7}}});
  CHECK(tables.annotations.stage == std::vector<Stage>{Stage::kStart, Stage::kEnd, Stage::kOther});
  CHECK(tables.annotations.device == std::vector<std::int32_t>{1, 1, 1});
  CHECK(tables.annotations.time == std::vector<TimeUs>{9, 10, 10});
}

}  // namespace
}  // namespace ullage::test
