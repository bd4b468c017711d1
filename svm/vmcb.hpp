#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace svmsim::svm {

/// A segment register as the state save area holds it. `attrib` is descriptor bits 55:52 and 47:40 side by
/// side: type 3:0, S 4, DPL 6:5, P 7, AVL 8, L 9, D/B 10, G 11.
struct VmcbSegment {
  std::uint16_t selector = 0;
  std::uint16_t attrib = 0;
  std::uint32_t limit = 0;
  std::uint64_t base = 0;
};

/// VMCB control area, bytes 000h-3FFh. APM vol. 2, appendix B, table B-1; field names as in Linux' struct
/// vmcb_control_area (arch/x86/include/asm/svm.h). Fields that Linux names after their offset are
/// `reserved_*`.
struct VmcbControl {
  std::array<std::uint32_t, 6> intercepts{};  ///< bit index = 32 * word + bit = exit code (svm/intercept.hpp)
  std::array<std::uint8_t, 36> reserved_018{};
  std::uint16_t pause_filter_thresh = 0;  ///< cycles
  std::uint16_t pause_filter_count = 0;
  std::uint64_t iopm_base_pa = 0;
  std::uint64_t msrpm_base_pa = 0;
  std::uint64_t tsc_offset = 0;
  std::uint32_t asid = 0;
  std::uint8_t tlb_ctl = 0;
  std::uint8_t erap_ctl = 0;
  std::array<std::uint8_t, 2> reserved_05e{};
  std::uint32_t int_ctl = 0;     ///< svm/vmcb_bits.hpp, namespace int_ctl
  std::uint32_t int_vector = 0;  ///< V_INTR_VECTOR in bits 7:0
  std::uint32_t int_state = 0;   ///< namespace int_state
  std::array<std::uint8_t, 4> reserved_06c{};
  std::uint64_t exit_code = 0;
  std::uint64_t exit_info_1 = 0;
  std::uint64_t exit_info_2 = 0;
  std::uint32_t exit_int_info = 0;  ///< namespace event_inj
  std::uint32_t exit_int_info_err = 0;
  std::uint64_t nested_ctl = 0;  ///< namespace nested_ctl
  std::uint64_t avic_vapic_bar = 0;
  std::uint64_t ghcb_gpa = 0;
  std::uint32_t event_inj = 0;  ///< namespace event_inj
  std::uint32_t event_inj_err = 0;
  std::uint64_t nested_cr3 = 0;
  std::uint64_t virt_ext = 0;  ///< namespace virt_ext
  std::uint32_t clean = 0;     ///< namespace clean
  std::uint32_t reserved_0c4 = 0;
  std::uint64_t next_rip = 0;
  std::uint8_t insn_len = 0;
  std::array<std::uint8_t, 15> insn_bytes{};
  std::uint64_t avic_backing_page = 0;
  std::uint64_t reserved_0e8 = 0;
  std::uint64_t avic_logical_id = 0;
  std::uint64_t avic_physical_id = 0;  ///< table pointer, AVIC_PHYSICAL_MAX_INDEX in bits 11:0
  std::uint64_t reserved_100 = 0;
  std::uint64_t vmsa_pa = 0;
  std::uint64_t vmgexit_rax = 0;
  std::uint8_t vmgexit_cpl = 0;
  std::array<std::uint8_t, 7> reserved_119{};
  std::uint16_t bus_lock_counter = 0;
  std::array<std::uint8_t, 18> reserved_122{};
  std::uint32_t update_irr = 0;
  std::uint64_t allowed_sev_features = 0;
  std::uint64_t guest_sev_features = 0;
  std::uint64_t reserved_148 = 0;
  std::array<std::uint8_t, 32> requested_irr{};
  std::array<std::uint8_t, 624> reserved_170{};
  std::array<std::uint8_t, 32> reserved_sw{};  ///< for the hypervisor; the processor never touches it
};

/// VMCB state save area of a guest without SEV-ES, bytes 400h-FFFh. Names as in Linux' struct vmcb_save_area.
struct VmcbSave {
  VmcbSegment es, cs, ss, ds, fs, gs, gdtr, ldtr, idtr, tr;
  std::array<std::uint8_t, 42> reserved_0a0{};
  std::uint8_t vmpl = 0;
  std::uint8_t cpl = 0;
  std::array<std::uint8_t, 4> reserved_0cc{};
  std::uint64_t efer = 0;
  std::array<std::uint8_t, 112> reserved_0d8{};
  std::uint64_t cr4 = 0;
  std::uint64_t cr3 = 0;
  std::uint64_t cr0 = 0;
  std::uint64_t dr7 = 0;
  std::uint64_t dr6 = 0;
  std::uint64_t rflags = 0;
  std::uint64_t rip = 0;
  std::array<std::uint8_t, 88> reserved_180{};
  std::uint64_t rsp = 0;
  std::uint64_t s_cet = 0;
  std::uint64_t ssp = 0;
  std::uint64_t isst_addr = 0;
  std::uint64_t rax = 0;
  std::uint64_t star = 0;
  std::uint64_t lstar = 0;
  std::uint64_t cstar = 0;
  std::uint64_t sfmask = 0;
  std::uint64_t kernel_gs_base = 0;
  std::uint64_t sysenter_cs = 0;
  std::uint64_t sysenter_esp = 0;
  std::uint64_t sysenter_eip = 0;
  std::uint64_t cr2 = 0;
  std::array<std::uint8_t, 32> reserved_248{};
  std::uint64_t g_pat = 0;
  std::uint64_t dbgctl = 0;
  std::uint64_t br_from = 0;
  std::uint64_t br_to = 0;
  std::uint64_t last_excp_from = 0;
  std::uint64_t last_excp_to = 0;
  std::array<std::uint8_t, 72> reserved_298{};
  std::uint64_t spec_ctrl = 0;
  std::array<std::uint8_t, 2328> reserved_2e8{};
};

/// One Virtual Machine Control Block: a 4 KiB page that can be read and written as bytes (APM vol.
/// 2, 15.5.1).
struct Vmcb {
  VmcbControl control;
  VmcbSave save;
};

// The layout is the contract with real VMCB pages: one check per field.
static_assert(std::is_standard_layout_v<Vmcb> && std::is_trivially_copyable_v<Vmcb>);
static_assert(sizeof(VmcbSegment) == 0x10 && sizeof(VmcbControl) == 0x400 && sizeof(VmcbSave) == 0xc00);
static_assert(sizeof(Vmcb) == 0x1000);
static_assert(offsetof(Vmcb, control) == 0x000);
static_assert(offsetof(Vmcb, save) == 0x400);

static_assert(offsetof(VmcbSegment, selector) == 0x0);
static_assert(offsetof(VmcbSegment, attrib) == 0x2);
static_assert(offsetof(VmcbSegment, limit) == 0x4);
static_assert(offsetof(VmcbSegment, base) == 0x8);

static_assert(offsetof(VmcbControl, intercepts) == 0x000);
static_assert(offsetof(VmcbControl, reserved_018) == 0x018);
static_assert(offsetof(VmcbControl, pause_filter_thresh) == 0x03c);
static_assert(offsetof(VmcbControl, pause_filter_count) == 0x03e);
static_assert(offsetof(VmcbControl, iopm_base_pa) == 0x040);
static_assert(offsetof(VmcbControl, msrpm_base_pa) == 0x048);
static_assert(offsetof(VmcbControl, tsc_offset) == 0x050);
static_assert(offsetof(VmcbControl, asid) == 0x058);
static_assert(offsetof(VmcbControl, tlb_ctl) == 0x05c);
static_assert(offsetof(VmcbControl, erap_ctl) == 0x05d);
static_assert(offsetof(VmcbControl, reserved_05e) == 0x05e);
static_assert(offsetof(VmcbControl, int_ctl) == 0x060);
static_assert(offsetof(VmcbControl, int_vector) == 0x064);
static_assert(offsetof(VmcbControl, int_state) == 0x068);
static_assert(offsetof(VmcbControl, reserved_06c) == 0x06c);
static_assert(offsetof(VmcbControl, exit_code) == 0x070);
static_assert(offsetof(VmcbControl, exit_info_1) == 0x078);
static_assert(offsetof(VmcbControl, exit_info_2) == 0x080);
static_assert(offsetof(VmcbControl, exit_int_info) == 0x088);
static_assert(offsetof(VmcbControl, exit_int_info_err) == 0x08c);
static_assert(offsetof(VmcbControl, nested_ctl) == 0x090);
static_assert(offsetof(VmcbControl, avic_vapic_bar) == 0x098);
static_assert(offsetof(VmcbControl, ghcb_gpa) == 0x0a0);
static_assert(offsetof(VmcbControl, event_inj) == 0x0a8);
static_assert(offsetof(VmcbControl, event_inj_err) == 0x0ac);
static_assert(offsetof(VmcbControl, nested_cr3) == 0x0b0);
static_assert(offsetof(VmcbControl, virt_ext) == 0x0b8);
static_assert(offsetof(VmcbControl, clean) == 0x0c0);
static_assert(offsetof(VmcbControl, reserved_0c4) == 0x0c4);
static_assert(offsetof(VmcbControl, next_rip) == 0x0c8);
static_assert(offsetof(VmcbControl, insn_len) == 0x0d0);
static_assert(offsetof(VmcbControl, insn_bytes) == 0x0d1);
static_assert(offsetof(VmcbControl, avic_backing_page) == 0x0e0);
static_assert(offsetof(VmcbControl, reserved_0e8) == 0x0e8);
static_assert(offsetof(VmcbControl, avic_logical_id) == 0x0f0);
static_assert(offsetof(VmcbControl, avic_physical_id) == 0x0f8);
static_assert(offsetof(VmcbControl, reserved_100) == 0x100);
static_assert(offsetof(VmcbControl, vmsa_pa) == 0x108);
static_assert(offsetof(VmcbControl, vmgexit_rax) == 0x110);
static_assert(offsetof(VmcbControl, vmgexit_cpl) == 0x118);
static_assert(offsetof(VmcbControl, reserved_119) == 0x119);
static_assert(offsetof(VmcbControl, bus_lock_counter) == 0x120);
static_assert(offsetof(VmcbControl, reserved_122) == 0x122);
static_assert(offsetof(VmcbControl, update_irr) == 0x134);
static_assert(offsetof(VmcbControl, allowed_sev_features) == 0x138);
static_assert(offsetof(VmcbControl, guest_sev_features) == 0x140);
static_assert(offsetof(VmcbControl, reserved_148) == 0x148);
static_assert(offsetof(VmcbControl, requested_irr) == 0x150);
static_assert(offsetof(VmcbControl, reserved_170) == 0x170);
static_assert(offsetof(VmcbControl, reserved_sw) == 0x3e0);

static_assert(offsetof(VmcbSave, es) == 0x000);
static_assert(offsetof(VmcbSave, cs) == 0x010);
static_assert(offsetof(VmcbSave, ss) == 0x020);
static_assert(offsetof(VmcbSave, ds) == 0x030);
static_assert(offsetof(VmcbSave, fs) == 0x040);
static_assert(offsetof(VmcbSave, gs) == 0x050);
static_assert(offsetof(VmcbSave, gdtr) == 0x060);
static_assert(offsetof(VmcbSave, ldtr) == 0x070);
static_assert(offsetof(VmcbSave, idtr) == 0x080);
static_assert(offsetof(VmcbSave, tr) == 0x090);
static_assert(offsetof(VmcbSave, reserved_0a0) == 0x0a0);
static_assert(offsetof(VmcbSave, vmpl) == 0x0ca);
static_assert(offsetof(VmcbSave, cpl) == 0x0cb);
static_assert(offsetof(VmcbSave, reserved_0cc) == 0x0cc);
static_assert(offsetof(VmcbSave, efer) == 0x0d0);
static_assert(offsetof(VmcbSave, reserved_0d8) == 0x0d8);
static_assert(offsetof(VmcbSave, cr4) == 0x148);
static_assert(offsetof(VmcbSave, cr3) == 0x150);
static_assert(offsetof(VmcbSave, cr0) == 0x158);
static_assert(offsetof(VmcbSave, dr7) == 0x160);
static_assert(offsetof(VmcbSave, dr6) == 0x168);
static_assert(offsetof(VmcbSave, rflags) == 0x170);
static_assert(offsetof(VmcbSave, rip) == 0x178);
static_assert(offsetof(VmcbSave, reserved_180) == 0x180);
static_assert(offsetof(VmcbSave, rsp) == 0x1d8);
static_assert(offsetof(VmcbSave, s_cet) == 0x1e0);
static_assert(offsetof(VmcbSave, ssp) == 0x1e8);
static_assert(offsetof(VmcbSave, isst_addr) == 0x1f0);
static_assert(offsetof(VmcbSave, rax) == 0x1f8);
static_assert(offsetof(VmcbSave, star) == 0x200);
static_assert(offsetof(VmcbSave, lstar) == 0x208);
static_assert(offsetof(VmcbSave, cstar) == 0x210);
static_assert(offsetof(VmcbSave, sfmask) == 0x218);
static_assert(offsetof(VmcbSave, kernel_gs_base) == 0x220);
static_assert(offsetof(VmcbSave, sysenter_cs) == 0x228);
static_assert(offsetof(VmcbSave, sysenter_esp) == 0x230);
static_assert(offsetof(VmcbSave, sysenter_eip) == 0x238);
static_assert(offsetof(VmcbSave, cr2) == 0x240);
static_assert(offsetof(VmcbSave, reserved_248) == 0x248);
static_assert(offsetof(VmcbSave, g_pat) == 0x268);
static_assert(offsetof(VmcbSave, dbgctl) == 0x270);
static_assert(offsetof(VmcbSave, br_from) == 0x278);
static_assert(offsetof(VmcbSave, br_to) == 0x280);
static_assert(offsetof(VmcbSave, last_excp_from) == 0x288);
static_assert(offsetof(VmcbSave, last_excp_to) == 0x290);
static_assert(offsetof(VmcbSave, reserved_298) == 0x298);
static_assert(offsetof(VmcbSave, spec_ctrl) == 0x2e0);
static_assert(offsetof(VmcbSave, reserved_2e8) == 0x2e8);

}  // namespace svmsim::svm
