// A front that serves small requests from chunks cut into equal slots, and leaves the rest to an upstream model.
//
//   request <= the largest bin   the smallest bin that is enough: a free slot of one of its chunks; if none has any,
//   one
//                                more chunk from upstream
//   larger, or no chunk to be    upstream
//   had under the cap
//
// Two known designs are made of it:
//   slabs    chunks of 2 MiB, four bins to each doubling up to 64 KiB; an empty chunk goes back upstream, where it can
//            serve any other bin, or a large request
//   binning  as RMM's binning_memory_resource over fixed_size_memory_resource (26.06): bins of powers of two, 128 slots
//            a chunk; a chunk never goes back. RMM takes a bin's first chunk when the bin is made, this one when the
//            bin is first asked.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "core/models/allocator_model.hpp"
#include "core/models/pending_frees.hpp"

namespace ullage {

struct BinPolicy {
  std::vector<Bytes> sizes;  // of slots, ascending; empty: no front
  Bytes chunk_bytes = 0;     // a chunk has as many slots as fit, at least one; 0: slots_per_chunk decides
  std::int64_t slots_per_chunk = 0;
  bool returns_chunks = true;  // an empty chunk goes back upstream
  bool parts_streams = true;   // a slot freed on one stream serves only that stream
};

// The bins of a two-level pool: multiples of 512 bytes, four to each doubling, up to `largest`.
std::vector<Bytes> quarter_steps(Bytes largest);
// The powers of two from `smallest` to `largest`.
std::vector<Bytes> powers_of_two(Bytes smallest, Bytes largest);

class BinFront : public AllocatorModel {
 public:
  BinFront(BinPolicy policy, std::unique_ptr<AllocatorModel> upstream);

  bool request(const ModelRequest& request) override;
  void free_requested(std::int32_t id) override;
  void free_completed(std::int32_t id) override;
  void empty_cache() override;
  const ModelCounters& counters() const override { return counters_; }
  LayoutTable layout() const override;
  Waste waste(std::int64_t stream) const override;

 private:
  enum class SlotState : std::uint8_t { kFree, kAllocated, kPending };
  struct Slot {
    SlotState state = SlotState::kFree;
    Bytes requested = 0;
    std::int32_t id = kNone;
  };
  struct Chunk {
    std::size_t bin = 0;
    std::int64_t stream = 0;
    std::int32_t pool = kNone;
    std::int32_t name = kNone;  // upstream's for it
    Bytes charge = 0;           // what upstream counts it as
    std::vector<Slot> slots;
    std::vector<std::int32_t> free_slots;
    std::int32_t num_live = 0;
  };
  // What a client's name stands for: a slot, or a block of upstream's.
  struct Place {
    std::int32_t chunk = kNone;
    std::int32_t slot = kNone;
    std::int32_t name = kNone;
  };
  using BinKey = std::tuple<std::size_t, std::int64_t, std::int32_t>;  // bin, stream, pool

  bool request_slot(const ModelRequest& request);
  bool request_block(const ModelRequest& request);
  bool add_chunk(const BinKey& key, const ModelRequest& request);
  void drop_chunk(std::int32_t row);
  void free_slot(std::int32_t id);
  bool complete_pending();
  std::int32_t take_name();
  BinKey key_of(const Chunk& chunk) const { return {chunk.bin, chunk.stream, chunk.pool}; }
  Place& place(std::int32_t id) { return places_[static_cast<std::size_t>(id)]; }
  Chunk& chunk(std::int32_t row) { return chunks_[static_cast<std::size_t>(row)]; }
  Bytes slot_size(const Chunk& chunk) const { return policy_.sizes[chunk.bin]; }
  std::int64_t slots_of(std::size_t bin) const;
  void count();

  BinPolicy policy_;
  std::unique_ptr<AllocatorModel> upstream_;
  ModelCounters counters_;
  Bytes chunk_bytes_ = 0;      // of all chunks, as upstream charges them
  Bytes allocated_slots_ = 0;  // in bytes
  Bytes active_slots_ = 0;
  std::vector<Place> places_;  // by the client's name
  std::vector<Chunk> chunks_;
  std::vector<std::int32_t> unused_chunks_;
  std::map<BinKey, std::set<std::int32_t>> with_room_;  // chunks with a free slot, the oldest row first
  PendingFrees pending_;                                // of slots
  std::vector<std::int32_t> unused_names_;
  std::int32_t num_names_ = 0;
};

}  // namespace ullage
