#include <doctest/doctest.h>

#include <limits>

#include "json_writer.hpp"
#include "snapshot_samples.hpp"

namespace ullage::test {
namespace {

std::string event_with(const std::string& pair) {
  return R"({"device_traces": [[{"action": "alloc", )" + pair + "}]]}";
}

std::string category_of(const std::string& text) {
  const Tables tables = read_text(event_with("\"category\": \"" + text + "\""));
  return std::string(tables.strings.at(tables.events.category.at(0).second));
}

TEST_CASE("a snapshot in JSON reads as its pickle does") {
  const Tables tables = read_text(" \n" + to_json(small_snapshot()) + "\n");
  CHECK(tables.format == "json");
  CHECK(tables.events.size_rows() == 5);
  CHECK(tables.events.size == Column<Bytes>{2097152, 1000, 600, 600, 600});
  CHECK(tables.segments.pool.at(0) == 0);
  CHECK(tables.blocks.size == std::vector<Bytes>{1024, 2096128});
  CHECK(tables.annotations.stage.at(0) == Stage::kStart);
}

TEST_CASE("a snapshot cut at any byte is refused") {
  const std::string whole = to_json(small_snapshot());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(read_text(std::string_view(whole).substr(0, length)), TraceError);
  }
}

TEST_CASE("escapes become the characters that they name") {
  CHECK(category_of(R"(a\n\t\r\b\f\"\\\/z)") == "a\n\t\r\b\f\"\\/z");
  CHECK(category_of(R"(\u0041)") == "A");
  CHECK(category_of(R"(\u00e9\u00E9)") == "\xc3\xa9\xc3\xa9");
  CHECK(category_of(R"(\u20ac)") == "\xe2\x82\xac");
  CHECK(category_of(R"(\ud83d\ude00)") == "\xf0\x9f\x98\x80");
  CHECK(category_of(R"(\udc00)") == "\xef\xbf\xbd");
}

TEST_CASE("half a surrogate pair and unknown escapes are refused") {
  for (const char* text : {R"(\ud83d)", R"(\ud83dx)", R"(\ud83d\n)", R"(\ud83d\u0041)", R"(\x41)", R"(\u00g0)"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(category_of(text), TraceError);
  }
}

TEST_CASE("numbers of every form are read") {
  const auto stream_of = [](const std::string& number) {
    return read_text(event_with("\"stream\": " + number)).events.stream.at(0);
  };
  CHECK(stream_of("0") == 0);
  CHECK(stream_of("-7") == -7);
  CHECK(stream_of("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
  CHECK(stream_of("18446744073709551615") == std::numeric_limits<std::int64_t>::max());
  CHECK(stream_of("99999999999999999999999") == std::numeric_limits<std::int64_t>::max());
  CHECK(stream_of("-99999999999999999999999") == std::numeric_limits<std::int64_t>::min());
  CHECK(stream_of("true") == 1);
  CHECK(stream_of("null") == 0);
  const Tables wide = read_text(event_with("\"addr\": 18446744073709551104"));
  CHECK(wide.events.address.at(0) == ~Address{0} - 511);
}

TEST_CASE("numbers with a fraction are settings, never sizes") {
  const Tables tables =
      read_text(R"({"segments": [], "allocator_settings": {"a": 0.5, "b": 1e3, "c": NaN, "d": 1e999}})");
  CHECK(std::get<double>(tables.settings.at(0).second) == 0.5);
  CHECK(std::get<double>(tables.settings.at(1).second) == 1000.0);
  CHECK_THROWS_AS(read_text(event_with("\"size\": 1.5")), TraceError);
}

TEST_CASE("what is not JSON is refused at its offset") {
  const std::pair<const char*, std::uint64_t> broken[] = {
      {"[1 2]", 3}, {"{1: 2}", 1}, {"{\"a\" 2}", 5}, {"[] x", 3}, {"[tru]", 4}, {"[}", 1}, {"[1,]", 3}, {"{\"a\":}", 5},
  };
  for (const auto& [text, offset] : broken) {
    CAPTURE(text);
    const auto error = error_of(text);
    REQUIRE(error);
    CHECK(error->offset() == offset);
  }
  for (const char* text : {"[+1]", "[-]", "[1.2.3]", "[0x10]", "[--1]"}) CHECK_THROWS_AS(read_text(text), TraceError);
}

TEST_CASE("a number without an end is refused") {
  CHECK_THROWS_AS(read_text("[" + std::string(1'000'000, '1') + "]"), TraceError);
}

TEST_CASE("a million nested arrays cost memory, not the stack") {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  CHECK(read_text("{\"segments\": [], \"deep\": " + deep + "}").format == "json");
  CHECK_THROWS_AS(read_text(deep), TraceError);
  CHECK_THROWS_AS(read_text(std::string(1'000'000, '[')), TraceError);
}

TEST_CASE("a million nested objects are refused at the root") {
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += "{\"a\":";
  CHECK_THROWS_AS(read_text(deep + "1" + std::string(1'000'000, '}')), TraceError);
}

TEST_CASE("an array of many items keeps their order") {
  List events;
  for (int i = 0; i < 5000; ++i) events.push_back(Dict{{"action", "alloc"}, {"addr", i}});
  const Tables tables = read_text(to_json(Dict{{"device_traces", List{Node(events)}}}));
  REQUIRE(tables.events.size_rows() == 5000);
  for (std::size_t i = 0; i < 5000; ++i) CHECK(tables.events.address[i] == i);
}

}  // namespace
}  // namespace ullage::test
