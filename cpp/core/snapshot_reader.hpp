// Reads a PyTorch memory snapshot, pickle or JSON, into Tables. Nothing in the file is ever executed.
#pragma once

#include "core/byte_source.hpp"
#include "core/object_builder.hpp"
#include "core/tables.hpp"

namespace ullage {

// Reads the whole snapshot. `expected_bytes` is the file's size where it is known, else 0. Raises TraceError on
// anything that is not a snapshot. Cost: linear in the file; memory a small multiple of it.
Tables read_snapshot(ByteSource& source, std::uint64_t expected_bytes = 0);

// The two syntaxes; each leaves one root value on the builder's stack.
void read_pickle(ByteReader& reader, ObjectBuilder& builder);
void read_json(ByteReader& reader, ObjectBuilder& builder);

}  // namespace ullage
