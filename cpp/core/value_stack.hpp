// The reader's stack. Its top is a plain pointer, so that a loop can hold it in a register.
#pragma once

#include <cstddef>
#include <vector>

#include "core/value.hpp"

namespace ullage {

class ValueStack {
 public:
  ValueStack() : values_(std::size_t{1} << 14), top_(values_.data()) {}
  ValueStack(const ValueStack&) = delete;
  ValueStack& operator=(const ValueStack&) = delete;

  std::size_t size() const { return static_cast<std::size_t>(top_ - values_.data()); }
  bool empty() const { return size() == 0; }
  const Value* begin() const { return values_.data(); }
  const Value* end() const { return top_; }
  Value operator[](std::size_t index) const { return values_[index]; }
  Value back() const { return top_[-1]; }

  void push(Value value) {
    if (top_ == limit()) grow();
    *top_++ = value;
  }
  void pop() { --top_; }
  // Drops everything from position `size` on.
  void cut(std::size_t size) { top_ = values_.data() + size; }

  // For a loop that pushes by itself: it stays below limit() and says how far it came.
  Value* top() { return top_; }
  Value* limit() { return values_.data() + values_.size(); }
  void set_top(Value* top) { top_ = top; }

 private:
  void grow() {
    const std::size_t count = size();
    values_.resize(2 * values_.size());
    cut(count);
  }

  std::vector<Value> values_;
  Value* top_;
};

}  // namespace ullage
