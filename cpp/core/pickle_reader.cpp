// The pickle virtual machine, without the part that imports or calls anything.
#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <string>

#include "core/error.hpp"
#include "core/snapshot_reader.hpp"

namespace ullage {
namespace {

// Opcodes as Lib/pickle.py (CPython 3.14) names them.
// clang-format off
enum Op : unsigned char {
  kMark = '(', kStop = '.', kPop = '0', kPopMark = '1', kDup = '2',
  kNoneOp = 'N', kNewTrue = 0x88, kNewFalse = 0x89,
  kBinInt = 'J', kBinInt1 = 'K', kBinInt2 = 'M', kLong1 = 0x8a, kLong4 = 0x8b, kBinFloat = 'G',
  kShortBinUnicode = 0x8c, kBinUnicode = 'X', kBinUnicode8 = 0x8d,
  kShortBinString = 'U', kBinString = 'T', kShortBinBytes = 'C', kBinBytes = 'B', kBinBytes8 = 0x8e, kByteArray8 = 0x96,
  kEmptyList = ']', kAppend = 'a', kAppends = 'e', kList = 'l',
  kEmptyTuple = ')', kTuple = 't', kTuple1 = 0x85, kTuple2 = 0x86, kTuple3 = 0x87,
  kEmptyDict = '}', kDict = 'd', kSetItem = 's', kSetItems = 'u',
  kEmptySet = 0x8f, kAddItems = 0x90, kFrozenSet = 0x91,
  kBinPut = 'q', kLongBinPut = 'r', kMemoize = 0x94, kBinGet = 'h', kLongBinGet = 'j',
  kProto = 0x80, kFrame = 0x95,
  // These would import, build or call something; a snapshot has none of them.
  kGlobal = 'c', kStackGlobal = 0x93, kReduce = 'R', kBuild = 'b', kInst = 'i', kObj = 'o', kNewObj = 0x81,
  kNewObjEx = 0x92, kExt1 = 0x82, kExt2 = 0x83, kExt4 = 0x84, kPersId = 'P', kBinPersId = 'Q', kNextBuffer = 0x97,
  kReadonlyBuffer = 0x98,
};
// clang-format on

const char* refused_name(unsigned char op) {
  switch (op) {
    case kGlobal: return "GLOBAL";
    case kStackGlobal: return "STACK_GLOBAL";
    case kReduce: return "REDUCE";
    case kBuild: return "BUILD";
    case kInst: return "INST";
    case kObj: return "OBJ";
    case kNewObj: return "NEWOBJ";
    case kNewObjEx: return "NEWOBJ_EX";
    case kExt1: return "EXT1";
    case kExt2: return "EXT2";
    case kExt4: return "EXT4";
    case kPersId: return "PERSID";
    case kBinPersId: return "BINPERSID";
    case kNextBuffer: return "NEXT_BUFFER";
    case kReadonlyBuffer: return "READONLY_BUFFER";
    default: return nullptr;
  }
}

[[noreturn]] void refuse(unsigned char op, std::uint64_t offset) {
  if (const char* name = refused_name(op)) {
    throw TraceError(offset, "plain data (numbers, text, lists, dictionaries)",
                     std::string("the opcode ") + name + ", which would import or run code; nothing was run");
  }
  throw TraceError(offset, "a pickle opcode of protocol 2 to 5", "the byte " + std::to_string(int{op}));
}

// The two's complement integer of `length` bytes, 1 to 7, that starts at `bytes`; eight bytes can be read there.
std::int64_t short_long(const char* bytes, unsigned length) {
  std::int64_t number;
  __builtin_memcpy(&number, bytes, sizeof number);
  const unsigned unused = 64 - 8 * length;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(number) << unused) >> unused;
}

// A little-endian two's complement integer of any length.
void push_long(ByteReader& reader, ObjectBuilder& builder, std::uint64_t length) {
  const std::string_view text = reader.bytes(length);
  const bool is_negative = !text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0;
  const unsigned char filler = is_negative ? 0xff : 0x00;
  std::uint64_t low = is_negative ? ~std::uint64_t{0} : 0;
  bool overflows = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (i < 8) {
      low = (low & ~(std::uint64_t{0xff} << (8 * i))) | (std::uint64_t{byte} << (8 * i));
    } else if (byte != filler) {
      overflows = true;
    }
  }
  if (is_negative && low >> 63 == 0) overflows = true;
  const auto number = static_cast<std::int64_t>(low);
  if (!overflows && (number < 0) == is_negative && Value::fits(number)) return builder.push(Value::integer(number));
  builder.push_wide({low, is_negative, overflows});
}

std::uint64_t signed_length(std::int32_t length, std::uint64_t offset) {
  if (length < 0) throw TraceError(offset, "a length of at least 0", std::to_string(length));
  return static_cast<std::uint64_t>(length);
}

void read_proto(ByteReader& reader, std::uint64_t offset) {
  const unsigned protocol = reader.byte();
  if (protocol < 2 || protocol > 5) throw TraceError(offset, "pickle protocol 2 to 5", std::to_string(protocol));
}

// Numbers and texts. False if `op` is something else.
bool read_scalar(unsigned char op, ByteReader& reader, ObjectBuilder& builder, std::uint64_t offset) {
  switch (op) {
    case kNoneOp: builder.push(Value()); return true;
    case kNewTrue: builder.push({ValueKind::kBool, 1}); return true;
    case kNewFalse: builder.push({ValueKind::kBool, 0}); return true;
    case kBinInt: builder.push(Value::integer(reader.little_endian<std::int32_t>())); return true;
    case kBinInt1: builder.push(Value::integer(reader.byte())); return true;
    case kBinInt2: builder.push(Value::integer(reader.little_endian<std::uint16_t>())); return true;
    case kLong1: push_long(reader, builder, reader.byte()); return true;
    case kLong4: push_long(reader, builder, signed_length(reader.little_endian<std::int32_t>(), offset)); return true;
    case kBinFloat: {
      const auto bits = reader.little_endian<std::uint64_t>();
      builder.push_float(std::bit_cast<double>(__builtin_bswap64(bits)));
      return true;
    }
    case kShortBinUnicode:
    case kShortBinString:
    case kShortBinBytes: builder.push_text(reader.bytes(reader.byte())); return true;
    case kBinUnicode:
    case kBinBytes: builder.push_text(reader.bytes(reader.little_endian<std::uint32_t>())); return true;
    case kBinString:
      builder.push_text(reader.bytes(signed_length(reader.little_endian<std::int32_t>(), offset)));
      return true;
    case kBinUnicode8:
    case kBinBytes8:
    case kByteArray8: builder.push_text(reader.bytes(reader.little_endian<std::uint64_t>())); return true;
    default: return false;
  }
}

// Containers. False if `op` is something else.
bool build_container(unsigned char op, ObjectBuilder& builder) {
  switch (op) {
    case kEmptyDict: builder.push_empty_dict(); return true;
    case kMark: builder.mark(); return true;
    case kSetItems: builder.set_items(); return true;
    case kSetItem: builder.set_item(); return true;
    case kEmptyList:
    case kEmptyTuple:
    case kEmptySet: builder.push_empty_list(); return true;
    case kAppends:
    case kAddItems: builder.appends(); return true;
    case kAppend: builder.append(); return true;
    case kTuple:
    case kList:
    case kFrozenSet: builder.sequence_from_mark(); return true;
    case kTuple1: builder.sequence_of(1); return true;
    case kTuple2: builder.sequence_of(2); return true;
    case kTuple3: builder.sequence_of(3); return true;
    case kDict: builder.dict_from_mark(); return true;
    case kPop: builder.pop(); return true;
    case kPopMark: builder.pop_mark(); return true;
    case kDup: builder.duplicate_top(); return true;
    default: return false;
  }
}

// The opcodes that make up nearly all of a recording, numbered densely: a jump by this number costs no comparison.
enum class Common : std::uint8_t {
  kOther,
  kBinGet,
  kLongBinGet,
  kBinInt1,
  kBinInt2,
  kBinInt,
  kLong1,
  kShortText,
  kMark,
  kMemoize,
  kEmptyDict,
  kEmptyList,
  kSetItems,
  kAppends,
};

constexpr auto kCommonOf = [] {
  std::array<Common, 256> common{};
  common[kBinGet] = Common::kBinGet;
  common[kLongBinGet] = Common::kLongBinGet;
  common[kBinInt1] = Common::kBinInt1;
  common[kBinInt2] = Common::kBinInt2;
  common[kBinInt] = Common::kBinInt;
  common[kLong1] = Common::kLong1;
  common[kShortBinUnicode] = Common::kShortText;
  common[kMark] = Common::kMark;
  common[kMemoize] = Common::kMemoize;
  common[kEmptyDict] = Common::kEmptyDict;
  common[kEmptyList] = Common::kEmptyList;
  common[kSetItems] = Common::kSetItems;
  common[kAppends] = Common::kAppends;
  return common;
}();

// Runs common opcodes as long as they are buffered and cannot fail. The first other one is left to the caller. What
// changes with each opcode is held in registers: the next byte and the stack's top go back to their owners only when
// somebody else needs them.
void read_common(ByteReader& reader, ObjectBuilder& builder) {
  constexpr std::ptrdiff_t kLongest = 10;  // bytes that one of these opcodes may look at
  ValueStack& stack = builder.stack();
  const char* p = reader.next();
  Value* top = stack.top();
  std::span<const Value> memo = builder.whole_memo();
  const auto operand = [&](auto& value) { __builtin_memcpy(&value, p + 1, sizeof value); };
  const auto give_back = [&] {
    reader.set_next(p);
    stack.set_top(top);
  };
  const auto take_again = [&] {
    top = stack.top();
    memo = builder.whole_memo();
  };
  const auto next_is = [&](Op op) { return static_cast<unsigned char>(*p) == op; };
  // What was just pushed is nearly always memoized, and a container then filled from a mark.
  const auto memoize = [&](Value pushed) {
    if (!next_is(kMemoize)) return;
    builder.memoize(pushed);
    ++p;
  };
  for (;;) {
    // Each opcode is a byte at least and pushes one value at most.
    const char* const stop = p + std::min(reader.end() - p - kLongest, stack.limit() - top);
    if (p >= stop) return give_back();
    while (p < stop) {
      switch (kCommonOf[static_cast<unsigned char>(*p)]) {
        case Common::kBinGet: {
          const auto index = static_cast<unsigned char>(p[1]);
          if (index >= memo.size()) return give_back();
          *top++ = memo[index];
          p += 2;
          break;
        }
        case Common::kLongBinGet: {
          std::uint32_t index;
          operand(index);
          if (index >= memo.size()) return give_back();
          *top++ = memo[index];
          p += 5;
          break;
        }
        case Common::kBinInt1:
          *top++ = Value::integer(static_cast<unsigned char>(p[1]));
          p += 2;
          break;
        case Common::kBinInt2: {
          std::uint16_t number;
          operand(number);
          *top++ = Value::integer(number);
          p += 3;
          break;
        }
        case Common::kBinInt: {
          std::int32_t number;
          operand(number);
          *top++ = Value::integer(number);
          p += 5;
          break;
        }
        case Common::kLong1: {
          const auto length = static_cast<unsigned char>(p[1]);
          if (length == 0 || length > 7) return give_back();
          const std::int64_t number = short_long(p + 2, length);
          if (!Value::fits(number)) return give_back();
          *top++ = Value::integer(number);
          p += 2 + length;
          break;
        }
        case Common::kShortText: {  // torch writes these two anew for each event
          const auto length = static_cast<unsigned char>(p[1]);
          const bool is_not_available = length == 3 && __builtin_memcmp(p + 2, "N/A", 3) == 0;
          if (length != 0 && !is_not_available) return give_back();
          *top++ = is_not_available ? builder.not_available() : builder.empty_text();
          p += 2 + length;
          memoize(top[-1]);
          memo = builder.whole_memo();
          break;
        }
        case Common::kMark:
          stack.set_top(top);
          builder.mark();
          ++p;
          break;
        case Common::kMemoize:
          stack.set_top(top);
          if (builder.num_above_mark() == 0) return give_back();
          memoize(top[-1]);
          memo = builder.whole_memo();
          break;
        // These may fail: the error names the offset.
        case Common::kEmptyDict:
        case Common::kEmptyList: {
          const bool is_dict = next_is(kEmptyDict);
          ++p;
          give_back();
          is_dict ? builder.push_empty_dict() : builder.push_empty_list();
          memoize(stack.back());
          if (next_is(kMark)) {
            builder.mark();
            ++p;
          }
          take_again();
          break;
        }
        case Common::kSetItems:
          ++p;
          give_back();
          builder.set_items();
          take_again();
          break;
        case Common::kAppends:
          ++p;
          give_back();
          builder.appends();
          take_again();
          break;
        case Common::kOther: return give_back();
        default: __builtin_unreachable();
      }
    }
  }
}

}  // namespace

void read_pickle(ByteReader& reader, ObjectBuilder& builder) {
  for (;;) {
    read_common(reader, builder);
    const unsigned char op = reader.byte();
    const std::uint64_t offset = reader.offset() - 1;
    switch (op) {
      case kBinGet: builder.memo_get(reader.byte()); break;
      case kLongBinGet: builder.memo_get(reader.little_endian<std::uint32_t>()); break;
      case kMemoize: builder.memo_put_next(); break;
      case kBinPut: builder.memo_put(reader.byte()); break;
      case kLongBinPut: builder.memo_put(reader.little_endian<std::uint32_t>()); break;
      case kFrame: reader.skip(8); break;
      case kProto: read_proto(reader, offset); break;
      case kStop: return;
      default:
        if (!read_scalar(op, reader, builder, offset) && !build_container(op, builder)) refuse(op, offset);
    }
  }
}

}  // namespace ullage
