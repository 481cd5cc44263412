// Breaks small snapshots in many ways and opens each: ullage_fuzz RUNS SEED [FILE...]
//
// RUNS is a number of mutants, a time such as 60s, or a range such as 41-42 that repeats those mutants. A mutant
// depends on SEED, on its number and on the files alone. Only TraceError may come out; every layout must keep its
// invariants; nothing that is drawn may overlap; no mutant may take more than 5 s, or more memory than 64 MiB and 64
// times its size. The first that does otherwise is written to fuzz-failure.bin, and the exit status is 1.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>

#include "core/error.hpp"
#include "core/rebuild.hpp"
#include "drawing_checks.hpp"
#include "json_writer.hpp"
#include "layout_checks.hpp"
#include "mutate.hpp"
#include "naive_allocator.hpp"
#include "pickle_writer.hpp"
#include "snapshot_samples.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace ullage::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSecondsLimit = 5;
constexpr unsigned kHangSeconds = 60;
constexpr std::int64_t kMemoryBase = 64 * kMiB;
constexpr std::int64_t kMemoryPerByte = 64;

struct Counts {
  std::uint64_t mutants = 0, refused = 0, parsed = 0, histories = 0, histories_refused = 0;
  double slowest_s = 0;
  std::int64_t greatest_growth = 0;
};

// What a crash handler can still tell.
std::uint64_t current_mutant = 0;
std::string current_bytes;

void tell_current() {
  std::fprintf(stderr, "ullage_fuzz: failed at mutant %llu; its bytes are in fuzz-failure.bin\n",
               static_cast<unsigned long long>(current_mutant));
  std::ofstream("fuzz-failure.bin", std::ios::binary) << current_bytes;
}

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "ullage_fuzz: %s\n", why.c_str());
  tell_current();
  std::exit(1);
}

void on_signal(int) {
  tell_current();
  _exit(1);
}

// --- seeds ---

// A recording as PyTorch would dump it.
Node snapshot_of(const Tables& tables) {
  constexpr const char* kActions[] = {"alloc",        "free_requested", "free_completed", "segment_alloc",
                                      "segment_free", "segment_map",    "segment_unmap"};
  constexpr const char* kStates[] = {"inactive", "active_allocated", "active_pending_free"};
  List events, segments;
  for (std::size_t i = 0; i < tables.events.size_rows(); ++i) {
    events.push_back(Dict{{"action", kActions[static_cast<std::size_t>(tables.events.action[i])]},
                          {"addr", tables.events.address[i]},
                          {"size", tables.events.size[i]},
                          {"stream", tables.events.stream[i]},
                          {"time_us", tables.events.time[i]},
                          {"frames", List{frame("train.py", static_cast<int>(i % 5), "step")}}});
  }
  const SegmentTable& table = tables.segments;
  for (std::size_t row = 0; row < table.size_rows(); ++row) {
    List blocks;
    for (std::int64_t i = table.blocks_begin[row]; i < table.blocks_end[row]; ++i) {
      const auto block = static_cast<std::size_t>(i);
      blocks.push_back(Dict{{"address", tables.blocks.address[block]},
                            {"size", tables.blocks.size[block]},
                            {"requested_size", tables.blocks.requested_size[block]},
                            {"state", kStates[static_cast<std::size_t>(tables.blocks.state[block])]}});
    }
    segments.push_back(Dict{{"device", 0},
                            {"address", table.address[row]},
                            {"total_size", table.total_size[row]},
                            {"stream", table.stream[row]},
                            {"segment_type", table.pool_size[row] == PoolSize::kSmall ? "small" : "large"},
                            {"segment_pool_id", Tuple{{0, 0}}},
                            {"is_expandable", table.is_expandable[row] != 0},
                            {"blocks", std::move(blocks)}});
  }
  Dict settings;
  for (const auto& [key, value] : tables.settings) {
    if (const auto* flag = std::get_if<bool>(&value)) settings.emplace_back(key, *flag);
    if (const auto* number = std::get_if<std::int64_t>(&value)) settings.emplace_back(key, *number);
  }
  return Dict{{"segments", segments}, {"device_traces", List{events, List{}}}, {"allocator_settings", settings}};
}

std::vector<Node> seed_trees() {
  std::vector<Node> trees = {small_snapshot(), torch_2_0_segments(), profiler_snapshot()};
  for (unsigned seed = 0; seed < 6; ++seed) {
    AllocatorSettings settings;
    settings.expandable_segments = seed % 3 == 1;
    if (seed % 3 == 2) settings.max_split_size = 20 * kMiB;
    NaiveAllocator allocator(settings, seed);
    for (int i = 0; i < 40; ++i) allocator.step();
    allocator.finish();
    trees.push_back(snapshot_of(allocator.trace.tables));
  }
  return trees;
}

std::string written(const Node& tree, Random& random) {
  constexpr PickleStyle kStyles[] = {{2, false}, {2, true}, {3, false}, {4, false}, {5, false}};
  const std::size_t style = below(random, std::size(kStyles) + 1);
  return style == std::size(kStyles) ? to_json(tree) : to_pickle(tree, kStyles[style]);
}

// --- one mutant ---

std::string mutant(const std::vector<Node>& trees, const std::vector<std::string>& files, Random& random) {
  const auto some_bytes = [&] {
    const std::size_t pick = below(random, trees.size() + files.size());
    return pick < trees.size() ? written(trees[pick], random) : files[pick - trees.size()];
  };
  if (random() % 2) {
    Node tree = trees[below(random, trees.size())];
    for (std::size_t rounds = 1 + below(random, 8); rounds > 0; --rounds) mutate_tree(tree, random);
    std::string bytes = written(tree, random);
    if (random() % 8 == 0) mutate_bytes(bytes, random);
    return bytes;
  }
  std::string bytes = random() % 8 == 0 ? spliced(some_bytes(), some_bytes(), random) : some_bytes();
  mutate_bytes(bytes, random);
  return bytes;
}

void check_drawing(const History& history, EventIndex num_events) {
  constexpr std::size_t kMostCompared = 400;  // each with each
  const Drawing drawing = draw_blocks(history.blocks, num_events);
  if (history.blocks.size_rows() > kMostCompared) return;
  if (const std::string broken = broken_drawing(history.blocks, num_events, drawing); !broken.empty()) fail(broken);
}

void check_device(const Tables& tables, const DeviceTrace& trace, Counts& counts) {
  try {
    const auto num_events = static_cast<EventIndex>(trace.events_end - trace.events_begin);
    const History history = rebuild(tables, trace, {.verify = true, .counters = true});
    ++counts.histories;
    check_drawing(history, num_events);
    for (const EventIndex event : {kNone, 0, num_events / 2, num_events - 1}) {
      if (event >= num_events) continue;
      const LayoutTable layout = layouts_after(tables, trace, {event}).at(0);
      if (const std::string broken = broken_invariant(layout); !broken.empty()) fail(broken);
      const CounterValues expected =
          event == kNone ? history.before : counters_after(history, static_cast<std::size_t>(event));
      if (counters_of(layout) != expected) fail("the counters are not what the layout holds");
    }
  } catch (const TraceError&) {
    ++counts.histories_refused;
  }
}

void open(const std::string& bytes, bool size_is_known, Counts& counts) {
  constexpr std::size_t kMostDevices = 8;
  std::optional<Tables> tables;
  try {
    MemorySource source(bytes);
    tables = read_snapshot(source, size_is_known ? bytes.size() : 0);
  } catch (const TraceError&) {
    ++counts.refused;
    return;
  }
  ++counts.parsed;
  for (std::size_t i = 0; i < tables->devices.size() && i < kMostDevices; ++i) {
    check_device(*tables, tables->devices[i], counts);
  }
}

std::int64_t resident_bytes() {
  std::int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * kKiB;
}

// Opens a mutant under guard of its time and memory.
void guarded_open(bool size_is_known, Counts& counts) {
  const std::int64_t peak_before = peak_bytes();
  const std::int64_t resident_before = resident_bytes();
  const auto start = Clock::now();
  alarm(kHangSeconds);
  try {
    open(current_bytes, size_is_known, counts);
  } catch (const std::exception& error) {
    fail(std::string("an error that is no TraceError: ") + error.what());
  }
  alarm(0);
  ++counts.mutants;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  counts.slowest_s = std::max(counts.slowest_s, seconds);
  if (seconds > kSecondsLimit) fail("a mutant took " + std::to_string(seconds) + " s");
  const std::int64_t peak = peak_bytes();
  if (peak == peak_before) return;
  const std::int64_t growth = peak - resident_before;
  counts.greatest_growth = std::max(counts.greatest_growth, growth);
  if (growth > kMemoryBase + kMemoryPerByte * static_cast<std::int64_t>(current_bytes.size())) {
    fail("a mutant of " + std::to_string(current_bytes.size()) + " bytes took " + std::to_string(growth) +
         " bytes of memory");
  }
}

// --- the run ---

struct Runs {
  std::uint64_t begin = 0;
  std::uint64_t end = ~std::uint64_t{0};
  double seconds = 1e18;
};

std::optional<Runs> parsed_runs(const std::string& text) {
  Runs runs;
  char* rest = nullptr;
  const std::uint64_t number = std::strtoull(text.c_str(), &rest, 10);
  if (rest == text.c_str()) return std::nullopt;
  const std::string suffix = rest;
  if (suffix.empty()) {
    runs.end = number;
  } else if (suffix == "s") {
    runs.seconds = static_cast<double>(number);
  } else if (suffix[0] == '-') {
    runs.begin = number;
    runs.end = std::strtoull(rest + 1, nullptr, 10);
  } else {
    return std::nullopt;
  }
  return runs;
}

Counts run(const Runs& runs, std::uint64_t seed, const std::vector<std::string>& files) {
  const std::vector<Node> trees = seed_trees();
  const auto start = Clock::now();
  Counts counts;
  for (std::uint64_t i = runs.begin; i < runs.end; ++i) {
    if (std::chrono::duration<double>(Clock::now() - start).count() > runs.seconds) break;
    std::seed_seq mixed{seed & 0xffffffff, seed >> 32, i & 0xffffffff, i >> 32};
    Random random(mixed);
    current_mutant = i;
    current_bytes = mutant(trees, files, random);
    guarded_open(random() % 2 == 0, counts);
  }
  return counts;
}

int fuzz(int argc, char** argv) {
  const std::optional<Runs> runs = argc < 3 ? std::nullopt : parsed_runs(argv[1]);
  if (!runs) {
    std::fprintf(stderr, "usage: ullage_fuzz COUNT|SECONDSs|FIRST-END SEED [FILE...]\n");
    return 2;
  }
  std::vector<std::string> files;
  for (int i = 3; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!file || files.back().empty()) {
      std::fprintf(stderr, "ullage_fuzz: cannot read %s\n", argv[i]);
      return 2;
    }
  }
  std::signal(SIGALRM, on_signal);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(tell_current);
#else
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) std::signal(signal, on_signal);
#endif
  const Counts counts = run(*runs, std::strtoull(argv[2], nullptr, 10), files);
  std::printf("mutants %llu: refused %llu, parsed %llu; histories rebuilt %llu, refused %llu\n",
              static_cast<unsigned long long>(counts.mutants), static_cast<unsigned long long>(counts.refused),
              static_cast<unsigned long long>(counts.parsed), static_cast<unsigned long long>(counts.histories),
              static_cast<unsigned long long>(counts.histories_refused));
  std::printf("slowest mutant %.3f s, greatest growth of memory %.1f MiB\n", counts.slowest_s,
              static_cast<double>(counts.greatest_growth) / static_cast<double>(kMiB));
  return 0;
}

}  // namespace
}  // namespace ullage::test

int main(int argc, char** argv) { return ullage::test::fuzz(argc, argv); }
