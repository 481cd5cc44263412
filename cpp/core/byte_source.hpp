// Where the bytes come from, and a buffered reader that knows its offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ullage {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills up to `capacity` bytes; 0 means the end.
  virtual std::size_t read(char* out, std::size_t capacity) = 0;
};

// An open file descriptor, which it does not own.
class FileSource : public ByteSource {
 public:
  explicit FileSource(int descriptor) : descriptor_(descriptor) {}
  std::size_t read(char* out, std::size_t capacity) override;

 private:
  int descriptor_;
};

// Bytes that the caller keeps alive.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {}
  std::size_t read(char* out, std::size_t capacity) override;

 private:
  std::string_view bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(ByteSource& source);

  // The offset of the next byte, counted from the start.
  std::uint64_t offset() const { return consumed_ + static_cast<std::uint64_t>(next_ - buffer_.data()); }

  bool at_end() { return next_ == end_ && !refill(1); }
  unsigned char peek();
  unsigned char byte() {
    if (next_ == end_) need(1);
    return static_cast<unsigned char>(*next_++);
  }
  template <typename T>
  T little_endian() {
    if (static_cast<std::size_t>(end_ - next_) < sizeof(T)) need(sizeof(T));
    T value;
    __builtin_memcpy(&value, next_, sizeof(T));
    next_ += sizeof(T);
    return value;
  }
  // The bytes that are buffered and unread, for a caller that walks them itself and then says how far it came.
  const char* next() const { return next_; }
  const char* end() const { return end_; }
  void set_next(const char* next) { next_ = next; }

  // The next `length` bytes; valid until the next call. Memory grows only as bytes arrive.
  std::string_view bytes(std::uint64_t length);
  void skip(std::uint64_t length);

 private:
  bool refill(std::size_t wanted);
  void need(std::size_t wanted);

  ByteSource& source_;
  std::vector<char> buffer_;
  std::string long_text_;
  const char* next_;
  const char* end_;
  std::uint64_t consumed_ = 0;  // bytes before buffer_
  bool source_ended_ = false;
};

}  // namespace ullage
