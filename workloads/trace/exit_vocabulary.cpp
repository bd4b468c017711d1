#include "workloads/trace/exit_vocabulary.hpp"

#include <algorithm>
#include <array>

#include "svm/exit_code.hpp"
#include "workloads/trace/text_scanner.hpp"

namespace svmsim::workloads {

namespace {

struct VmxReason {
  std::uint8_t number;
  std::string_view name;
};

// The kernel's names (arch/x86/include/uapi/asm/vmx.h). An older name of the same reason follows its own.
constexpr std::array<VmxReason, 73> vmx_reasons{{
    {0, "EXCEPTION_NMI"},
    {1, "EXTERNAL_INTERRUPT"},
    {2, "TRIPLE_FAULT"},
    {3, "INIT_SIGNAL"},
    {4, "SIPI_SIGNAL"},
    {6, "OTHER_SMI"},
    {7, "INTERRUPT_WINDOW"},
    {7, "PENDING_INTERRUPT"},
    {8, "NMI_WINDOW"},
    {9, "TASK_SWITCH"},
    {10, "CPUID"},
    {12, "HLT"},
    {13, "INVD"},
    {14, "INVLPG"},
    {15, "RDPMC"},
    {16, "RDTSC"},
    {18, "VMCALL"},
    {19, "VMCLEAR"},
    {20, "VMLAUNCH"},
    {21, "VMPTRLD"},
    {22, "VMPTRST"},
    {23, "VMREAD"},
    {24, "VMRESUME"},
    {25, "VMWRITE"},
    {26, "VMOFF"},
    {27, "VMON"},
    {28, "CR_ACCESS"},
    {29, "DR_ACCESS"},
    {30, "IO_INSTRUCTION"},
    {31, "MSR_READ"},
    {32, "MSR_WRITE"},
    {33, "INVALID_STATE"},
    {34, "MSR_LOAD_FAIL"},
    {36, "MWAIT_INSTRUCTION"},
    {37, "MONITOR_TRAP_FLAG"},
    {39, "MONITOR_INSTRUCTION"},
    {40, "PAUSE_INSTRUCTION"},
    {41, "MCE_DURING_VMENTRY"},
    {43, "TPR_BELOW_THRESHOLD"},
    {44, "APIC_ACCESS"},
    {45, "EOI_INDUCED"},
    {46, "GDTR_IDTR"},
    {47, "LDTR_TR"},
    {48, "EPT_VIOLATION"},
    {49, "EPT_MISCONFIG"},
    {50, "INVEPT"},
    {51, "RDTSCP"},
    {52, "PREEMPTION_TIMER"},
    {53, "INVVPID"},
    {54, "WBINVD"},
    {55, "XSETBV"},
    {56, "APIC_WRITE"},
    {57, "RDRAND"},
    {58, "INVPCID"},
    {59, "VMFUNC"},
    {60, "ENCLS"},
    {61, "RDSEED"},
    {62, "PML_FULL"},
    {63, "XSAVES"},
    {64, "XRSTORS"},
    {67, "UMWAIT"},
    {68, "TPAUSE"},
    {74, "BUS_LOCK"},
    {75, "NOTIFY"},
    {76, "SEAMCALL"},
    {77, "TDCALL"},
    {84, "MSR_READ_IMM"},
    {85, "MSR_WRITE_IMM"},
    // bcc's spellings.
    {12, "HALT"},
    {31, "RDMSR"},
    {32, "WRMSR"},
    {40, "PAUSE"},
}};

constexpr std::array<std::string_view, 31> arm64_names{
    "IRQ",      "WFx",         "CP15_32",     "CP15_64",     "CP14_MR",  "CP14_LS",  "FP_ASIMD", "CP10_ID",
    "PAC",      "CP14_64",     "SVC64",       "HVC64",       "SMC64",    "SYS64",    "SVE",      "IMP_DEF",
    "IABT_LOW", "IABT_CUR",    "PC_ALIGN",    "DABT_LOW",    "DABT_CUR", "SP_ALIGN", "FP_EXC32", "FP_EXC64",
    "SERROR",   "BREAKPT_LOW", "SOFTSTP_LOW", "WATCHPT_LOW", "BRK64",    "HVC32",    "SMC32"};

constexpr std::array<std::string_view, 22> riscv_names{"INST_GUEST_PAGE_FAULT",
                                                       "LOAD_GUEST_PAGE_FAULT",
                                                       "STORE_GUEST_PAGE_FAULT",
                                                       "VIRTUAL_INST_FAULT",
                                                       "SUPERVISOR_SYSCALL",
                                                       "HYPERVISOR_SYSCALL",
                                                       "MACHINE_SYSCALL",
                                                       "USER_SYSCALL",
                                                       "LOAD_ACCESS",
                                                       "INST_ACCESS",
                                                       "STORE_ACCESS",
                                                       "INST_MISALIGNED",
                                                       "LOAD_MISALIGNED",
                                                       "STORE_MISALIGNED",
                                                       "INST_ILLEGAL",
                                                       "INST_PAGE_FAULT",
                                                       "LOAD_PAGE_FAULT",
                                                       "STORE_PAGE_FAULT",
                                                       "SUPERVISOR_SOFT",
                                                       "SUPERVISOR_TIMER",
                                                       "SUPERVISOR_EXTERNAL",
                                                       "VIRTUAL_SUPERVISOR_SOFT"};

std::optional<std::uint64_t> vmx_code(std::string_view name) {
  for (const VmxReason& reason : vmx_reasons) {
    if (reason.name == name) return vmx_exit_base + reason.number;
  }
  return std::nullopt;
}

template <std::size_t size>
bool contains(const std::array<std::string_view, size>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_flag_words(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ' ' || c == '|';
  });
}

/// The manual's SVM names, which trace-cmd's plugin prints behind "EXIT_" ("IOIO", "EXCP_GP").
std::optional<std::uint64_t> plugin_code(std::string_view name) {
  for (const svm::ExitInfo& info : svm::exit_table()) {
    if (info.manual_name == name) return info.code;
  }
  // Spellings of the plugin that are not the manual's.
  struct Alias {
    std::string_view name;
    std::uint64_t code;
  };
  constexpr std::array<Alias, 10> aliases{{{"IOIO", svm::exit_code::ioio},
                                           {"MSR", svm::exit_code::msr},
                                           {"CR0_SEL_WRITE", 0x65},
                                           {"SWINT", 0x75},
                                           {"TASK_SWITCH", 0x7d},
                                           {"FERR_FREEZE", 0x7e},
                                           {"ERR", UINT64_MAX},
                                           {"AVIC_INCOMPLETE_IPI", 0x401},
                                           {"AVIC_UNACCELERATED_ACCESS", 0x402},
                                           {"IDLE_HLT", svm::exit_code::idle_hlt}}};
  for (const Alias& alias : aliases) {
    if (alias.name == name) return alias.code;
  }
  if (name.substr(0, 5) == "EXCP_") {
    const std::string kernel = std::string{name.substr(5)} + " excp";
    return svm::exit_code_of(kernel);
  }
  return std::nullopt;
}

std::optional<KnownExit> numbered(std::uint64_t number, Isa isa) {
  if (isa == Isa::svm) return KnownExit{Isa::svm, number, false};
  if (isa == Isa::vmx && !vmx_reason_name(number & 0xffffU).empty()) {
    return KnownExit{Isa::vmx, vmx_exit_base + (number & 0xffffU), false};
  }
  return std::nullopt;
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::svm:
      return "svm";
    case Isa::vmx:
      return "vmx";
    case Isa::arm64:
      return "arm64";
    case Isa::riscv:
      return "riscv";
    case Isa::unknown:
      break;
  }
  return "unknown";
}

std::optional<Isa> isa_of_name(std::string_view name) {
  for (const Isa isa : {Isa::unknown, Isa::svm, Isa::vmx, Isa::arm64, Isa::riscv}) {
    if (isa_name(isa) == name) return isa;
  }
  return std::nullopt;
}

std::string_view vmx_reason_name(std::uint64_t reason) {
  for (const VmxReason& one : vmx_reasons) {
    if (one.number == reason) return one.name;
  }
  return {};
}

std::optional<KnownExit> known_exit(std::string_view name, Isa numbers) {
  if (name.empty() || name.size() > 128) return std::nullopt;
  if (const auto code = svm::exit_code_of(name)) return KnownExit{Isa::svm, *code, false};
  if (const auto code = vmx_code(name)) return KnownExit{Isa::vmx, *code, false};
  if (contains(arm64_names, name)) return KnownExit{Isa::arm64, 0, false};
  if (contains(riscv_names, name)) return KnownExit{Isa::riscv, 0, false};
  constexpr std::string_view bcc = "EXIT_REASON_";
  if (starts_with(name, bcc)) {
    const auto code = vmx_code(name.substr(bcc.size()));
    return code ? std::optional{KnownExit{Isa::vmx, *code, false}} : std::nullopt;
  }
  constexpr std::string_view plugin = "EXIT_";
  if (starts_with(name, plugin)) {
    const auto code = plugin_code(name.substr(plugin.size()));
    return code ? std::optional{KnownExit{Isa::svm, *code, false}} : std::nullopt;
  }
  TextScanner scan(name);
  std::uint64_t number = 0;
  if (scan.hex_0x(number) && scan.at_end()) return numbered(number, numbers);
  scan = TextScanner(name);
  // trace-cmd's plugin prints a code that it has no name for in decimal.
  if (scan.literal("UNKNOWN (") && scan.decimal(number) && scan.literal(")") && scan.at_end()) {
    return numbered(number, numbers);
  }
  // VMX prints the high bits of the reason as words behind it.
  const std::size_t blank = name.find(' ');
  if (blank != std::string_view::npos && is_flag_words(name.substr(blank + 1))) {
    if (const auto code = vmx_code(name.substr(0, blank))) return KnownExit{Isa::vmx, *code, true};
  }
  return std::nullopt;
}

}  // namespace svmsim::workloads
