#pragma once

#include <cstdint>

namespace svmsim::svm {

/// Interrupt control word, VMCB 060h (APM vol. 2, 15.21).
namespace int_ctl {
inline constexpr std::uint32_t v_tpr_mask = 0xfU;
inline constexpr std::uint32_t v_irq = 1U << 8;
inline constexpr std::uint32_t v_gif = 1U << 9;
inline constexpr std::uint32_t v_nmi = 1U << 11;
inline constexpr std::uint32_t v_nmi_mask = 1U << 12;
inline constexpr unsigned v_intr_prio_shift = 16;
inline constexpr std::uint32_t v_intr_prio_mask = 0xfU << v_intr_prio_shift;
inline constexpr std::uint32_t v_ign_tpr = 1U << 20;
inline constexpr std::uint32_t v_intr_masking = 1U << 24;
inline constexpr std::uint32_t v_gif_enable = 1U << 25;
inline constexpr std::uint32_t v_nmi_enable = 1U << 26;
inline constexpr std::uint32_t x2avic_enable = 1U << 30;
inline constexpr std::uint32_t avic_enable = 1U << 31;

[[nodiscard]] constexpr std::uint8_t v_tpr(std::uint32_t word) noexcept {
  return static_cast<std::uint8_t>(word & v_tpr_mask);
}
[[nodiscard]] constexpr std::uint32_t with_v_tpr(std::uint32_t word, std::uint8_t tpr) noexcept {
  return (word & ~v_tpr_mask) | (tpr & v_tpr_mask);
}
[[nodiscard]] constexpr std::uint8_t v_intr_prio(std::uint32_t word) noexcept {
  return static_cast<std::uint8_t>((word & v_intr_prio_mask) >> v_intr_prio_shift);
}
[[nodiscard]] constexpr std::uint32_t with_v_intr_prio(std::uint32_t word, std::uint8_t priority) noexcept {
  return (word & ~v_intr_prio_mask) | ((std::uint32_t{priority} << v_intr_prio_shift) & v_intr_prio_mask);
}
/// Whether the priority of V_IRQ beats V_TPR: strictly greater, or V_IGN_TPR (15.21.4).
[[nodiscard]] constexpr bool above_tpr(std::uint32_t word) noexcept {
  return (word & v_ign_tpr) != 0 || v_intr_prio(word) > v_tpr(word);
}
}  // namespace int_ctl

/// Guest interrupt state, VMCB 068h.
namespace int_state {
inline constexpr std::uint32_t interrupt_shadow = 1U << 0;
inline constexpr std::uint32_t guest_interrupt_mask = 1U << 1;
}  // namespace int_state

/// EVENTINJ (0A8h) and EXITINTINFO (088h) share one format (APM vol. 2, 15.20).
namespace event_inj {
inline constexpr std::uint32_t vector_mask = 0xffU;
inline constexpr unsigned type_shift = 8;
inline constexpr std::uint32_t type_mask = 7U << type_shift;
inline constexpr std::uint32_t type_intr = 0;  ///< values of the type field, not shifted
inline constexpr std::uint32_t type_nmi = 2;
inline constexpr std::uint32_t type_exception = 3;
inline constexpr std::uint32_t type_soft = 4;
inline constexpr std::uint32_t error_valid = 1U << 11;
inline constexpr std::uint32_t valid = 1U << 31;

[[nodiscard]] constexpr std::uint32_t type(std::uint32_t word) noexcept {
  return (word & type_mask) >> type_shift;
}
[[nodiscard]] constexpr std::uint8_t vector(std::uint32_t word) noexcept {
  return static_cast<std::uint8_t>(word & vector_mask);
}
/// A valid event of a type and vector; add error_valid for an exception with an error code.
[[nodiscard]] constexpr std::uint32_t event(std::uint32_t event_type, std::uint8_t event_vector) noexcept {
  return valid | (event_type << type_shift) | event_vector;
}
}  // namespace event_inj

/// VMCB clean bits, 0C0h (APM vol. 2, 15.15): set = the processor may use its cached copy.
namespace clean {
inline constexpr std::uint32_t intercepts = 1U << 0;
inline constexpr std::uint32_t iopm = 1U << 1;
inline constexpr std::uint32_t asid = 1U << 2;
inline constexpr std::uint32_t intr = 1U << 3;
inline constexpr std::uint32_t np = 1U << 4;
inline constexpr std::uint32_t cr = 1U << 5;
inline constexpr std::uint32_t dr = 1U << 6;
inline constexpr std::uint32_t dt = 1U << 7;
inline constexpr std::uint32_t seg = 1U << 8;
inline constexpr std::uint32_t cr2 = 1U << 9;
inline constexpr std::uint32_t lbr = 1U << 10;
inline constexpr std::uint32_t avic = 1U << 11;
inline constexpr std::uint32_t cet = 1U << 12;
inline constexpr std::uint32_t software = 1U << 31;
}  // namespace clean

/// Nested paging and SEV control, VMCB 090h.
namespace nested_ctl {
inline constexpr std::uint64_t np_enable = 1U << 0;
inline constexpr std::uint64_t sev_enable = 1U << 1;
inline constexpr std::uint64_t sev_es_enable = 1U << 2;
inline constexpr std::uint64_t gmet_enable = 1U << 3;
inline constexpr std::uint64_t sss_check_enable = 1U << 4;
inline constexpr std::uint64_t vte_enable = 1U << 5;
inline constexpr std::uint64_t rogpt_enable = 1U << 6;
inline constexpr std::uint64_t invlpgb_enable = 1U << 7;
}  // namespace nested_ctl

/// SEV_FEATURES of a VMSA (3B0h), and their mask ALLOWED_SEV_FEATURES, VMCB 138h (APM vol. 2, 15.36).
namespace sev_features {
inline constexpr std::uint64_t snp_active = 1ULL << 0;
inline constexpr std::uint64_t restricted_injection = 1ULL << 3;
inline constexpr std::uint64_t alternate_injection = 1ULL << 4;
inline constexpr std::uint64_t vmgexit_parameter = 1ULL << 10;
inline constexpr std::uint64_t secure_avic = 1ULL << 16;
inline constexpr std::uint64_t mask_enable = 1ULL << 63;  ///< in ALLOWED_SEV_FEATURES: the mask counts
}  // namespace sev_features

/// TLB_CONTROL, VMCB 05Ch (APM vol. 2, 15.16). Other values are reserved.
namespace tlb_control {
inline constexpr std::uint8_t none = 0;
inline constexpr std::uint8_t flush_all = 1;
inline constexpr std::uint8_t flush_asid = 3;             ///< needs FlushByAsid
inline constexpr std::uint8_t flush_asid_non_global = 7;  ///< needs FlushByAsid
}  // namespace tlb_control

/// Virtualization extensions, VMCB 0B8h.
namespace virt_ext {
inline constexpr std::uint64_t lbr_virtualization = 1U << 0;
inline constexpr std::uint64_t vls = 1U << 1;
inline constexpr std::uint64_t ibs_virtualization = 1U << 2;
inline constexpr std::uint64_t pmc_virtualization = 1U << 3;
}  // namespace virt_ext

/// AVIC physical APIC ID table pointer, VMCB 0F8h.
namespace avic_physical_id {
inline constexpr std::uint64_t max_index_mask = 0xfffU;
}  // namespace avic_physical_id

/// EXITINFO1 of IOIO exits (APM vol. 2, figure 15-2).
namespace ioio_info {
inline constexpr std::uint64_t in = 1U << 0;
inline constexpr std::uint64_t string = 1U << 2;
inline constexpr std::uint64_t rep = 1U << 3;
inline constexpr unsigned size_shift = 4;  ///< operand bytes 1, 2, 4 become bits 4, 5, 6
inline constexpr std::uint64_t address_16 = 1U << 7;
inline constexpr std::uint64_t address_32 = 1U << 8;
inline constexpr std::uint64_t address_64 = 1U << 9;
inline constexpr unsigned segment_shift = 10;  ///< of INS and OUTS: ES CS SS DS FS GS are 0 to 5
inline constexpr unsigned port_shift = 16;
}  // namespace ioio_info

/// EXITINFO1 of nested page faults (APM vol. 2, 15.25.6).
namespace npf_info {
inline constexpr std::uint64_t present = 1ULL << 0;
inline constexpr std::uint64_t write = 1ULL << 1;
inline constexpr std::uint64_t user = 1ULL << 2;
inline constexpr std::uint64_t reserved = 1ULL << 3;
inline constexpr std::uint64_t fetch = 1ULL << 4;
inline constexpr std::uint64_t shadow_stack = 1ULL << 6;
inline constexpr std::uint64_t final_translation = 1ULL << 32;
inline constexpr std::uint64_t guest_table_walk = 1ULL << 33;
inline constexpr std::uint64_t sss_page = 1ULL << 37;
}  // namespace npf_info

/// EXITINFO1 of control register exits with decode assists.
namespace cr_info {
inline constexpr std::uint64_t mov = 1ULL << 63;  ///< MOV CRn; 0 for SMSW, LMSW and CLTS
}  // namespace cr_info

/// EXITINFO2 of task switches (APM vol. 2, 15.14.1); bits 31:0 are the error code.
namespace task_switch_info {
inline constexpr std::uint64_t iret = 1ULL << 36;
inline constexpr std::uint64_t far_jump = 1ULL << 38;
inline constexpr std::uint64_t has_error_code = 1ULL << 44;
inline constexpr std::uint64_t resume_flag = 1ULL << 48;
}  // namespace task_switch_info

namespace rflags {
inline constexpr std::uint64_t always_one = 1U << 1;
inline constexpr std::uint64_t carry = 1U << 0;
inline constexpr std::uint64_t trap = 1U << 8;
inline constexpr std::uint64_t interrupt = 1U << 9;
inline constexpr unsigned iopl_shift = 12;
inline constexpr std::uint64_t iopl_mask = 3U << iopl_shift;
inline constexpr std::uint64_t nested_task = 1U << 14;
inline constexpr std::uint64_t resume = 1U << 16;
inline constexpr std::uint64_t virtual_8086 = 1U << 17;
}  // namespace rflags

namespace efer {
inline constexpr std::uint64_t sce = 1U << 0;
inline constexpr std::uint64_t lme = 1U << 8;
inline constexpr std::uint64_t lma = 1U << 10;
inline constexpr std::uint64_t nxe = 1U << 11;
inline constexpr std::uint64_t svme = 1U << 12;
inline constexpr std::uint64_t mcommit = 1U << 17;
}  // namespace efer

namespace cr0 {
inline constexpr std::uint64_t pe = 1U << 0;
inline constexpr std::uint64_t mp = 1U << 1;
inline constexpr std::uint64_t em = 1U << 2;
inline constexpr std::uint64_t ts = 1U << 3;
inline constexpr std::uint64_t ne = 1U << 5;
inline constexpr std::uint64_t wp = 1U << 16;
inline constexpr std::uint64_t nw = 1U << 29;
inline constexpr std::uint64_t cd = 1U << 30;
inline constexpr std::uint64_t pg = 1U << 31;
}  // namespace cr0

namespace cr4 {
inline constexpr std::uint64_t tsd = 1U << 2;
inline constexpr std::uint64_t de = 1U << 3;
inline constexpr std::uint64_t pae = 1U << 5;
inline constexpr std::uint64_t pce = 1U << 8;
inline constexpr std::uint64_t umip = 1U << 11;
inline constexpr std::uint64_t pcide = 1U << 17;
inline constexpr std::uint64_t osxsave = 1U << 18;
inline constexpr std::uint64_t cet = 1U << 23;
}  // namespace cr4

namespace dr6 {
inline constexpr std::uint64_t always_one = 0xffff'0ff0;
inline constexpr std::uint64_t bd = 1U << 13;
inline constexpr std::uint64_t writable = 0xe00f;
}  // namespace dr6

namespace dr7 {
inline constexpr std::uint64_t enables = 0xff;  ///< L0 G0 … L3 G3
inline constexpr std::uint64_t always_one = 1U << 10;
inline constexpr std::uint64_t gd = 1U << 13;
inline constexpr std::uint64_t writable = 0xffff'23ff;
}  // namespace dr7

/// Segment attributes as VmcbSegment::attrib holds them.
namespace segment_attrib {
inline constexpr std::uint16_t present = 1U << 7;
inline constexpr std::uint16_t long_mode = 1U << 9;
inline constexpr std::uint16_t default_size = 1U << 10;
inline constexpr std::uint16_t granularity = 1U << 11;
}  // namespace segment_attrib

/// Exception vectors (APM vol. 2, 8.1).
namespace exception_vector {
inline constexpr std::uint8_t divide_error = 0;
inline constexpr std::uint8_t debug = 1;
inline constexpr std::uint8_t nmi = 2;
inline constexpr std::uint8_t breakpoint = 3;
inline constexpr std::uint8_t overflow = 4;
inline constexpr std::uint8_t bound_range = 5;
inline constexpr std::uint8_t invalid_opcode = 6;
inline constexpr std::uint8_t device_not_available = 7;
inline constexpr std::uint8_t double_fault = 8;
inline constexpr std::uint8_t invalid_tss = 10;
inline constexpr std::uint8_t segment_not_present = 11;
inline constexpr std::uint8_t stack = 12;
inline constexpr std::uint8_t general_protection = 13;
inline constexpr std::uint8_t page_fault = 14;
inline constexpr std::uint8_t x87 = 16;  ///< #MF
inline constexpr std::uint8_t alignment_check = 17;
inline constexpr std::uint8_t machine_check = 18;
inline constexpr std::uint8_t control_protection = 21;
inline constexpr std::uint8_t vmm_communication = 29;  ///< #VC
inline constexpr std::uint8_t security = 30;           ///< #SX
}  // namespace exception_vector

}  // namespace svmsim::svm
