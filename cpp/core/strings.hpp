// Interned strings: each distinct string is kept once and named by a small integer.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.hpp"

namespace ullage {

class StringTable {
 public:
  StringTable();

  // The id of `text`, adding it if it is new. Amortised O(length).
  StringId intern(std::string_view text);

  std::string_view at(StringId id) const { return strings_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return strings_.size(); }

 private:
  void grow();

  std::deque<std::string> strings_;
  std::vector<std::size_t> hashes_;  // by id
  std::vector<StringId> slots_;      // open addressing; kNone is empty
};

}  // namespace ullage
