#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "frit/core/io/file.h"

namespace frit::safetensors_format {

/// The header's text, read piece by piece, so that it is never in memory as a whole.
class HeaderText {
 public:
  HeaderText(const Input& input, std::uint64_t begin, std::uint64_t end) : input_(input), next_(begin), end_(end), buffer_(65536, '\0') {}

  bool at_end() { return at_ == filled_ && !refill(); }
  char front() const { return buffer_[at_]; }
  void pop() { ++at_; }
  std::uint64_t position() const { return next_ - (filled_ - at_); }  ///< of the next character in the file

 private:
  bool refill() {
    if (next_ == end_) return false;
    at_ = 0;
    filled_ = static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), end_ - next_));
    input_.read(next_, std::as_writable_bytes(std::span(buffer_).first(filled_)));
    // The JSON parser would take a NUL for the end of its text.
    const std::size_t nul = std::string_view(buffer_).substr(0, filled_).find('\0');
    if (nul != std::string_view::npos) input_.bad("header is not valid UTF-8/JSON at byte ", next_ + nul, ": NUL");
    next_ += filled_;
    return true;
  }

  const Input& input_;
  std::uint64_t next_;
  std::uint64_t end_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
};

/// The characters of a HeaderText as the pair of iterators that the JSON parser takes; the end has no text.
class HeaderIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  explicit HeaderIterator(HeaderText* text) : text_(text) {}
  char operator*() const { return text_->front(); }
  HeaderIterator& operator++() {
    text_->pop();
    return *this;
  }
  bool operator==(const HeaderIterator& other) const { return text_ == other.text_ || (text_ != nullptr && text_->at_end()); }

 private:
  HeaderText* text_;
};

}  // namespace frit::safetensors_format
