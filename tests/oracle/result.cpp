#include "tests/oracle/result.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::oracle {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end != 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool number(std::string_view text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc{} && end == text.data() + text.size();
}

bool events(std::string_view text, std::map<unsigned, unsigned>& counts) {
  if (text == "-") return true;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    std::uint64_t vector = 0;
    std::uint64_t count = 0;
    if (colon == std::string_view::npos || !number(part.substr(0, colon), vector) ||
        !number(part.substr(colon + 1), count))
      return false;
    counts[static_cast<unsigned>(vector)] = static_cast<unsigned>(count);
  }
  return true;
}

struct Field {
  std::string_view name;
  std::uint64_t Result::*member;
};

/// In the order of the kernel's line.
constexpr std::array<Field, 20> fields{{{"exit_code", &Result::exit_code},
                                        {"info_1", &Result::info_1},
                                        {"info_2", &Result::info_2},
                                        {"exit_int_info", &Result::exit_int_info},
                                        {"event_inj", &Result::event_inj},
                                        {"next_rip", &Result::next_rip},
                                        {"int_ctl", &Result::int_ctl},
                                        {"int_state", &Result::int_state},
                                        {"rip", &Result::rip},
                                        {"rflags", &Result::rflags},
                                        {"rax", &Result::rax},
                                        {"cr0", &Result::cr0},
                                        {"cr3", &Result::cr3},
                                        {"cr4", &Result::cr4},
                                        {"efer", &Result::efer},
                                        {"dr6", &Result::dr6},
                                        {"dr7", &Result::dr7},
                                        {"cr2", &Result::cr2},
                                        {"cpl", &Result::cpl},
                                        {"host_events_in_guest", &Result::host_events_in_guest}}};

std::uint64_t sign_extended(std::uint64_t exit_code) {
  return exit_code <= 0xffffffff && (exit_code >> 31) != 0 ? exit_code | 0xffffffff00000000 : exit_code;
}

/// Which bits of EXITINFO1 and EXITINFO2 the exit defines (svm-hardware table of exit codes, APM vol.
/// 2, 15.8-15.14).
struct DefinedInfo {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};

DefinedInfo defined_info(std::uint64_t code, const Processor& processor) {
  namespace codes = svm::exit_code;
  constexpr std::uint64_t all = ~std::uint64_t{0};
  if (code >= codes::exception(0) && code <= codes::exception(31)) {
    constexpr std::uint64_t with_error_code =
        1U << 10 | 1U << 11 | 1U << 12 | 1U << 13 | 1U << 14 | 1U << 17 | 1U << 21 | 1U << 30;
    const std::uint64_t vector = code - codes::exception(0);
    return {((with_error_code >> vector) & 1) != 0 ? all : 0, vector == 14 ? all : 0};
  }
  // No segment: only INS and OUTS with decode assists have it.
  if (code == codes::ioio) return {all & ~std::uint64_t{0x1c00}, all};
  if (code == codes::msr) return {all, 0};
  if (code == codes::npf) return {all, all};
  const bool assisted = code <= 0x3f || code == codes::swint || code == codes::invlpg;
  if (assisted && processor.features.has(svm::Feature::decode_assists)) return {all, 0};
  return {};
}

std::uint64_t valid_event(std::uint64_t word) {
  if ((word & svm::event_inj::valid) == 0) return 0;
  return (word & svm::event_inj::error_valid) != 0 ? word : word & 0xffffffff;
}

}  // namespace

std::optional<std::pair<std::uint32_t, Result>> parse_result(std::string_view line) {
  const auto parts = split(line, ' ');
  if (parts.size() != fields.size() + 4 || parts[0] != "R") return std::nullopt;
  std::uint64_t id = 0;
  Result result;
  if (!number(parts[1], id)) return std::nullopt;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (!number(parts[i + 2], result.*fields[i].member)) return std::nullopt;
  }
  if (!events(parts[fields.size() + 2], result.guest_events) ||
      !events(parts[fields.size() + 3], result.host_events))
    return std::nullopt;
  return std::pair{static_cast<std::uint32_t>(id), result};
}

std::optional<Processor> parse_processor(std::string_view line) {
  const auto parts = split(line, ' ');
  constexpr std::size_t leaves = 5;
  if (parts.size() != 1 + 4 * leaves || parts[0] != "C") return std::nullopt;
  std::array<std::array<std::uint32_t, 4>, leaves> cpuid{};
  for (std::size_t i = 0; i < 4 * leaves; ++i) {
    std::uint64_t value = 0;
    if (!number(parts[i + 1], value)) return std::nullopt;
    cpuid[i / 4][i % 4] = static_cast<std::uint32_t>(value);
  }
  const auto& [svm_leaf, leaf_1, leaf_7, extended_1, extended_8] = cpuid;
  const auto has = [](std::uint32_t word, unsigned bit) { return ((word >> bit) & 1U) != 0; };

  Processor processor;
  processor.features = svm::FeatureSet::from_cpuid(svm_leaf);
  processor.limits.physical_address_bits = extended_8[0] & 0xff;
  processor.limits.long_mode = has(extended_1[3], 29);
  processor.has_xsave = has(leaf_1[2], 26);
  processor.has_monitor = has(leaf_1[2], 3);
  processor.has_rdtscp = has(extended_1[3], 27);
  // CR4 bits whose feature the processor lacks are reserved (APM vol. 2, 3.1.3).
  std::uint64_t cr4 = 0x7ff;
  const auto allow = [&cr4](bool present, unsigned bit) {
    if (present) cr4 |= std::uint64_t{1} << bit;
  };
  allow(has(leaf_7[2], 2), 11);   // UMIP
  allow(has(leaf_7[2], 16), 12);  // LA57
  allow(has(leaf_7[1], 0), 16);   // FSGSBASE
  allow(has(leaf_1[2], 17), 17);  // PCIDE
  allow(processor.has_xsave, 18);
  allow(has(leaf_7[1], 7), 20);   // SMEP
  allow(has(leaf_7[1], 20), 21);  // SMAP
  allow(has(leaf_7[2], 3), 22);   // PKE
  allow(has(leaf_7[2], 7), 23);   // CET
  allow(has(leaf_7[2], 31), 24);  // PKS
  processor.limits.cr4_reserved = ~cr4;
  return processor;
}

std::vector<std::string> differences(const Vector& vector, const Processor& processor, const Result& expected,
                                     const Result& seen) {
  std::vector<std::string> differing;
  const auto compare = [&differing](std::string_view name, std::uint64_t a, std::uint64_t b) {
    if (a != b) differing.emplace_back(name);
  };
  const auto compare_events = [&differing](std::string_view name, const auto& a, const auto& b) {
    if (a != b) differing.emplace_back(name);
  };
  const std::uint64_t code = sign_extended(expected.exit_code);
  compare("exit_code", code, sign_extended(seen.exit_code));
  compare("host_events_in_guest", expected.host_events_in_guest, seen.host_events_in_guest);
  compare_events("host_events", expected.host_events, seen.host_events);
  // Whether and how a failed VMRUN or a shutdown leaves the state, nobody says.
  if (code == svm::exit_code::invalid) return differing;
  compare_events("guest_events", expected.guest_events, seen.guest_events);
  if (code == svm::exit_code::shutdown) return differing;

  const DefinedInfo defined = defined_info(code, processor);
  compare("info_1", expected.info_1 & defined.first, seen.info_1 & defined.first);
  compare("info_2", expected.info_2 & defined.second, seen.info_2 & defined.second);
  compare("exit_int_info", valid_event(expected.exit_int_info), valid_event(seen.exit_int_info));
  compare("event_inj", expected.event_inj & svm::event_inj::valid, seen.event_inj & svm::event_inj::valid);
  if (processor.features.has(svm::Feature::nrips) && expected.next_rip != 0)
    compare("next_rip", expected.next_rip, seen.next_rip);
  // Bits that the processor does not have mean nothing, and nobody says whether they survive.
  std::uint64_t int_ctl = ~std::uint64_t{0};
  if (!processor.features.has(svm::Feature::vgif)) int_ctl &= ~std::uint64_t{svm::int_ctl::v_gif};
  compare("int_ctl", expected.int_ctl & int_ctl, seen.int_ctl & int_ctl);
  compare("int_state", expected.int_state, seen.int_state);
  compare("rip", vector.program.canonical(expected.rip), vector.program.canonical(seen.rip));
  // The arithmetic flags are nobody's business here; RF is not kept by every emulator.
  constexpr std::uint64_t system_flags = svm::rflags::trap | svm::rflags::interrupt | svm::rflags::iopl_mask |
                                         svm::rflags::nested_task | svm::rflags::virtual_8086;
  compare("rflags", expected.rflags & system_flags, seen.rflags & system_flags);
  compare("cr0", expected.cr0, seen.cr0);
  compare("cr3", expected.cr3, seen.cr3);
  compare("cr4", expected.cr4, seen.cr4);
  compare("efer", expected.efer, seen.efer);
  compare("dr7", expected.dr7, seen.dr7);
  compare("cpl", expected.cpl, seen.cpl);
  return differing;
}

std::string side_by_side(const Result& expected, const Result& seen,
                         const std::vector<std::string>& differing) {
  const auto mark = [&differing](std::string_view name) {
    return std::find(differing.begin(), differing.end(), name) != differing.end() ? '*' : ' ';
  };
  std::string text;
  for (const Field& field : fields) {
    const std::uint64_t a = expected.*field.member;
    const std::uint64_t b = seen.*field.member;
    if (a == b && mark(field.name) == ' ' && field.name != "exit_code" && field.name != "rip") continue;
    text += fmt::format("  {}{:<20} expected {:<18x} seen {:x}\n", mark(field.name), field.name, a, b);
  }
  const auto list = [](const std::map<unsigned, unsigned>& counts) {
    std::string result = counts.empty() ? "-" : "";
    for (const auto& [vector, count] : counts)
      result += fmt::format("{:02x}:{} ", vector, count);
    return result;
  };
  text += fmt::format("  {}{:<20} expected {:<18} seen {}\n", mark("guest_events"), "guest_events",
                      list(expected.guest_events), list(seen.guest_events));
  text += fmt::format("  {}{:<20} expected {:<18} seen {}\n", mark("host_events"), "host_events",
                      list(expected.host_events), list(seen.host_events));
  return text;
}

std::string outcome_name(const Result& result) {
  const std::uint64_t code = sign_extended(result.exit_code);
  if (code == svm::exit_code::invalid) return "invalid";
  return svm::exit_name_or_hex(code);
}

}  // namespace svmsim::oracle
