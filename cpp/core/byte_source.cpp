#include "core/byte_source.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace ullage {
namespace {
constexpr std::size_t kBufferSize = std::size_t{1} << 18;
}

std::size_t FileSource::read(char* out, std::size_t capacity) {
  for (;;) {
    const ssize_t got = ::read(descriptor_, out, capacity);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) throw TraceError(0, "a readable file", std::strerror(errno));
  }
}

std::size_t MemorySource::read(char* out, std::size_t capacity) {
  const std::size_t count = std::min(capacity, bytes_.size());
  if (count > 0) std::memcpy(out, bytes_.data(), count);  // an empty view may point nowhere
  bytes_.remove_prefix(count);
  return count;
}

ByteReader::ByteReader(ByteSource& source)
    : source_(source), buffer_(kBufferSize), next_(buffer_.data()), end_(buffer_.data()) {}

bool ByteReader::refill(std::size_t wanted) {
  const auto left = static_cast<std::size_t>(end_ - next_);
  consumed_ += static_cast<std::uint64_t>(next_ - buffer_.data());
  std::memmove(buffer_.data(), next_, left);
  std::size_t filled = left;
  while (filled < wanted && !source_ended_) {
    const std::size_t got = source_.read(buffer_.data() + filled, buffer_.size() - filled);
    source_ended_ = got == 0;
    filled += got;
  }
  next_ = buffer_.data();
  end_ = next_ + filled;
  return filled >= wanted;
}

void ByteReader::need(std::size_t wanted) {
  if (refill(wanted)) return;
  throw TraceError(offset(), std::to_string(wanted) + " more byte(s)",
                   "the end of the file after " + std::to_string(end_ - next_) + " (truncated?)");
}

unsigned char ByteReader::peek() {
  if (next_ == end_) need(1);
  return static_cast<unsigned char>(*next_);
}

std::string_view ByteReader::bytes(std::uint64_t length) {
  if (length <= static_cast<std::uint64_t>(end_ - next_) || length <= kBufferSize) {
    if (static_cast<std::uint64_t>(end_ - next_) < length) need(static_cast<std::size_t>(length));
    const std::string_view view(next_, static_cast<std::size_t>(length));
    next_ += length;
    return view;
  }
  long_text_.clear();
  while (long_text_.size() < length) {
    if (at_end()) need(1);
    const std::uint64_t left = length - long_text_.size();
    const auto take = static_cast<std::size_t>(std::min<std::uint64_t>(left, static_cast<std::uint64_t>(end_ - next_)));
    long_text_.append(next_, take);
    next_ += take;
  }
  return long_text_;
}

void ByteReader::skip(std::uint64_t length) {
  while (length > 0) {
    if (at_end()) need(1);
    const auto take = std::min<std::uint64_t>(length, static_cast<std::uint64_t>(end_ - next_));
    next_ += take;
    length -= take;
  }
}

}  // namespace ullage
