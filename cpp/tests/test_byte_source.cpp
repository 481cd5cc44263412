#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/byte_source.hpp"
#include "core/error.hpp"

namespace ullage {
namespace {

// Gives at most three bytes at a time, as a pipe may.
class Dripping : public ByteSource {
 public:
  explicit Dripping(std::string bytes) : bytes_(std::move(bytes)) {}
  std::size_t read(char* out, std::size_t capacity) override {
    const std::size_t count = std::min(std::min(std::size_t{3}, capacity), bytes_.size() - at_);
    bytes_.copy(out, count, at_);
    at_ += count;
    return count;
  }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

TEST_CASE("a reader gives bytes, numbers and texts in order and knows its offset") {
  MemorySource source(std::string_view("\x01\x02\x03\x04\x05hello", 10));
  ByteReader reader(source);
  CHECK(reader.offset() == 0);
  CHECK(reader.peek() == 1);
  CHECK(reader.byte() == 1);
  CHECK(reader.little_endian<std::uint32_t>() == 0x05040302);
  CHECK(reader.offset() == 5);
  CHECK(reader.bytes(5) == "hello");
  CHECK(reader.offset() == 10);
  CHECK(reader.at_end());
}

TEST_CASE("a source that gives few bytes at a time reads the same") {
  Dripping source("abcdefghijkl");
  ByteReader reader(source);
  CHECK(reader.bytes(4) == "abcd");
  CHECK(reader.little_endian<std::uint64_t>() == 0x6c6b6a6968676665);
  CHECK(reader.at_end());
}

TEST_CASE("a text longer than the buffer is read whole") {
  const std::string longer(1 << 20, 'x');
  MemorySource source(longer);
  ByteReader reader(source);
  reader.byte();
  CHECK(reader.bytes(longer.size() - 2) == std::string_view(longer).substr(2));
  CHECK(reader.offset() == longer.size() - 1);
  CHECK(reader.byte() == 'x');
}

TEST_CASE("skipping past the end says where the end is") {
  MemorySource source("abc");
  ByteReader reader(source);
  reader.skip(2);
  CHECK(reader.offset() == 2);
  try {
    reader.skip(std::uint64_t{1} << 63);
    FAIL("no error");
  } catch (const TraceError& error) {
    CHECK(error.offset() == 3);
  }
}

TEST_CASE("a text longer than the file is refused without memory for it") {
  MemorySource source("abc");
  ByteReader reader(source);
  CHECK_THROWS_AS(reader.bytes(~std::uint64_t{0}), TraceError);
}

TEST_CASE("a number that the end cuts is refused") {
  MemorySource source("abc");
  ByteReader reader(source);
  CHECK_THROWS_AS(reader.little_endian<std::uint32_t>(), TraceError);
}

TEST_CASE("an empty memory source is at its end, with or without a place in memory") {
  MemorySource nowhere{std::string_view()};
  CHECK(ByteReader(nowhere).at_end());
  MemorySource somewhere("");
  CHECK(ByteReader(somewhere).at_end());
}

TEST_CASE("a file source reads an open file and refuses a closed descriptor") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fputs("tape", file);
  std::rewind(file);
  FileSource source(fileno(file));
  ByteReader reader(source);
  CHECK(reader.bytes(4) == "tape");
  CHECK(reader.at_end());
  std::fclose(file);
  FileSource closed(-1);
  ByteReader broken(closed);
  CHECK_THROWS_AS(broken.byte(), TraceError);
}

}  // namespace
}  // namespace ullage
