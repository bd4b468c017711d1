#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace svmsim::svm {

/// One line of a log.
struct LogLine {
  std::string text;        ///< without quotation marks of mails, colours and line ends
  std::size_t number = 0;  ///< 1-based, of the line's start in the file
  bool complete = true;    ///< whether a line end follows
};

/// Splits a log into lines; undoes quoted-printable where the text shows signs of it.
[[nodiscard]] std::vector<LogLine> split_log(std::string_view bytes);

[[nodiscard]] bool is_space(char c) noexcept;
[[nodiscard]] bool is_hex_digit(char c) noexcept;
[[nodiscard]] bool is_decimal_digit(char c) noexcept;

}  // namespace svmsim::svm
