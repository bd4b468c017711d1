#include "svm/vmcb_dump/log_text.hpp"

namespace svmsim::svm {

bool is_space(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r';
}

bool is_decimal_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

bool is_hex_digit(char c) noexcept {
  return is_decimal_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

namespace {

unsigned nibble(char c) noexcept {
  if (is_decimal_digit(c)) return static_cast<unsigned>(c - '0');
  return static_cast<unsigned>((c | 0x20) - 'a' + 10);
}

/// RFC 2045, 6.7: a space at the end of a line is "=20", and an equals sign is always "=3D".
bool has_quoted_printable(std::string_view bytes) noexcept {
  for (const std::string_view sign : {"=20", "=3D", "=09", "quoted-printable"}) {
    if (bytes.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

/// Appends the text of a quoted-printable line; returns whether the next line continues it.
bool append_quoted_printable(std::string_view line, std::string& text) {
  while (!line.empty() && is_space(line.back()))
    line.remove_suffix(1);
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '=') {
      text += line[i];
    } else if (i + 1 == line.size()) {
      return true;
    } else if (i + 2 < line.size() && is_hex_digit(line[i + 1]) && is_hex_digit(line[i + 2])) {
      const unsigned code = nibble(line[i + 1]) << 4 | nibble(line[i + 2]);
      text += code == '\n' ? ' ' : static_cast<char>(code);
      i += 2;
    } else {
      text += '=';
    }
  }
  return false;
}

/// Takes "> > " and "| " off the front, and terminal colours and NULs out of the text.
void clean(std::string& text) {
  std::string result;
  result.reserve(text.size());
  std::size_t i = 0;
  while (i < text.size() && (is_space(text[i]) || text[i] == '>' || text[i] == '|'))
    ++i;
  for (; i < text.size(); ++i) {
    if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      i += 2;
      while (i < text.size() && (is_decimal_digit(text[i]) || text[i] == ';'))
        ++i;
    } else if (text[i] == '\0') {
      result += ' ';
    } else if (text[i] == '\xc2' && i + 1 < text.size() && text[i + 1] == '\xa0') {
      result += ' ';  // the no-break space of web pages
      ++i;
    } else {
      result += text[i];
    }
  }
  text = std::move(result);
}

}  // namespace

std::vector<LogLine> split_log(std::string_view bytes) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (bytes.substr(0, byte_order_mark.size()) == byte_order_mark) bytes.remove_prefix(byte_order_mark.size());
  const bool quoted_printable = has_quoted_printable(bytes);
  std::vector<LogLine> lines;
  std::size_t number = 1;
  bool continues = false;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find_first_of("\r\n");
    const std::string_view raw = bytes.substr(0, end);
    if (!continues) lines.push_back({{}, number, true});
    LogLine& line = lines.back();
    line.complete = end != std::string_view::npos;
    if (quoted_printable) {
      continues = append_quoted_printable(raw, line.text);
    } else {
      line.text = raw;
    }
    if (!continues) clean(line.text);
    if (end == std::string_view::npos) break;
    const bool crlf = bytes.substr(end, 2) == "\r\n";
    bytes.remove_prefix(end + (crlf ? 2 : 1));
    ++number;
  }
  if (continues) clean(lines.back().text);
  return lines;
}

}  // namespace svmsim::svm
