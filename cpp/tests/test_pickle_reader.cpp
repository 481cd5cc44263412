#include <doctest/doctest.h>

#include <limits>

#include "pickle_writer.hpp"
#include "snapshot_samples.hpp"

namespace ullage::test {
namespace {

const std::string kHead = "\x80\x04";

// A snapshot of one event whose `key` has the value that the opcodes `raw` push.
std::string event_with(const std::string& key, const std::string& raw) {
  return kHead + "}" + text_op("device_traces") + "]]}(" + text_op("action") + text_op("alloc") + text_op(key) + raw +
         "uaas.";
}

std::int64_t stream_of(const std::string& raw) { return read_text(event_with("stream", raw)).events.stream.at(0); }
Address address_of(const std::string& raw) { return read_text(event_with("addr", raw)).events.address.at(0); }

void check_small(const Tables& tables) {
  CHECK(tables.format == "pickle");
  CHECK(tables.events.size_rows() == 5);
  CHECK(tables.events.action[1] == Action::kAlloc);
  CHECK(tables.events.address[1] == 0x7f0000000000);
  CHECK(tables.events.time[1] == 1700000000000000);
  CHECK(tables.segments.total_size == std::vector<Bytes>{2097152});
  CHECK(tables.blocks.size == std::vector<Bytes>{1024, 2096128});
  CHECK(tables.annotations.name.size() == 1);
  CHECK(tables.sites.size() == 2);
}

TEST_CASE("a pickle of each protocol from 2 to 5 reads the same") {
  for (const int protocol : {2, 3, 4, 5}) {
    CAPTURE(protocol);
    check_small(read_text(to_pickle(small_snapshot(), {protocol, false})));
  }
}

TEST_CASE("libtorch's pickle of protocol 2 reads the same") {
  check_small(read_text(to_pickle(small_snapshot(), {2, true})));
}

TEST_CASE("integers of every width and sign are read") {
  CHECK(stream_of("K\xff") == 255);
  CHECK(stream_of("M\xff\xff") == 65535);
  CHECK(stream_of("J" + le(std::int32_t{-1})) == -1);
  CHECK(stream_of(std::string("\x8a\x00", 2)) == 0);
  CHECK(stream_of("\x8a\x01\x80") == -128);
  CHECK(stream_of(std::string("\x8a\x02\x80\x00", 4)) == 128);
  CHECK(stream_of(long1(std::int64_t{1} << 55)) == std::int64_t{1} << 55);
  CHECK(stream_of(long1(-(std::int64_t{1} << 55) - 1)) == -(std::int64_t{1} << 55) - 1);
  CHECK(stream_of(long1(std::numeric_limits<std::int64_t>::min())) == std::numeric_limits<std::int64_t>::min());
  CHECK(stream_of(long1(-5, 20)) == -5);
  CHECK(stream_of(long1(5, 20)) == 5);
  CHECK(stream_of("\x88") == 1);
  CHECK(stream_of("\x89") == 0);
  CHECK(stream_of("N") == 0);
}

TEST_CASE("LONG4 is read, and its negative length refused") {
  CHECK(stream_of("\x8b" + le(std::int32_t{3}) + "\x01\x02\x03") == 0x030201);
  CHECK(stream_of("\x8b" + le(std::int32_t{0})) == 0);
  const auto error = error_of(kHead + "\x8b" + le(std::int32_t{-1}));
  REQUIRE(error);
  CHECK(error->offset() == 2);
  CHECK(error->found() == "-1");
}

TEST_CASE("a 64-bit integer beyond the signed range is an address, and the largest stream") {
  const std::string wide = "\x8a\x09" + le(~std::uint64_t{0} - 511) + std::string(1, '\0');
  CHECK(address_of(wide) == ~Address{0} - 511);
  CHECK(stream_of(wide) == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("a negative address is its two's complement") {
  CHECK(address_of("J" + le(std::int32_t{-512})) == ~Address{0} - 511);
  CHECK(address_of(long1(std::numeric_limits<std::int64_t>::min())) == Address{1} << 63);
}

TEST_CASE("an integer of more than 64 bits is no address; elsewhere it is the nearest one") {
  const std::string wide = "\x8a\x0a" + std::string(9, '\1') + std::string(1, '\0');
  CHECK_THROWS_AS(address_of(wide), TraceError);
  CHECK(stream_of(wide) == std::numeric_limits<std::int64_t>::max());
  const std::string negative = "\x8a\x0a" + std::string(9, '\1') + "\x80";
  CHECK(stream_of(negative) == std::numeric_limits<std::int64_t>::min());
}

TEST_CASE("a size below zero or of 2**60 and more is refused") {
  CHECK_THROWS_AS(read_text(event_with("size", "J" + le(std::int32_t{-1}))), TraceError);
  CHECK_THROWS_AS(read_text(event_with("size", long1(std::int64_t{1} << 60))), TraceError);
  CHECK(read_text(event_with("size", long1((std::int64_t{1} << 60) - 1))).events.size[0] == (Bytes{1} << 60) - 1);
}

TEST_CASE("texts come in seven forms") {
  const auto category_of = [](const std::string& raw) {
    const Tables tables = read_text(event_with("category", raw));
    return std::string(tables.strings.at(tables.events.category.at(0).second));
  };
  CHECK(category_of("\x8c\x02"
                    "ab") == "ab");
  CHECK(category_of("X" + le(std::uint32_t{2}) + "ab") == "ab");
  CHECK(category_of("\x8d" + le(std::uint64_t{2}) + "ab") == "ab");
  CHECK(category_of("U\x02"
                    "ab") == "ab");
  CHECK(category_of("T" + le(std::int32_t{2}) + "ab") == "ab");
  CHECK(category_of("C\x02"
                    "ab") == "ab");
  CHECK(category_of("\x96" + le(std::uint64_t{2}) + "ab") == "ab");
}

TEST_CASE("a huge declared length is refused without memory for it") {
  const std::uint64_t huge = std::uint64_t{1} << 62;
  for (const std::string& raw :
       {"X" + le(std::uint32_t{0xffffffff}), "T" + le(std::int32_t{0x7fffffff}), "B" + le(std::uint32_t{0xffffffff}),
        "\x8d" + le(huge), "\x8e" + le(huge), "\x96" + le(huge), "\x8b" + le(std::int32_t{0x7fffffff})}) {
    CHECK_THROWS_AS(read_text(event_with("category", raw)), TraceError);
  }
  CHECK_THROWS_AS(read_text(event_with("category", "T" + le(std::int32_t{-2}))), TraceError);
}

TEST_CASE("opcodes that import or run code are refused at their offset") {
  const std::pair<std::string, std::string> refused[] = {{"c", "GLOBAL"},
                                                         {"\x93", "STACK_GLOBAL"},
                                                         {"R", "REDUCE"},
                                                         {"b", "BUILD"},
                                                         {"i", "INST"},
                                                         {"o", "OBJ"},
                                                         {"\x81", "NEWOBJ"},
                                                         {"\x92", "NEWOBJ_EX"},
                                                         {"\x82", "EXT1"},
                                                         {"\x83", "EXT2"},
                                                         {"\x84", "EXT4"},
                                                         {"P", "PERSID"},
                                                         {"Q", "BINPERSID"},
                                                         {"\x97", "NEXT_BUFFER"},
                                                         {"\x98", "READONLY_BUFFER"}};
  for (const auto& [op, name] : refused) {
    CAPTURE(name);
    const auto error = error_of(kHead + "K\x01K\x02" + op + "os\nsystem\n.");
    REQUIRE(error);
    CHECK(error->offset() == 6);
    CHECK(error->found().find("the opcode " + name + ",") == 0);
  }
}

TEST_CASE("opcodes of protocols 0 and 1, and bytes that are none, are refused at their offset") {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string known =
        "(.012NJKM\x88\x89\x8a\x8bG\x8cX\x8dUTCB\x8e\x96]ael)t\x85\x86\x87}dsu\x8f\x90\x91qr\x94hj\x80\x95";
    const std::string refused = "c\x93Rbio\x81\x92\x82\x83\x84PQ\x97\x98";
    const char op = static_cast<char>(byte);
    if (known.find(op) != std::string::npos || refused.find(op) != std::string::npos) continue;
    const auto error = error_of(kHead + "N" + op);
    REQUIRE(error);
    CHECK(error->offset() == 3);
    CHECK(error->found() == "the byte " + std::to_string(byte));
  }
}

TEST_CASE("a protocol below 2 or above 5 is refused") {
  for (const char protocol : {'\0', '\1', '\6', '\xff'}) {
    const auto error = error_of("\x80" + std::string(1, protocol) + "N.");
    REQUIRE(error);
    CHECK(error->offset() == 0);
  }
}

TEST_CASE("a snapshot cut at any byte is refused") {
  for (const PickleStyle style : {PickleStyle{2, true}, PickleStyle{2, false}, PickleStyle{4, false}}) {
    const std::string whole = to_pickle(small_snapshot(), style);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      CAPTURE(length);
      CHECK_THROWS_AS(read_text(std::string_view(whole).substr(0, length)), TraceError);
    }
  }
}

TEST_CASE("any one byte changed gives a snapshot or one clear error") {
  const std::string whole = to_pickle(small_snapshot());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char byte : {'\0', '\x7f', '\x80', '\xff', '(', '.', 'u', 'e'}) {
      std::string changed = whole;
      changed[at] = byte;
      CHECK_NOTHROW(error_of(changed));
    }
  }
}

TEST_CASE("a million nested lists cost memory, not the stack") {
  const std::string deep = std::string(1'000'000, ']') + std::string(999'999, 'a');
  CHECK(read_text(kHead + "}(" + text_op("segments") + "]" + text_op("deep") + deep + "u.").format == "pickle");
  CHECK_THROWS_AS(read_text(kHead + deep + "."), TraceError);
  CHECK_THROWS_AS(read_text(kHead + std::string(1'000'000, '(') + "."), TraceError);
}

TEST_CASE("a million nested dictionaries and tuples are refused at the root") {
  std::string deep = kHead;
  for (int i = 0; i < 1'000'000; ++i) deep += "}N";
  deep += "N" + std::string(1'000'000, 's') + ".";
  CHECK_THROWS_AS(read_text(deep), TraceError);
  CHECK_NOTHROW(error_of(kHead + "N" + std::string(1'000'000, '\x85') + "."));
}

TEST_CASE("bytes behind STOP are not read") {
  const Tables tables = read_text(kHead + "].cos\nsystem\n");
  CHECK(tables.has_segments);
  CHECK(tables.size_bytes == 4);
}

}  // namespace
}  // namespace ullage::test
