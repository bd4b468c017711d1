#include "svm/vmcb_dump/dump_keys.hpp"

#include <algorithm>
#include <array>

#include "svm/vmcb_dump/log_text.hpp"

namespace svmsim::svm {

namespace {

constexpr std::array<std::string_view, 10> segments{"es", "cs",   "ss",   "ds",   "fs",
                                                    "gs", "gdtr", "ldtr", "idtr", "tr"};
constexpr std::array<std::string_view, 4> parts{"s", "a", "l", "b"};
constexpr std::array<std::string_view, 22> more_registers{
    "rbx", "rcx", "rdx", "rsi",  "rdi", "rbp",     "r8",      "r9",      "r10",     "r11",   "r12",
    "r13", "r14", "r15", "xcr0", "xss", "pl0_ssp", "pl1_ssp", "pl2_ssp", "pl3_ssp", "u_cet", "sev_features"};

struct Renamed {
  std::string_view key;
  Field field;
};
/// Later names of old fields.
constexpr std::array<Renamed, 3> renamed{
    {{"misc_ctl", Field::nested_ctl}, {"misc_ctl2", Field::virt_ext}, {"ghcb_gpa", Field::ghcb_gpa}}};

bool starts_with(std::string_view text, std::string_view start) noexcept {
  return text.substr(0, start.size()) == start;
}

bool is_key_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || is_decimal_digit(c) || c == '_';
}

/// "VMCB 00..., last attempted VMRUN on CPU 7", perhaps after "SEV-SNP vCPU1 " or "SEV ".
std::optional<DumpKey> vmrun_heading_at(std::string_view text) noexcept {
  constexpr std::string_view tail = "last attempted VMRUN on CPU";
  constexpr std::array<std::string_view, 5> starts{"VMCB ", "SVM ", "SEV ", "SEV-ES ", "SEV-SNP "};
  const bool known = std::any_of(starts.begin(), starts.end(),
                                 [text](std::string_view start) { return starts_with(text, start); });
  if (!known || text.substr(0, 160).find(tail) == std::string_view::npos) return std::nullopt;
  DumpKey key;
  key.kind = DumpKeyKind::vmrun_heading;
  return key;  // the whole line is its value
}

std::optional<DumpKey> key_of(std::string_view word) noexcept {
  DumpKey key;
  for (const FieldInfo& info : dump_fields()) {
    if (!info.dump_key.empty() && info.dump_key == word) {
      key.field = info.field;
      return key;
    }
  }
  for (const Renamed& item : renamed) {
    if (item.key == word) {
      key.field = item.field;
      return key;
    }
  }
  if (word == "intercepts") {
    key.kind = DumpKeyKind::intercepts;
    return key;
  }
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (segments[i] != word) continue;
    key.kind = DumpKeyKind::segment;
    key.field = static_cast<Field>(index_of(Field::es_selector) + 4 * i);
    return key;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] != word) continue;
    key.kind = DumpKeyKind::segment_part;
    key.part = i;
    return key;
  }
  for (const std::string_view name : more_registers) {
    if (name != word) continue;
    key.kind = DumpKeyKind::more_register;
    key.name = name;
    return key;
  }
  return std::nullopt;
}

std::optional<DumpKey> with_length(std::optional<DumpKey> key, std::size_t length) noexcept {
  if (key) key->length = length;
  return key;
}

}  // namespace

std::optional<DumpKey> dump_key_at(std::string_view text) noexcept {
  if (text.empty()) return std::nullopt;
  if (text[0] == 'V' || text[0] == 'S' || text[0] == 'K' || text[0] == 'F') {
    struct Heading {
      std::string_view text;
      DumpKeyKind kind;
    };
    constexpr std::array<Heading, 4> headings{{{"VMCB Control Area:", DumpKeyKind::control_heading},
                                               {"VMCB State Save Area:", DumpKeyKind::save_heading},
                                               {"KVM: FAILED VMRUN WITH VMCB:", DumpKeyKind::failed_heading},
                                               {"FAILED VMRUN WITH VMCB:", DumpKeyKind::failed_heading}}};
    for (const Heading& heading : headings) {
      if (!starts_with(text, heading.text)) continue;
      DumpKey key;
      key.kind = heading.kind;
      key.length = heading.text.size();
      return key;
    }
    return vmrun_heading_at(text);
  }
  std::size_t end = 0;
  while (end < text.size() && end < 32 && is_key_character(text[end]))
    ++end;
  if (end == 0 || end == text.size()) return std::nullopt;
  if (text[end] == ':') return with_length(key_of(text.substr(0, end)), end + 1);
  // Keys of several words, and the one that the kernel prints without a colon.
  for (const std::string_view words :
       {std::string_view("pause filter count"), std::string_view("pause filter threshold"),
        std::string_view("intercepts (extended)")}) {
    if (starts_with(text, words) && text.substr(words.size(), 1) == ":")
      return with_length(key_of(words), words.size() + 1);
  }
  if (text.substr(0, end) == "sev_features" && is_space(text[end]))
    return with_length(key_of("sev_features"), end);
  return std::nullopt;
}

std::string_view dump_name(Field field) noexcept {
  const FieldInfo& info = field_info(field);
  return info.dump_key.empty() ? info.name : info.dump_key;
}

}  // namespace svmsim::svm
