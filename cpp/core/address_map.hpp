// A hash map from block addresses to rows: open addressing, one probe in the common case.
#pragma once

#include <cstddef>
#include <vector>

#include "core/salted_hash.hpp"
#include "core/units.hpp"

namespace ullage {

class AddressMap {
 public:
  AddressMap() : slots_(1024) {}

  std::int32_t find(Address address) const {
    for (std::size_t slot = home(address);; slot = (slot + 1) & mask()) {
      if (slots_[slot].row == kNone) return kNone;
      if (slots_[slot].address == address) return slots_[slot].row;
    }
  }

  void insert_or_assign(Address address, std::int32_t row) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    std::size_t slot = home(address);
    while (slots_[slot].row != kNone && slots_[slot].address != address) slot = (slot + 1) & mask();
    count_ += slots_[slot].row == kNone;
    slots_[slot] = {address, row};
  }

  // Closes the gap, so that a probe never meets a tombstone.
  void erase(Address address) {
    std::size_t gap = home(address);
    for (; slots_[gap].row == kNone || slots_[gap].address != address; gap = (gap + 1) & mask()) {
      if (slots_[gap].row == kNone) return;
    }
    for (std::size_t slot = (gap + 1) & mask(); slots_[slot].row != kNone; slot = (slot + 1) & mask()) {
      const std::size_t wanted = home(slots_[slot].address);
      if (((slot - wanted) & mask()) < ((slot - gap) & mask())) continue;
      slots_[gap] = slots_[slot];
      gap = slot;
    }
    slots_[gap].row = kNone;
    --count_;
  }

 private:
  struct Slot {
    Address address = 0;
    std::int32_t row = kNone;
  };

  std::size_t mask() const { return slots_.size() - 1; }
  std::size_t home(Address address) const { return static_cast<std::size_t>(hash_number(address)) & mask(); }
  void grow() {
    std::vector<Slot> before = std::move(slots_);
    slots_.assign(before.size() * 2, {});
    count_ = 0;
    for (const Slot& slot : before) {
      if (slot.row != kNone) insert_or_assign(slot.address, slot.row);
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace ullage
