// A value on the reader's stack: eight bytes, a kind and a payload. Everything large lives in a table that it points
// into.
#pragma once

#include <cstdint>

namespace ullage {

enum class ValueKind : std::uint8_t {
  kNothing,
  kBool,
  kInt,       // fits 56 bits
  kWideInt,   // row of ObjectBuilder's wide integers
  kFloat,     // row of its floats
  kText,      // StringId
  kDict,      // row of its dictionaries
  kSequence,  // row of its lists, tuples and sets
  kUnset,     // a memo slot that nothing was put into
};

class Value {
 public:
  Value() : Value(ValueKind::kNothing, 0) {}
  Value(ValueKind kind, std::uint64_t payload)
      : bits_((static_cast<std::uint64_t>(kind) << 56) | (payload & kPayloadMask)) {}

  static bool fits(std::int64_t number) { return number >= -(kHalf) && number < kHalf; }
  static Value integer(std::int64_t number) { return {ValueKind::kInt, static_cast<std::uint64_t>(number)}; }

  ValueKind kind() const { return static_cast<ValueKind>(bits_ >> 56); }
  std::uint64_t payload() const { return bits_ & kPayloadMask; }
  std::size_t row() const { return static_cast<std::size_t>(payload()); }
  std::int64_t number() const { return static_cast<std::int64_t>(bits_ << 8) >> 8; }

 private:
  static constexpr std::uint64_t kPayloadMask = (std::uint64_t{1} << 56) - 1;
  static constexpr std::int64_t kHalf = std::int64_t{1} << 55;
  std::uint64_t bits_;
};

}  // namespace ullage
