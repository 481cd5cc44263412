// The one error that reading or rebuilding a trace raises.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace ullage {

// A file that cannot be read. `offset` is the byte (after decompression) at which reading stopped.
class TraceError : public std::runtime_error {
 public:
  TraceError(std::uint64_t offset, std::string expected, std::string found)
      : std::runtime_error("expected " + expected + ", found " + found),
        offset_(offset),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  std::uint64_t offset() const { return offset_; }
  const std::string& expected() const { return expected_; }
  const std::string& found() const { return found_; }

 private:
  std::uint64_t offset_;
  std::string expected_;
  std::string found_;
};

}  // namespace ullage
