#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "svm/vmcb_dump/vmcb_image.hpp"
#include "tests/svm/guest_fixture.hpp"

namespace svmsim::svm::test {

[[nodiscard]] inline std::string data_file(const std::string& name) {
  return std::string(SVMSIM_SOURCE_DIR "/tests/data/vmcb/") + name;
}

/// A VMCB as KVM sets one up for a 64-bit guest: VMRUN accepts it and nothing about it is odd.
[[nodiscard]] inline Vmcb kvm_vmcb() {
  Vmcb vmcb = long_mode_vmcb();
  VmcbControl& control = vmcb.control;
  control.intercepts = {0x0110'0010, 0x00ff'00ff, 0x0006'0042, 0xbdcc'8027, 0x0000'627f, 0};
  control.pause_filter_count = 3000;
  control.pause_filter_thresh = 128;
  control.int_ctl = int_ctl::v_intr_masking;
  control.exit_code = exit_code::hlt;
  VmcbSave& save = vmcb.save;
  save.ss.attrib = 0x0c93;
  save.tr.attrib = 0x008b;
  save.idtr.limit = 0xfff;
  save.cs.limit = 0xffff'ffff;
  return vmcb;
}

/// The lines of a dump of Linux 6.18, without any prefix; only the general registers are left out.
[[nodiscard]] inline std::vector<std::string> dump_lines(const Vmcb& vmcb) {
  std::vector<std::string> lines{"SVM vCPU2 VMCB 00000000deadbee0, last attempted VMRUN on CPU 5",
                                 "VMCB Control Area:"};
  const auto text_of = [&](const FieldInfo& info) {
    const std::uint64_t value = read_field(vmcb, info.field);
    switch (info.format) {
      case DumpFormat::hex4:
        return fmt::format("{:04x}", value);
      case DumpFormat::hex8:
        return fmt::format("{:08x}", value);
      case DumpFormat::hex16:
        return fmt::format("{:016x}", value);
      case DumpFormat::hex8_or_16:
        return fmt::format("{:08x}", value & 0xffff'ffff);
      default:
        break;
    }
    const unsigned bits = static_cast<unsigned>(8 * info.bytes);
    if (bits == 64) return fmt::format("{}", static_cast<std::int64_t>(value));
    return bits == 32 ? fmt::format("{}", static_cast<std::int32_t>(value)) : fmt::format("{}", value);
  };
  std::string half;
  for (const FieldInfo& info : dump_fields()) {
    if (info.field == Field::es_selector) lines.emplace_back("VMCB State Save Area:");
    if (info.group == FieldGroup::segments) {
      const std::size_t part = (index_of(info.field) - index_of(Field::es_selector)) % 4;
      constexpr const char* labels[] = {"s: ", "a: ", "l: ", "b: "};
      if (part == 0) half = fmt::format("{:<5}", std::string(info.name.substr(0, info.name.find('.'))) + ":");
      half += fmt::format(" {}{}", labels[part], text_of(info));
      if (part == 3) lines.push_back(half);
    } else if (info.field == Field::intercepts_3) {
      lines.push_back(fmt::format("{:<20}{:08x} {:08x}", "intercepts:", vmcb.control.intercepts[3],
                                  vmcb.control.intercepts[4]));
    } else if (info.field == Field::vmpl) {
      lines.push_back(fmt::format("vmpl: {}   cpl:  {}               efer:          {:016x}", vmcb.save.vmpl,
                                  vmcb.save.cpl, vmcb.save.efer));
    } else if (info.vintage <= DumpVintage::v6_18 && !info.dump_key.empty() && info.field != Field::cpl &&
               info.field != Field::efer) {
      lines.push_back(fmt::format("{:<20}{}", std::string(info.dump_key) + ":", text_of(info)));
    }
  }
  return lines;
}

[[nodiscard]] inline std::string joined(const std::vector<std::string>& lines, const std::string& prefix = "",
                                        const std::string& end = "\n") {
  std::string text;
  for (const std::string& line : lines)
    text += prefix + line + end;
  return text;
}

}  // namespace svmsim::svm::test
