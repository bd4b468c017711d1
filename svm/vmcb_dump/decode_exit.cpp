#include <array>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "svm/vmcb_bits.hpp"
#include "svm/vmcb_dump/decode.hpp"

namespace svmsim::svm {

namespace {

using Details = std::vector<std::string>;

bool bit(std::uint64_t value, unsigned number) noexcept {
  return ((value >> number) & 1U) != 0;
}

void npf(std::uint64_t info_1, std::uint64_t info_2, Details& out) {
  const char* access = "read";
  if (bit(info_1, 4)) {
    access = "instruction fetch";
  } else if (bit(info_1, 1)) {
    access = "write";
  }
  out.push_back(fmt::format("{} of guest physical address {:#x}", access, info_2));
  out.emplace_back(bit(info_1, 0)
                       ? "the page is present in the nested tables, its permissions forbid the access"
                       : "the page is not present in the nested tables");
  if (bit(info_1, 2)) out.emplace_back("user access, as all guest accesses are");
  if (bit(info_1, 3)) out.emplace_back("reserved bits are set in the nested page tables");
  if (bit(info_1, 6)) out.emplace_back("shadow stack access");
  if (bit(info_1, 32)) out.emplace_back("while translating the guest's final physical address");
  if (bit(info_1, 33)) out.emplace_back("while walking the guest's page tables");
  if (bit(info_1, 37)) out.emplace_back("the guest page is a supervisor shadow stack page");
}

void ioio(std::uint64_t info_1, std::uint64_t info_2, Details& out) {
  const bool in = bit(info_1, 0);
  const bool string = bit(info_1, 2);
  const char* name = string ? (in ? "INS" : "OUTS") : (in ? "IN" : "OUT");
  const unsigned bytes = static_cast<unsigned>((info_1 >> 4) & 7U);
  out.push_back(fmt::format(
      "{}{} port {:#x}, {}", bit(info_1, 3) ? "REP " : "", name, (info_1 >> 16) & 0xffff,
      bytes == 1 || bytes == 2 || bytes == 4 ? fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s")
                                             : "no valid operand size"));
  if (string) {
    constexpr std::array<const char*, 8> segments{"ES", "CS", "SS", "DS", "FS", "GS", "reserved", "reserved"};
    out.push_back(fmt::format("segment {}", segments[(info_1 >> 10) & 7U]));
  }
  for (unsigned i = 0; i < 3; ++i) {
    if (bit(info_1, 7 + i)) out.push_back(fmt::format("{}-bit addresses", 16U << i));
  }
  out.push_back(fmt::format("rIP after the instruction {:#x}", info_2));
}

void task_switch(std::uint64_t info_1, std::uint64_t info_2, Details& out) {
  out.push_back(fmt::format("to TSS selector {:#x}", info_1 & 0xffff));
  const char* cause = "by a call, an interrupt or an exception";
  if (bit(info_2, 36)) {
    cause = "by IRET";
  } else if (bit(info_2, 38)) {
    cause = "by a far jump";
  }
  out.emplace_back(cause);
  if (bit(info_2, 44)) out.push_back(fmt::format("error code {:#x}", info_2 & 0xffff'ffff));
  if (bit(info_2, 48)) out.emplace_back("RFLAGS.RF was 1");
}

void incomplete_ipi(std::uint64_t info_1, std::uint64_t info_2, Details& out) {
  constexpr std::array<const char*, 6> causes{"invalid interrupt type: not fixed, or level-triggered",
                                              "a target is not running; all IRR bits are set",
                                              "invalid target: not in the table",
                                              "invalid backing page pointer in the table",
                                              "invalid vector, below 16",
                                              "not accelerated (Secure AVIC: other than a self-IPI)"};
  const std::uint64_t id = info_2 >> 32;
  out.push_back(id < causes.size() ? fmt::format("id {}: {}", id, causes[id])
                                   : fmt::format("unknown id {}", id));
  if (id >= 1 && id <= 3) out.push_back(fmt::format("table index {}", info_2 & 0xfff));
  constexpr std::array<const char*, 8> modes{"fixed", "lowest priority", "SMI",   "reserved", "NMI",
                                             "INIT",  "STARTUP",         "ExtINT"};
  constexpr std::array<const char*, 4> shorthands{"no shorthand", "to itself", "to all", "to all but itself"};
  out.push_back(fmt::format("ICR {:#x}: vector {:#x}, {}, {}, {} destination {:#x}", info_1, info_1 & 0xff,
                            modes[(info_1 >> 8) & 7U], shorthands[(info_1 >> 18) & 3U],
                            bit(info_1, 11) ? "logical" : "physical", info_1 >> 32));
}

void no_acceleration(std::uint64_t info_1, std::uint64_t info_2, Details& out) {
  const bool write = bit(info_1, 32);
  const std::uint64_t offset = info_1 & 0xff0;
  out.push_back(fmt::format("{} of APIC register {:#x}", write ? "write" : "read", offset));
  if (write && offset == 0xb0)
    out.push_back(fmt::format("EOI of level-triggered vector {:#x}", info_2 & 0xff));
}

void control_register(std::uint64_t code, std::uint64_t info_1, Details& out) {
  const bool write = code >= 0x10;
  const auto number = code & 0xf;
  if (bit(info_1, 63)) {
    out.push_back(
        fmt::format("MOV {} CR{}, general register {}", write ? "to" : "from", number, info_1 & 0xf));
  } else if (number == 0) {
    out.emplace_back(write ? "LMSW or CLTS; or MOV, on a processor without decode assists"
                           : "SMSW; or MOV, on a processor without decode assists");
  }
}

void exception(std::uint64_t code, std::uint64_t info_1, std::uint64_t info_2, Details& out) {
  const auto vector = static_cast<std::uint8_t>(code - exit_code::exception_0);
  out.push_back(exception_name(vector));
  if (vector == exception_vector::page_fault) {
    out.push_back(fmt::format("{} of linear address {:#x} by {} code, page {}",
                              bit(info_1, 4) ? "instruction fetch" : (bit(info_1, 1) ? "write" : "read"),
                              info_2, bit(info_1, 2) ? "user" : "supervisor",
                              bit(info_1, 0) ? "present" : "not present"));
  }
  if ((vector >= 10 && vector <= 14) || vector == 17 || vector == 30 || vector == 21)
    out.push_back(fmt::format("error code {:#x}", info_1));
}

void smi(std::uint64_t info_1, std::uint64_t info_2, Details& out) {
  out.emplace_back(bit(info_1, 0) ? "external SMI" : "internal SMI: an I/O trap");
  if (bit(info_1, 33))
    out.push_back(
        fmt::format("I/O information {:#x}, rIP of the I/O instruction {:#x}", info_1 >> 32, info_2));
}

void decode(std::uint64_t code, std::uint64_t info_1, std::uint64_t info_2, Details& out) {
  using namespace exit_code;
  if (code < read_dr0) return control_register(code, info_1, out);
  if (code < exception_0) {
    out.push_back(fmt::format("general register {} (with decode assists)", info_1 & 0xf));
    return;
  }
  if (code < intr) return exception(code, info_1, info_2, out);
  switch (code) {
    case exit_code::smi:
      return svm::smi(info_1, info_2, out);
    case swint:
      out.push_back(fmt::format("INT {:#x} (with decode assists)", info_1 & 0xff));
      return;
    case invlpg:
      out.push_back(fmt::format("linear address {:#x} (with decode assists)", info_1));
      return;
    case exit_code::ioio:
      return svm::ioio(info_1, info_2, out);
    case msr:
      out.emplace_back(info_1 == 0 ? "RDMSR" : "WRMSR");
      return;
    case exit_code::task_switch:
      return svm::task_switch(info_1, info_2, out);
    case exit_code::npf:
      return svm::npf(info_1, info_2, out);
    case avic_incomplete_ipi:
      return incomplete_ipi(info_1, info_2, out);
    case avic_noaccel:
      return no_acceleration(info_1, info_2, out);
    case efer_write_trap:
      out.push_back(fmt::format("new EFER {:#x}", info_1));
      return;
    default:
      break;
  }
  if (code >= 0x90 && code < 0xa0) out.push_back(fmt::format("new CR{} {:#x}", code - 0x90, info_1));
}

}  // namespace

DecodedExit decode_exit(const VmcbImage& image) {
  if (!image.has(Field::exit_code)) return {};
  const VmcbControl& control = image.page.control;
  DecodedExit result;
  result.code = fmt::format("{:#x}", control.exit_code);
  const ExitInfo* info = find_exit(control.exit_code);
  if (info == nullptr) {
    result.name = "unknown";
    result.meaning = control.exit_code >= 0xf000'0000 && control.exit_code <= 0xffff'ffff
                         ? "reserved for the hypervisor's own use"
                         : "no exit code of the manual";
    return result;
  }
  result.name = fmt::format("VMEXIT_{}", info->manual_name);
  result.kernel = info->kernel_name;
  result.meaning = info->meaning;
  if (image.has(Field::exit_info_1) && image.has(Field::exit_info_2))
    decode(control.exit_code, control.exit_info_1, control.exit_info_2, result.details);
  if (image.has(Field::exit_int_info) && (control.exit_int_info & event_inj::valid) != 0) {
    const std::uint32_t error = image.has(Field::exit_int_info_err) ? control.exit_int_info_err : 0;
    result.details.push_back(
        fmt::format("interrupted the delivery of: {}", describe_event(control.exit_int_info, error)));
  }
  return result;
}

}  // namespace svmsim::svm
