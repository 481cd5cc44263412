// The layout's invariants, checked in the plainest way. The drawing that defines the words is in core/layout.hpp.
#pragma once

#include <string>

#include "core/history.hpp"
#include "core/layout.hpp"
#include "core/layout_table.hpp"

namespace ullage::test {

// A layout in short: "16:512a+1024p+512f" is a segment at 16 with an allocated, a pending and a free block.
inline std::string shape(const LayoutTable& table) {
  std::string out;
  for (std::size_t i = 0; i < table.segment_address.size(); ++i) {
    out += (i ? " " : "") + std::to_string(table.segment_address[i]) + ":";
    for (std::int64_t row = table.blocks_begin[i]; row < table.blocks_end[i]; ++row) {
      const auto block = static_cast<std::size_t>(row);
      out += (row > table.blocks_begin[i] ? "+" : "") + std::to_string(table.size[block]);
      out += "fap"[static_cast<std::size_t>(table.state[block])];
    }
  }
  return out;
}

// Names the first invariant that a layout breaks; empty if it keeps all.
inline std::string broken_invariant(const LayoutTable& table) {
  Address free_from = 0;
  for (std::size_t i = 0; i < table.segment_address.size(); ++i) {
    if (i > 0 && table.segment_address[i] < free_from) return "segments overlap";
    Address next = table.segment_address[i];
    for (std::int64_t row = table.blocks_begin[i]; row < table.blocks_end[i]; ++row) {
      const auto block = static_cast<std::size_t>(row);
      const bool is_free = table.state[block] == BlockState::kInactive;
      if (table.address[block] != next) return "a block does not start where the one before ends";
      if (table.size[block] <= 0) return "a block is empty";
      if (is_free != (table.lifetime[block] == kNone)) return "a free block has a lifetime, or an active one none";
      if (is_free && row > table.blocks_begin[i] && table.state[block - 1] == BlockState::kInactive) {
        return "two free blocks touch";
      }
      next += static_cast<Address>(table.size[block]);
    }
    if (next != table.segment_address[i] + static_cast<Address>(table.segment_size[i])) return "blocks do not fill";
    free_from = next;
  }
  return "";
}

// The same for the live structure: also its links, and its map from starts to blocks.
inline std::string broken_invariant(const Layout& layout) {
  for (const auto& [address, row] : layout.segments()) {
    const LayoutSegment& segment = layout.segment(row);
    if (segment.address != address) return "a segment is filed under another address";
    std::int32_t previous = kNone;
    Address next = address;
    for (std::int32_t walk = segment.first_block; walk != kNone; walk = layout.block(walk).next) {
      const LayoutBlock& block = layout.block(walk);
      if (block.address != next || block.size <= 0) return "blocks leave a gap";
      if (block.previous != previous || block.segment != row) return "a link is wrong";
      if (layout.block_at(block.address) != walk) return "the map misses a start";
      if (previous != kNone && block.state == BlockState::kInactive &&
          layout.block(previous).state == BlockState::kInactive) {
        return "two free blocks touch";
      }
      next += static_cast<Address>(block.size);
      previous = walk;
    }
    if (segment.last_block != previous) return "the last block is wrong";
    if (next != address + static_cast<Address>(segment.size)) return "blocks do not fill";
  }
  return "";
}

// The counters that a layout stands for.
inline CounterValues counters_of(const LayoutTable& table) {
  CounterValues sums{};
  for (const Bytes size : table.segment_size) sums[static_cast<std::size_t>(Counter::kReserved)] += size;
  for (std::size_t i = 0; i < table.address.size(); ++i) {
    if (table.state[i] == BlockState::kInactive) continue;
    sums[static_cast<std::size_t>(Counter::kActive)] += table.size[i];
    sums[static_cast<std::size_t>(Counter::kRequested)] += table.requested_size[i];
    if (table.state[i] == BlockState::kActiveAllocated)
      sums[static_cast<std::size_t>(Counter::kAllocated)] += table.size[i];
  }
  return sums;
}

inline CounterValues counters_after(const History& history, std::size_t event) {
  CounterValues out{};
  for (std::size_t which = 0; which < out.size(); ++which) out[which] = history.after[which][event];
  return out;
}

}  // namespace ullage::test
