#pragma once

#include <cstdint>
#include <string_view>

namespace svmsim::workloads {

/// Reads a line from left to right. Every member either consumes what it names and returns true, or leaves
/// the position where it was and returns false. Numbers that do not fit in 64 bits are refused.
class TextScanner {
 public:
  explicit TextScanner(std::string_view text) : text_(text) {}

  [[nodiscard]] std::string_view rest() const { return text_.substr(position_); }
  [[nodiscard]] std::size_t position() const noexcept { return position_; }
  [[nodiscard]] bool at_end() const noexcept { return position_ == text_.size(); }

  void skip_blanks() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\t'))
      ++position_;
  }

  bool literal(std::string_view expected) {
    if (text_.compare(position_, expected.size(), expected) != 0) return false;
    position_ += expected.size();
    return true;
  }

  bool decimal(std::uint64_t& value) {
    std::uint64_t result = 0;
    std::size_t at = position_;
    for (; at < text_.size() && text_[at] >= '0' && text_[at] <= '9'; ++at) {
      const auto digit = static_cast<std::uint64_t>(text_[at] - '0');
      if (result > (UINT64_MAX - digit) / 10) return false;
      result = result * 10 + digit;
    }
    return take(at, result, value);
  }

  /// Hexadecimal digits without a prefix.
  bool hex(std::uint64_t& value) {
    std::uint64_t result = 0;
    std::size_t at = position_;
    for (; at < text_.size(); ++at) {
      const int digit = hex_digit(text_[at]);
      if (digit < 0) break;
      if ((result >> 60) != 0) return false;
      result = result << 4 | static_cast<std::uint64_t>(digit);
    }
    return take(at, result, value);
  }

  /// Hexadecimal digits after 0x.
  bool hex_0x(std::uint64_t& value) {
    const std::size_t start = position_;
    if (literal("0x") && hex(value)) return true;
    position_ = start;
    return false;
  }

  /// Everything up to the next `end`, which is consumed too.
  bool until(std::string_view end, std::string_view& value) {
    const std::size_t found = text_.find(end, position_);
    if (found == std::string_view::npos) return false;
    value = text_.substr(position_, found - position_);
    position_ = found + end.size();
    return true;
  }

  /// The longest run without blanks; may be empty.
  std::string_view word() {
    const std::size_t start = position_;
    while (position_ < text_.size() && text_[position_] != ' ' && text_[position_] != '\t')
      ++position_;
    return text_.substr(start, position_ - start);
  }

  /// The same, up to a bracket: kvm_entry of 6.18 prints "error_code 0x00000000[immediate exit]".
  std::string_view value() {
    const std::size_t start = position_;
    while (position_ < text_.size() && text_[position_] != ' ' && text_[position_] != '\t' &&
           text_[position_] != '[') {
      ++position_;
    }
    return text_.substr(start, position_ - start);
  }

 private:
  static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }

  bool take(std::size_t end, std::uint64_t result, std::uint64_t& value) {
    if (end == position_) return false;
    position_ = end;
    value = result;
    return true;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

}  // namespace svmsim::workloads
