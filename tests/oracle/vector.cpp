#include "tests/oracle/vector.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include <fmt/format.h>

#include "svm/exit_code.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::oracle {

namespace {

using VmcbWords = std::array<std::uint64_t, sizeof(svm::Vmcb) / 8>;

VmcbWords words_of(const svm::Vmcb& vmcb) {
  VmcbWords words{};
  std::memcpy(words.data(), &vmcb, sizeof vmcb);
  return words;
}

template <typename T>
void append(std::vector<std::uint8_t>& bytes, const T& value) {
  const auto at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

svm::VmcbSegment segment(unsigned selector, unsigned attrib, std::uint32_t limit, std::uint64_t base) {
  return {static_cast<std::uint16_t>(selector), static_cast<std::uint16_t>(attrib), limit, base};
}

template <typename Map>
void flip(Map& map, const std::vector<std::uint32_t>& bits) {
  for (const std::uint32_t bit : bits)
    map.bytes()[bit >> 3] = static_cast<std::uint8_t>(map.bytes()[bit >> 3] ^ (1U << (bit & 7U)));
}

template <typename Map>
void patch_map(std::vector<layout::Patch>& patches, const Map& map, std::vector<std::uint32_t> bits,
               std::uint32_t base) {
  for (std::uint32_t& bit : bits)
    bit >>= 3;
  std::sort(bits.begin(), bits.end());
  bits.erase(std::unique(bits.begin(), bits.end()), bits.end());
  for (const std::uint32_t byte : bits)
    patches.push_back({base + byte, 1, map.bytes()[byte]});
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

}  // namespace

svm::Vmcb base_vmcb() {
  namespace bits = svm;
  svm::Vmcb vmcb{};
  svm::VmcbControl& control = vmcb.control;
  for (const auto which : {svm::Intercept::vmrun, svm::Intercept::vmmcall, svm::Intercept::shutdown})
    svm::set_intercept(control, which, true);
  control.asid = 1;
  control.iopm_base_pa = layout::io_map;
  control.msrpm_base_pa = layout::msr_map;
  control.nested_cr3 = layout::nested_tables;

  svm::VmcbSave& save = vmcb.save;
  save.es = save.ss = save.ds = segment(layout::data_selector, 0xc93, 0xffffffff, 0);
  save.cs = segment(layout::code_selector, 0xa9b, 0xffffffff, 0);
  save.gdtr = segment(0, 0, 0xfff, layout::gdt);
  save.idtr = segment(0, 0, 0xfff, layout::guest_idt);
  save.ldtr = segment(0, 0x82, 0, 0);
  save.tr = segment(layout::task_selector, 0x8b, 0x67, layout::tss);
  save.efer = bits::efer::svme | bits::efer::lme | bits::efer::lma | bits::efer::nxe;
  save.cr0 = bits::cr0::pg | bits::cr0::wp | 0x30 | bits::cr0::mp | bits::cr0::pe;  // ET and NE
  save.cr4 = bits::cr4::pae;
  save.cr3 = layout::page_tables;
  save.dr6 = 0xffff0ff0;
  save.dr7 = 0x400;
  save.rflags = bits::rflags::always_one;
  save.rip = layout::code;
  save.rsp = layout::guest_stack_top;
  save.g_pat = 0x0007040600070406;
  return vmcb;
}

void Vector::set_cpl3() {
  vmcb.save.cs = segment(layout::user_code_selector, 0xafb, 0xffffffff, 0);
  vmcb.save.ss = segment(layout::user_data_selector, 0xcf3, 0xffffffff, 0);
  vmcb.save.cpl = 3;
  // Below what the handlers push when they come from CPL 3.
  vmcb.save.rsp = layout::guest_stack_top - 0x1000;
}

svm::MsrPermissionMap msr_map_of(const Vector& vector) {
  svm::MsrPermissionMap map;
  map.fill(vector.msr_fill);
  flip(map, vector.msr_bits);
  return map;
}

svm::IoPermissionMap io_map_of(const Vector& vector) {
  svm::IoPermissionMap map;
  map.fill(vector.io_fill);
  flip(map, vector.io_bits);
  return map;
}

std::vector<std::uint8_t> pack(const std::vector<const Vector*>& vectors) {
  static const svm::Vmcb base = base_vmcb();
  static const VmcbWords base_words = words_of(base);
  std::vector<std::uint8_t> bytes;
  layout::FileHeader header{
      layout::magic, layout::version, static_cast<std::uint32_t>(vectors.size()), 0, {}};
  std::memcpy(header.vmcb, &base, sizeof base);
  append(bytes, header);

  std::vector<layout::Patch> patches;
  for (const Vector* vector : vectors) {
    patches.clear();
    const VmcbWords words = words_of(vector->vmcb);
    for (std::uint32_t i = 0; i < words.size(); ++i) {
      if (words[i] != base_words[i]) patches.push_back({layout::vmcb + 8 * i, 8, words[i]});
    }
    if (!vector->msr_bits.empty()) patch_map(patches, msr_map_of(*vector), vector->msr_bits, layout::msr_map);
    if (!vector->io_bits.empty()) patch_map(patches, io_map_of(*vector), vector->io_bits, layout::io_map);

    layout::RecordHeader record{};
    record.id = vector->id;
    record.code_size = static_cast<std::uint16_t>(vector->program.bytes().size());
    record.patches = static_cast<std::uint16_t>(patches.size());
    record.host_if = vector->host_if ? 1 : 0;
    if (vector->pending_intr) record.pending |= layout::pending_intr;
    if (vector->pending_nmi) record.pending |= layout::pending_nmi;
    record.ipi_vector = vector->ipi_vector;
    record.host_tpr = vector->host_tpr;
    record.msr_fill = vector->msr_fill ? 0xff : 0;
    record.io_fill = vector->io_fill ? 0xff : 0;
    append(bytes, record);
    for (const layout::Patch& patch : patches)
      append(bytes, patch);
    bytes.insert(bytes.end(), vector->program.bytes().begin(), vector->program.bytes().end());
    bytes.resize((bytes.size() + 7) & ~std::size_t{7});
  }
  return bytes;
}

std::set<std::string> tags_of(const Vector& vector) {
  std::set<std::string> tags;
  const auto tag = [&tags](bool on, std::string_view name) {
    if (on) tags.emplace(name);
  };
  for (const Instruction& instruction : vector.program.instructions()) {
    if (!instruction.label.empty()) tags.insert(fmt::format("action:{}", instruction.label));
  }
  const svm::VmcbControl& control = vector.vmcb.control;
  const svm::VmcbSave& save = vector.vmcb.save;
  for (std::size_t i = 0; i < svm::intercept_count; ++i) {
    const auto which = static_cast<svm::Intercept>(svm::exit_table()[i].code);
    if (vector.intercepts(which)) tags.insert("intercept:" + lower(svm::intercept_name(which)));
  }
  tag(save.cpl == 3, "cpl3");
  tag((control.nested_ctl & svm::nested_ctl::np_enable) != 0, "np");
  tag((save.rflags & svm::rflags::interrupt) != 0, "if");
  tag((control.int_state & svm::int_state::interrupt_shadow) != 0, "shadow");
  tag(vector.host_if, "host_if");
  tag(vector.pending_intr, "pending:intr");
  tag(vector.pending_nmi, "pending:nmi");
  const std::uint32_t word = control.int_ctl;
  tag((word & svm::int_ctl::v_irq) != 0, "v_irq");
  tag((word & svm::int_ctl::v_irq) != 0 && svm::int_ctl::above_tpr(word), "v_irq_above_tpr");
  tag((word & svm::int_ctl::v_irq) != 0 && svm::int_ctl::v_intr_prio(word) == svm::int_ctl::v_tpr(word),
      "v_irq_equals_tpr");
  tag((word & svm::int_ctl::v_ign_tpr) != 0, "v_ign_tpr");
  tag((word & svm::int_ctl::v_intr_masking) != 0, "v_intr_masking");
  tag((word & svm::int_ctl::v_gif_enable) != 0, "v_gif_enable");
  tag((word & svm::int_ctl::v_gif) != 0, "v_gif");
  tag((word & svm::int_ctl::v_nmi_enable) != 0, "v_nmi_enable");
  tag((word & svm::int_ctl::v_nmi) != 0, "v_nmi");
  tag((word & svm::int_ctl::avic_enable) != 0, "avic");
  tag(control.pause_filter_count != 0, "pause_count");
  if ((control.event_inj & svm::event_inj::valid) != 0) {
    const std::uint32_t type = svm::event_inj::type(control.event_inj);
    constexpr std::array<std::string_view, 8> names{"intr", "type1", "nmi",   "exception",
                                                    "soft", "type5", "type6", "type7"};
    tags.insert(fmt::format("inject:{}", names[type]));
    tags.insert(fmt::format("inject_vector:{}", svm::event_inj::vector(control.event_inj)));
  }
  static const svm::Vmcb base = base_vmcb();
  const auto changed_bits = [&tags](std::string_view name, std::uint64_t value, std::uint64_t base_word) {
    for (unsigned bit = 0; bit < 64; ++bit) {
      if (((value ^ base_word) >> bit & 1) != 0) tags.insert(fmt::format("{}:{}", name, bit));
    }
  };
  changed_bits("efer", save.efer, base.save.efer);
  changed_bits("cr0", save.cr0, base.save.cr0);
  changed_bits("cr3", save.cr3, base.save.cr3);
  changed_bits("cr4", save.cr4, base.save.cr4);
  changed_bits("dr6", save.dr6, base.save.dr6);
  changed_bits("dr7", save.dr7, base.save.dr7);
  tag(save.g_pat != base.save.g_pat, "g_pat");
  tag(control.iopm_base_pa != base.control.iopm_base_pa, "iopm_base");
  tag(control.msrpm_base_pa != base.control.msrpm_base_pa, "msrpm_base");
  tags.insert("family:" + vector.family);
  return tags;
}

std::string describe(const Vector& vector) {
  std::string text = fmt::format("  program: {}\n  ", vector.program.text());
  for (const std::string& tag : tags_of(vector))
    text += tag + ' ';
  static const VmcbWords base_words = words_of(base_vmcb());
  const VmcbWords words = words_of(vector.vmcb);
  text += "\n  VMCB:";
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != base_words[i]) text += fmt::format(" {:03x}={:x}", 8 * i, words[i]);
  }
  text += fmt::format("\n  MSR map {} flipped {}, I/O map {} flipped {}, IPI vector {:x}, host TPR {:x}\n",
                      vector.msr_fill ? 1 : 0, fmt::join(vector.msr_bits, " "), vector.io_fill ? 1 : 0,
                      fmt::join(vector.io_bits, " "), vector.ipi_vector, vector.host_tpr);
  return text;
}

}  // namespace svmsim::oracle
