#include "core/snapshot_reader.hpp"

#include "core/error.hpp"

namespace ullage {
namespace {

constexpr unsigned char kPickleProto = 0x80;

bool is_json_space(unsigned char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

Tables read_snapshot(ByteSource& source, std::uint64_t expected_bytes) {
  Tables tables;
  ByteReader reader(source);
  ObjectBuilder builder(tables, reader);
  builder.reserve_for(expected_bytes);
  if (reader.at_end()) throw TraceError(0, "a memory snapshot", "an empty file");
  while (!reader.at_end() && is_json_space(reader.peek())) reader.byte();
  const unsigned char first = reader.at_end() ? 0 : reader.peek();
  if (first == kPickleProto && reader.offset() == 0) {
    tables.format = "pickle";
    read_pickle(reader, builder);
  } else if (first == '{' || first == '[') {
    tables.format = "json";
    read_json(reader, builder);
  } else {
    throw TraceError(reader.offset(), "a memory snapshot (a pickle of protocol 2 to 5, or JSON)",
                     "a file that begins with the byte " + std::to_string(int{first}));
  }
  builder.finish(builder.take_root());
  tables.size_bytes = reader.offset();
  return tables;
}

}  // namespace ullage
