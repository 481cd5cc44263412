#include "core/models/bin_front.hpp"

#include <algorithm>

namespace ullage {

std::vector<Bytes> quarter_steps(Bytes largest) {
  std::vector<Bytes> sizes;
  Bytes step = kMinBlockSize;
  for (Bytes size = step; size <= largest; size += step) {
    sizes.push_back(size);
    if (size == 8 * step) step *= 2;
  }
  return sizes;
}

std::vector<Bytes> powers_of_two(Bytes smallest, Bytes largest) {
  std::vector<Bytes> sizes;
  for (Bytes size = smallest; size <= largest; size *= 2) sizes.push_back(size);
  return sizes;
}

BinFront::BinFront(BinPolicy policy, std::unique_ptr<AllocatorModel> upstream)
    : policy_(std::move(policy)), upstream_(std::move(upstream)) {}

bool BinFront::request(const ModelRequest& request) {
  const auto id = static_cast<std::size_t>(request.id);
  if (id >= places_.size()) places_.resize(std::max(id + 1, 2 * places_.size()));
  places_[id] = {};
  const auto serve = [&] { return request_slot(request) || request_block(request); };
  const bool served = serve() || (complete_pending() && serve());
  count();
  return served;
}

bool BinFront::request_slot(const ModelRequest& request) {
  const auto bin = std::lower_bound(policy_.sizes.begin(), policy_.sizes.end(), request.size);
  if (bin == policy_.sizes.end()) return false;
  const BinKey key{static_cast<std::size_t>(bin - policy_.sizes.begin()), policy_.parts_streams ? request.stream : 0,
                   request.pool};
  std::set<std::int32_t>& rows = with_room_[key];
  if (rows.empty() && !add_chunk(key, request)) return false;
  const std::int32_t row = *rows.begin();
  Chunk& from = chunk(row);
  const std::int32_t slot = from.free_slots.back();
  from.free_slots.pop_back();
  if (from.free_slots.empty()) rows.erase(rows.begin());
  from.slots[static_cast<std::size_t>(slot)] = {SlotState::kAllocated, request.size, request.id};
  ++from.num_live;
  place(request.id) = {row, slot, kNone};
  allocated_slots_ += *bin;
  active_slots_ += *bin;
  return true;
}

bool BinFront::request_block(const ModelRequest& request) {
  ModelRequest passed = request;
  passed.id = take_name();
  if (upstream_->request(passed)) {
    place(request.id).name = passed.id;
    return true;
  }
  unused_names_.push_back(passed.id);
  return false;
}

std::int32_t BinFront::take_name() {
  if (unused_names_.empty()) return num_names_++;
  const std::int32_t name = unused_names_.back();
  unused_names_.pop_back();
  return name;
}

std::int64_t BinFront::slots_of(std::size_t bin) const {
  return policy_.chunk_bytes > 0 ? std::max<std::int64_t>(policy_.chunk_bytes / policy_.sizes[bin], 1)
                                 : policy_.slots_per_chunk;
}

bool BinFront::add_chunk(const BinKey& key, const ModelRequest& request) {
  const auto& [bin, stream, pool] = key;
  const std::int64_t num_slots = slots_of(bin);
  const Bytes before = upstream_->counters().allocated;
  const Bytes wanted = std::max(policy_.chunk_bytes, num_slots * policy_.sizes[bin]);
  const std::int32_t name = take_name();
  if (!upstream_->request({name, wanted, request.stream, pool})) {
    unused_names_.push_back(name);
    return false;
  }
  std::int32_t row = static_cast<std::int32_t>(chunks_.size());
  if (unused_chunks_.empty()) {
    chunks_.emplace_back();
  } else {
    row = unused_chunks_.back();
    unused_chunks_.pop_back();
  }
  Chunk& added = chunk(row);
  added = {bin, stream, pool, name, upstream_->counters().allocated - before, {}, {}, 0};
  added.slots.resize(static_cast<std::size_t>(num_slots));
  for (std::int64_t slot = num_slots; slot-- > 0;) added.free_slots.push_back(static_cast<std::int32_t>(slot));
  chunk_bytes_ += added.charge;
  with_room_[key].insert(row);
  return true;
}

void BinFront::drop_chunk(std::int32_t row) {
  Chunk& gone = chunk(row);
  with_room_[key_of(gone)].erase(row);
  chunk_bytes_ -= gone.charge;
  upstream_->free_requested(gone.name);
  upstream_->free_completed(gone.name);
  unused_names_.push_back(gone.name);
  gone = {};
  unused_chunks_.push_back(row);
}

void BinFront::free_requested(std::int32_t id) {
  const Place& at = place(id);
  if (at.chunk == kNone) {
    if (at.name != kNone) upstream_->free_requested(at.name);
  } else {
    chunk(at.chunk).slots[static_cast<std::size_t>(at.slot)].state = SlotState::kPending;
    allocated_slots_ -= slot_size(chunk(at.chunk));
    pending_.add(id);
  }
  count();
}

void BinFront::free_completed(std::int32_t id) {
  const Place at = place(id);
  if (at.chunk != kNone) {
    free_slot(id);
  } else if (at.name != kNone) {
    upstream_->free_completed(at.name);
    unused_names_.push_back(at.name);
    place(id) = {};
  }
  count();
}

void BinFront::free_slot(std::int32_t id) {
  const Place at = place(id);
  pending_.remove(id);
  Chunk& home = chunk(at.chunk);
  Slot& slot = home.slots[static_cast<std::size_t>(at.slot)];
  if (slot.state == SlotState::kAllocated) allocated_slots_ -= slot_size(home);
  active_slots_ -= slot_size(home);
  slot = {};
  home.free_slots.push_back(at.slot);
  with_room_[key_of(home)].insert(at.chunk);
  place(id) = {};
  if (--home.num_live == 0 && policy_.returns_chunks) drop_chunk(at.chunk);
}

// Waits for the GPU, as upstream does for its own blocks before it gives up. True if a slot became free.
bool BinFront::complete_pending() {
  const std::vector<std::int32_t> pending = pending_.take();
  for (const std::int32_t id : pending) free_slot(id);
  return !pending.empty();
}

void BinFront::empty_cache() {
  complete_pending();
  upstream_->empty_cache();
  count();
}

void BinFront::count() {
  counters_ = upstream_->counters();
  counters_.allocated += allocated_slots_ - chunk_bytes_;
  counters_.active += active_slots_ - chunk_bytes_;
}

LayoutTable BinFront::layout() const {
  const LayoutTable whole = upstream_->layout();
  std::vector<std::int32_t> chunk_of(static_cast<std::size_t>(num_names_), kNone);
  std::vector<std::int32_t> client_of(static_cast<std::size_t>(num_names_), kNone);
  for (std::size_t row = 0; row < chunks_.size(); ++row) {
    if (chunks_[row].name != kNone)
      chunk_of[static_cast<std::size_t>(chunks_[row].name)] = static_cast<std::int32_t>(row);
  }
  for (std::size_t id = 0; id < places_.size(); ++id) {
    if (places_[id].name != kNone)
      client_of[static_cast<std::size_t>(places_[id].name)] = static_cast<std::int32_t>(id);
  }
  LayoutTable table;
  const auto add = [&](Address address, Bytes size, Bytes requested, BlockState state, std::int32_t id) {
    table.address.push_back(address);
    table.size.push_back(size);
    table.requested_size.push_back(requested);
    table.state.push_back(state);
    table.lifetime.push_back(id);
  };
  table.segment_lifetime = whole.segment_lifetime;
  table.segment_address = whole.segment_address;
  table.segment_size = whole.segment_size;
  for (std::size_t segment = 0; segment < whole.segment_address.size(); ++segment) {
    table.blocks_begin.push_back(static_cast<std::int64_t>(table.address.size()));
    for (auto i = static_cast<std::size_t>(whole.blocks_begin[segment]);
         i < static_cast<std::size_t>(whole.blocks_end[segment]); ++i) {
      const auto name = static_cast<std::size_t>(whole.lifetime[i]);
      const bool is_free = whole.state[i] == BlockState::kInactive;
      if (is_free || chunk_of[name] == kNone) {
        add(whole.address[i], whole.size[i], whole.requested_size[i], whole.state[i],
            is_free ? kNone : client_of[name]);
        continue;
      }
      const Chunk& cut = chunks_[static_cast<std::size_t>(chunk_of[name])];
      Address next = whole.address[i];
      for (const Slot& slot : cut.slots) {
        const BlockState state = slot.state == SlotState::kFree        ? BlockState::kInactive
                                 : slot.state == SlotState::kAllocated ? BlockState::kActiveAllocated
                                                                       : BlockState::kActivePendingFree;
        add(next, slot_size(cut), slot.requested, state, slot.id);
        next += static_cast<Address>(slot_size(cut));
      }
      const Bytes tail = whole.size[i] - static_cast<Bytes>(next - whole.address[i]);
      if (tail > 0) add(next, tail, 0, BlockState::kInactive, kNone);
    }
    table.blocks_end.push_back(static_cast<std::int64_t>(table.address.size()));
  }
  return table;
}

Waste BinFront::waste(std::int64_t stream) const {
  Waste out = upstream_->waste(stream);
  for (const Chunk& one : chunks_) {
    if (one.name == kNone) continue;
    // Upstream took the chunk for a live block.
    const Bytes asked = std::max(policy_.chunk_bytes, static_cast<Bytes>(one.slots.size()) * slot_size(one));
    out.requested -= asked;
    out.rounding += asked - static_cast<Bytes>(one.slots.size()) * slot_size(one);
    for (const Slot& slot : one.slots) {
      switch (slot.state) {
        case SlotState::kAllocated:
          out.requested += slot.requested;
          out.rounding += slot_size(one) - slot.requested;
          break;
        case SlotState::kPending: out.pending += slot_size(one); break;
        case SlotState::kFree: {
          const bool is_foreign = policy_.parts_streams && one.stream != stream;
          (one.pool != kNone ? out.private_pool : is_foreign ? out.other_stream : out.small_pool) += slot_size(one);
          break;
        }
      }
    }
  }
  return out;
}

}  // namespace ullage
