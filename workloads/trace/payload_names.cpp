#include "workloads/trace/payload_names.hpp"

#include <array>

namespace svmsim::workloads {

namespace {

constexpr std::array<std::string_view, 8> delivery_modes{"Fixed", "LowPrio", "SMI",  "Res3",
                                                         "NMI",   "INIT",    "SIPI", "ExtINT"};
constexpr std::array<std::string_view, 4> shorthands{"dst", "self", "all", "all-but-self"};
constexpr std::array<std::string_view, 20> exceptions{"#DE", "#DB", "",    "#BP", "#OF", "#BR", "#UD",
                                                      "#NM", "#DF", "",    "#TS", "#NP", "#SS", "#GP",
                                                      "#PF", "",    "#MF", "#AC", "#MC", ""};
constexpr std::array<std::string_view, 31> userspace_exits{"KVM_EXIT_UNKNOWN",
                                                           "KVM_EXIT_EXCEPTION",
                                                           "KVM_EXIT_IO",
                                                           "KVM_EXIT_HYPERCALL",
                                                           "KVM_EXIT_DEBUG",
                                                           "KVM_EXIT_HLT",
                                                           "KVM_EXIT_MMIO",
                                                           "KVM_EXIT_IRQ_WINDOW_OPEN",
                                                           "KVM_EXIT_SHUTDOWN",
                                                           "KVM_EXIT_FAIL_ENTRY",
                                                           "KVM_EXIT_INTR",
                                                           "KVM_EXIT_SET_TPR",
                                                           "KVM_EXIT_TPR_ACCESS",
                                                           "KVM_EXIT_S390_SIEIC",
                                                           "KVM_EXIT_S390_RESET",
                                                           "KVM_EXIT_DCR",
                                                           "KVM_EXIT_NMI",
                                                           "KVM_EXIT_INTERNAL_ERROR",
                                                           "KVM_EXIT_OSI",
                                                           "KVM_EXIT_PAPR_HCALL",
                                                           "KVM_EXIT_S390_UCONTROL",
                                                           "KVM_EXIT_WATCHDOG",
                                                           "KVM_EXIT_S390_TSCH",
                                                           "KVM_EXIT_EPR",
                                                           "KVM_EXIT_SYSTEM_EVENT",
                                                           "KVM_EXIT_S390_STSI",
                                                           "KVM_EXIT_IOAPIC_EOI",
                                                           "KVM_EXIT_HYPERV",
                                                           "KVM_EXIT_ARM_NISV",
                                                           "KVM_EXIT_X86_RDMSR",
                                                           "KVM_EXIT_X86_WRMSR"};

template <std::size_t size>
std::optional<unsigned> index_of(const std::array<std::string_view, size>& table, std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (std::size_t i = 0; i < size; ++i) {
    if (table[i] == name) return static_cast<unsigned>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view delivery_mode_name(unsigned mode) {
  return delivery_modes[mode & 7U];
}
std::optional<unsigned> delivery_mode_of(std::string_view name) {
  return index_of(delivery_modes, name);
}

std::string_view mmio_type_name(unsigned type) {
  constexpr std::array<std::string_view, 3> types{"unsatisfied-read", "read", "write"};
  return type < types.size() ? types[type] : "";
}

std::string_view shorthand_name(unsigned shorthand) {
  return shorthands[shorthand & 3U];
}
std::optional<unsigned> shorthand_of(std::string_view name) {
  return index_of(shorthands, name);
}

std::string_view exception_name(unsigned vector) {
  return vector < exceptions.size() ? exceptions[vector] : std::string_view{};
}
std::optional<unsigned> exception_of(std::string_view name) {
  return index_of(exceptions, name);
}

std::string_view userspace_exit_name(std::uint64_t reason) {
  return reason < userspace_exits.size() ? userspace_exits[reason] : std::string_view{};
}

std::string_view apicv_inhibit_name(unsigned bit) {
  constexpr std::array<std::string_view, apicv_inhibit_count> reasons{"DISABLED",
                                                                      "HYPERV",
                                                                      "ABSENT",
                                                                      "BLOCKIRQ",
                                                                      "PHYSICAL_ID_ALIASED",
                                                                      "APIC_ID_MODIFIED",
                                                                      "APIC_BASE_MODIFIED",
                                                                      "NESTED",
                                                                      "IRQWIN",
                                                                      "PIT_REINJ",
                                                                      "SEV",
                                                                      "LOGICAL_ID_ALIASED",
                                                                      "PHYSICAL_ID_TOO_BIG",
                                                                      "X2APIC"};
  return bit < reasons.size() ? reasons[bit] : std::string_view{};
}

std::uint64_t pack_letters(std::string_view letters) {
  std::uint64_t packed = 0;
  for (std::size_t i = 0; i < letters.size() && i < 8; ++i) {
    packed |= std::uint64_t{static_cast<unsigned char>(letters[i])} << (8 * i);
  }
  return packed;
}

std::string unpack_letters(std::uint64_t packed) {
  std::string letters;
  for (; packed != 0; packed >>= 8)
    letters += static_cast<char>(packed & 0xffU);
  return letters;
}

}  // namespace svmsim::workloads
