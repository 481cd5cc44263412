// The stack machine: stack, marks, memo, and how a dictionary takes its kind.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include "core/object_builder.hpp"
#include "pickle_writer.hpp"
#include "snapshot_samples.hpp"

namespace ullage::test {
namespace {

const std::string kHead = "\x80\x04";

std::int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * kKiB;
}

// A snapshot without events whose setting `a` the opcodes `raw` push.
std::string setting_with(const std::string& raw) {
  return kHead + "}(" + text_op("segments") + "]" + text_op("allocator_settings") + "}" + text_op("a") + raw + "su.";
}

std::int64_t setting_of(const std::string& raw) {
  const Tables tables = read_text(setting_with(raw));
  return std::get<std::int64_t>(tables.settings.at(0).second);
}

TEST_CASE("memo slots are put and got in each form") {
  CHECK(setting_of("K\x07q\x05"
                   "0h\x05") == 7);
  CHECK(setting_of("K\x07r" + le(std::uint32_t{70000}) + "0j" + le(std::uint32_t{70000})) == 7);
  CHECK(setting_of("K\x07r" + le(std::uint32_t{0xffffffff}) + "0j" + le(std::uint32_t{0xffffffff})) == 7);
  CHECK(setting_of(std::string("K\x07\x94K\x08\x94"
                               "00h\x00",
                               10)) == 7);
  CHECK(setting_of("K\x07\x94K\x08\x94"
                   "00h\x01") == 8);
}

TEST_CASE("a memo slot may be put again") {
  CHECK(setting_of(std::string("K\x07q\x00K\x08q\x00"
                               "00h\x00",
                               12)) == 8);
}

TEST_CASE("MEMOIZE takes the number of the slots put so far") {
  const std::string far = le(std::uint32_t{1'000'000});
  CHECK(setting_of("K\x07q\x05K\x08\x94"
                   "00h\x01") == 8);
  CHECK(setting_of("K\x07r" + far + "K\x06r" + far +
                   "K\x08\x94"
                   "000h\x01") == 8);
}

TEST_CASE("a far memo slot put once more, when its index has come near, is counted once") {
  std::string raw = "K\x07r" + le(std::uint32_t{70'000}) + "0K\x06";
  for (int i = 0; i < 10'000; ++i) raw += '\x94';  // slots 1 to 10,000
  raw += "0K\x05r" + le(std::uint32_t{70'000}) +
         "0K\x09\x94"
         "0j" +
         le(std::uint32_t{10'001});
  CHECK(setting_of(raw) == 9);
  CHECK(setting_of(raw + "0j" + le(std::uint32_t{70'000})) == 5);
}

TEST_CASE("memo slots far apart cost memory for what is put, not for the gaps") {
  std::string raw = "K\x07";
  for (std::uint32_t i = 1; i <= 4'000; ++i) raw += "r" + le(i * 65'536);
  const std::int64_t before = peak_memory();
  CHECK(setting_of(raw) == 7);
  CHECK(peak_memory() - before < 256 * kMiB);
}

TEST_CASE("an empty memo slot is refused") {
  CHECK_THROWS_AS(setting_of("h\x05"), TraceError);
  CHECK_THROWS_AS(setting_of("K\x07q\x05h\x04"), TraceError);
  CHECK_THROWS_AS(setting_of("j" + le(std::uint32_t{0xffffffff})), TraceError);
}

TEST_CASE("the stack's opcodes do what the manual says") {
  CHECK(setting_of("K\x07K\x08"
                   "0") == 7);
  CHECK(setting_of("K\x07(K\x08K\x09"
                   "1") == 7);
  CHECK(setting_of("K\x07(0") == 7);
  CHECK(setting_of("K\x07"
                   "20") == 7);
}

TEST_CASE("containers come in each form") {
  const auto key_of = [](const std::string& raw) { return read_text(setting_with(raw)).settings.at(0).first; };
  CHECK(key_of("]K\x07"
               "a") == "a.0");
  CHECK(key_of("](K\x07K\x08"
               "e") == "a.0");
  CHECK(key_of("(K\x07l") == "a.0");
  CHECK(key_of("(K\x07t") == "a.0");
  CHECK(key_of("K\x07\x85") == "a.0");
  CHECK(key_of("K\x07K\x08\x86") == "a.0");
  CHECK(key_of("K\x07K\x08K\x09\x87") == "a.0");
  CHECK(key_of("\x8f(K\x07\x90") == "a.0");
  CHECK(key_of("(K\x07\x91") == "a.0");
  CHECK(key_of("(" + text_op("b") +
               "K\x07"
               "d") == "a.b");
  CHECK(key_of("}" + text_op("b") + "K\x07s") == "a.b");
  CHECK(key_of("}(" + text_op("b") + "K\x07u") == "a.b");
  CHECK(read_text(setting_with(")")).settings.empty());
}

TEST_CASE("an opcode without its operands on the stack is refused") {
  for (const char* raw : {"0",
                          "00",
                          "1",
                          "2",
                          "a",
                          "e",
                          "s",
                          "u",
                          "l",
                          "t",
                          "d",
                          "\x85",
                          "\x86",
                          "\x87",
                          "\x90",
                          "\x91",
                          "\x94",
                          "q\x01",
                          "(2",
                          "(a",
                          "(q\x01",
                          "(\x85",
                          "](a",
                          "]K\x01(s",
                          "K\x01K\x02"
                          "a",
                          "K\x01(K\x02"
                          "e",
                          "](K\x01u",
                          "}(K\x01u",
                          "(K\x01"
                          "d",
                          "}(e",
                          "]K\x01K\x02s",
                          "(K\x01",
                          "}K\x01K\x02(s"}) {
    CAPTURE(raw);
    CHECK_THROWS_AS(read_text(kHead + raw + "."), TraceError);
  }
}

TEST_CASE("a pickle that leaves more than one object is refused") {
  CHECK_THROWS_AS(read_text(kHead + "]]."), TraceError);
  CHECK_THROWS_AS(read_text(kHead + "](."), TraceError);
  CHECK_THROWS_AS(read_text(kHead + "."), TraceError);
}

TEST_CASE("a dictionary takes its kind whenever the key that tells it comes") {
  const std::string late = kHead + "}" + text_op("device_traces") + "]]}" + text_op("addr") + "K\x07s" +
                           text_op("size") + "K\x08s" + text_op("action") + text_op("alloc") + "saas.";
  const Tables tables = read_text(late);
  CHECK(tables.events.action.at(0) == Action::kAlloc);
  CHECK(tables.events.address.at(0) == 7);
  CHECK(tables.events.size.at(0) == 8);
}

TEST_CASE("frames shared by identity, or by value, are one site") {
  const std::string frame_ops =
      "}(" + text_op("filename") + text_op("a.py") + text_op("line") + "K\x07" + text_op("name") + text_op("f") + "u";
  const auto event_ops = [](const std::string& frames) {
    return "}(" + text_op("action") + text_op("alloc") + text_op("frames") + frames + "ua";
  };
  const Tables tables =
      read_text(kHead + "}" + text_op("device_traces") + "]]" + event_ops("]" + frame_ops + "aq\x01") +
                event_ops("h\x01") + event_ops("]" + frame_ops + "a") + "as.");
  CHECK(tables.events.site == Column<SiteId>{0, 0, 0});
  REQUIRE(tables.sites.size() == 1);
  const Frame& frame = tables.frames.at(tables.sites.frames().at(0));
  CHECK(tables.strings.at(frame.file) == "a.py");
  CHECK(tables.strings.at(frame.function) == "f");
  CHECK(frame.line == 7);
}

// Each event has the list as its stack, then the list grows: the stacks together would be quadratic in the file.
TEST_CASE("a list that grows after it was a stack is refused") {
  std::string bytes = kHead + "}" + text_op("device_traces") + "]](" + text_op("action") +
                      "q\x01"
                      "0" +
                      text_op("frames") +
                      "q\x02"
                      "0]q\x03"
                      "0}" +
                      text_op("filename") + text_op("a.py") +
                      "sq\x04"
                      "0";
  for (int i = 0; i < 20'000; ++i)
    bytes +=
        "}(h\x01Nh\x02h\x03uh\x03h\x04"
        "a0";
  const std::int64_t before = peak_memory();
  CHECK_THROWS_AS(read_text(bytes + "eas."), TraceError);
  CHECK(peak_memory() - before < 256 * kMiB);
}

TEST_CASE("a stack longer than a pickler's batch is one site") {
  List frames;
  for (int line = 0; line < 2'500; ++line) frames.push_back(frame("deep.py", line, "f"));
  Dict deep = event("alloc", 512, 512);
  deep.back().second = frames;
  const Tables whole = read_text(to_pickle(Dict{{"device_traces", List{List{deep}}}}));
  REQUIRE(whole.sites.size() == 1);
  CHECK(whole.sites.frames().size() == 2'500);
  // Batches of 1,000, as Python writes them.
  std::string ops = "]";
  for (int batch = 0; batch < 3; ++batch) {
    ops += '(';
    for (int i = 0; i < (batch < 2 ? 1'000 : 500); ++i)
      ops += "}(" + text_op("filename") + text_op("deep.py") + text_op("line") + "M" +
             le(static_cast<std::uint16_t>(1'000 * batch + i)) + "u";
    ops += 'e';
  }
  const Tables batched = read_text(kHead + "}" + text_op("device_traces") + "]]}(" + text_op("action") +
                                   text_op("alloc") + text_op("frames") + ops + "uaas.");
  REQUIRE(batched.sites.size() == 1);
  CHECK(batched.sites.frames().size() == 2'500);
}

TEST_CASE("more values wait on the stack than it had room for") {
  std::string raw = "](";
  for (int i = 0; i < 100'000; ++i) raw += "K\x07";
  const Tables tables = read_text(setting_with(raw + "e"));
  CHECK(tables.settings.size() == 1'000);  // as many as are kept
  CHECK(std::get<std::int64_t>(tables.settings.back().second) == 7);
}

TEST_CASE("a list of frames is neither a list of events nor one of blocks") {
  const Dict of_events = {{"device_traces", List{List{frame("a.py", 1, "f"), frame("a.py", 2, "g")}}}};
  CHECK_THROWS_AS(read_text(to_pickle(of_events)), TraceError);
  const Dict of_blocks = {{"segments", List{segment(4096, 4096, {frame("a.py", 1, "f"), frame("a.py", 2, "g")})}}};
  CHECK_THROWS_AS(read_text(to_pickle(of_blocks)), TraceError);
}

}  // namespace
}  // namespace ullage::test
