#include "svm/vmcb_dump/dump_parser.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "svm/vmcb_dump/dump_builder.hpp"
#include "svm/vmcb_dump/dump_keys.hpp"
#include "svm/vmcb_dump/log_text.hpp"

namespace svmsim::svm {

namespace {

/// Without a heading, fewer fields than this are a coincidence of words.
constexpr std::size_t least_fields = 5;

/// "[ T123]" or "[ C4]" in what stands before a line: the kernel's caller ID, or "".
std::string caller_id(std::string_view prefix) {
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    if (prefix[i] != '[') continue;
    std::size_t j = i + 1;
    while (j < prefix.size() && is_space(prefix[j]))
      ++j;
    const std::size_t start = j;
    if (j >= prefix.size() || (prefix[j] != 'T' && prefix[j] != 'C')) continue;
    do
      ++j;
    while (j < prefix.size() && is_decimal_digit(prefix[j]));
    if (j > start + 1 && j < prefix.size() && prefix[j] == ']')
      return std::string(prefix.substr(start, j - start));
  }
  return {};
}

/// Whether a key may stand after this: the start of a line, a kernel's or a logger's prefix.
bool may_precede(std::string_view prefix) {
  while (!prefix.empty() && is_space(prefix.back()))
    prefix.remove_suffix(1);
  if (prefix.empty()) return true;
  constexpr std::string_view ends = ":]>|\"";
  return ends.find(prefix.back()) != std::string_view::npos ||
         (prefix.size() >= 6 && prefix.substr(prefix.size() - 6) == "kernel");
}

/// Where a key starts in a line, or npos: at the start of a word, after a prefix.
struct Start {
  std::size_t position = std::string_view::npos;
  DumpKey key;
};
Start first_key(std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (is_space(line[i]) || (i > 0 && !is_space(line[i - 1]) && line[i - 1] != '>' && line[i - 1] != '"'))
      continue;
    if (const auto key = dump_key_at(line.substr(i)); key && may_precede(line.substr(0, i))) return {i, *key};
  }
  return {};
}

/// Reads the lines of a log, each for the dump of its caller.
class Parser {
 public:
  explicit Parser(const std::string& source) : source_(source) {}

  void line(const LogLine& line) {
    const std::string_view text = line.text;
    const Start start = first_key(text);
    if (start.position == std::string_view::npos) {
      if (last_ != nullptr) last_->continuation(line);
      return;
    }
    const std::string caller = caller_id(text.substr(0, start.position));
    DumpBuilder*& current = open_[caller];
    if (start.key.kind == DumpKeyKind::segment_part && (current == nullptr || !current->in_segment())) return;
    if (starts_dump(start.key, current)) {
      if (current != nullptr) current->finish();
      builders_.push_back(std::make_unique<DumpBuilder>(source_));
      current = builders_.back().get();
    }
    last_ = current;
    current->begin_line(line);
    std::string_view rest = text.substr(start.position);
    std::optional<DumpKey> key = start.key;
    while (key) {
      rest.remove_prefix(key->length);
      rest = current->take(*key, rest);
      key = next_key(rest);
    }
  }

  std::vector<VmcbImage> result() {
    std::vector<VmcbImage> images;
    for (const auto& builder : builders_) {
      builder->finish();
      if (builder->has_heading() ? builder->fields() > 0 : builder->fields() >= least_fields)
        images.push_back(builder->image());
    }
    return images;
  }

 private:
  static bool starts_dump(const DumpKey& key, const DumpBuilder* current) {
    if (current == nullptr) return true;
    switch (key.kind) {
      case DumpKeyKind::vmrun_heading:
      case DumpKeyKind::failed_heading:
        return current->fields() > 0 || current->has_vmrun_heading();
      case DumpKeyKind::control_heading:
        return current->fields() > 0;
      // Without any heading, the first field of a dump tells them apart.
      case DumpKeyKind::field:
        return key.field == Field::cr_read && current->has(Field::cr_read);
      default:
        return false;
    }
  }

  /// The next key of the same line; what stands between belongs to nothing.
  static std::optional<DumpKey> next_key(std::string_view& rest) {
    std::size_t i = 0;
    while (i < rest.size()) {
      while (i < rest.size() && is_space(rest[i]))
        ++i;
      if (i == rest.size()) break;
      if (auto key = dump_key_at(rest.substr(i))) {
        rest.remove_prefix(i);
        return key;
      }
      while (i < rest.size() && !is_space(rest[i]))
        ++i;
    }
    rest = {};
    return std::nullopt;
  }

  const std::string& source_;
  std::vector<std::unique_ptr<DumpBuilder>> builders_;
  std::map<std::string, DumpBuilder*> open_;  ///< by caller ID
  DumpBuilder* last_ = nullptr;
};

}  // namespace

std::vector<VmcbImage> parse_kernel_dumps(std::string_view log, const std::string& source) {
  Parser parser(source);
  for (const LogLine& line : split_log(log))
    parser.line(line);
  std::vector<VmcbImage> images = parser.result();
  for (std::size_t i = 0; i < images.size(); ++i) {
    images[i].dump = i + 1;
    images[i].dumps = images.size();
  }
  return images;
}

}  // namespace svmsim::svm
