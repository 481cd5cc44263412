// Small snapshots of each form that PyTorch writes, and how a test reads them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/snapshot_reader.hpp"
#include "node.hpp"

namespace ullage::test {

inline Tables read_text(std::string_view bytes) {
  MemorySource source(bytes);
  return read_snapshot(source);
}

// The error that reading raises, or nothing.
inline std::optional<TraceError> error_of(std::string_view bytes) {
  try {
    read_text(bytes);
  } catch (const TraceError& error) {
    return error;
  }
  return std::nullopt;
}

inline Dict frame(const char* file, int line, const char* function) {
  return {{"filename", file}, {"line", line}, {"name", function}};
}

inline Dict event(const char* action, std::int64_t address, std::int64_t size) {
  return {{"action", action},
          {"addr", address},
          {"size", size},
          {"stream", 0},
          {"time_us", 1700000000000000},
          {"frames", List{frame("train.py", 7, "step"), frame("train.py", 30, "main")}}};
}

inline Dict block(std::int64_t address, std::int64_t size, std::int64_t requested, const char* state) {
  return {{"address", address},
          {"size", size},
          {"requested_size", requested},
          {"state", state},
          {"frames", List{frame("train.py", 7, "step")}}};
}

inline Dict segment(std::int64_t address, std::int64_t size, List blocks) {
  return {{"device", 0},
          {"address", address},
          {"total_size", size},
          {"allocated_size", 1024},
          {"active_size", 1024},
          {"requested_size", 1000},
          {"stream", 0},
          {"segment_type", "small"},
          {"segment_pool_id", Tuple{{0, 0}}},
          {"is_expandable", false},
          {"frames", List{}},
          {"blocks", std::move(blocks)}};
}

// One small segment, one block of 1,000 bytes that stays and one of 600 that goes.
inline Dict small_snapshot() {
  const std::int64_t base = 0x7f0000000000;
  List events = {event("segment_alloc", base, 2097152), event("alloc", base, 1000), event("alloc", base + 1024, 600),
                 event("free_requested", base + 1024, 600), event("free_completed", base + 1024, 600)};
  List blocks = {block(base, 1024, 1000, "active_allocated"), block(base + 1024, 2096128, 0, "inactive")};
  return {{"segments", List{segment(base, 2097152, blocks)}},
          {"device_traces", List{Node(events)}},
          {"allocator_settings", Dict{{"PYTORCH_CUDA_ALLOC_CONF", ""},
                                      {"max_split_size", -1},
                                      {"garbage_collection_threshold", 0.0},
                                      {"expandable_segments", false},
                                      {"roundup_power2_divisions", Dict{{"1", 0}, {"2", 0}}}}},
          {"external_annotations", List{Dict{{"name", "step"}, {"stage", "START"}, {"device", 0}, {"time_us", 5}}}}};
}

// torch 2.0: blocks without addresses, with `history` instead of `frames`.
inline List torch_2_0_segments() {
  const Dict first = {
      {"size", 1024},
      {"state", "active_allocated"},
      {"history", List{Dict{{"addr", 4194304}, {"real_size", 1000}, {"frames", List{frame("a.py", 1, "f")}}}}}};
  const Dict second = {{"size", 2096128}, {"state", "inactive"}};
  return {Dict{{"device", 0},
               {"address", 4194304},
               {"total_size", 2097152},
               {"stream", 0},
               {"segment_type", "small"},
               {"blocks", List{first, second}}}};
}

// torch.profiler's form: blocks without addresses, `category` on each event, one more device (the CPU).
inline Dict profiler_snapshot() {
  const Dict create = {{"action", "alloc"}, {"addr", 16777216}, {"size", 512},
                       {"stream", 0},       {"frames", List{}}, {"category", "PARAMETER"}};
  const Dict block_dict = {{"size", 512}, {"requested_size", 512}, {"state", "active_allocated"}, {"frames", List{}}};
  const auto segment_of = [&](int device, List blocks) {
    return Dict{
        {"device", device}, {"address", 16777216}, {"total_size", 512}, {"stream", 0}, {"blocks", std::move(blocks)}};
  };
  return {{"device_traces", List{List{create}, List{}}},
          {"segments", List{segment_of(0, {block_dict}), segment_of(1, {})}}};
}

}  // namespace ullage::test
