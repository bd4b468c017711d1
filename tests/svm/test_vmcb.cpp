#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "svm/vmcb.hpp"
#include "svm/vmcb_bits.hpp"

using namespace svmsim::svm;

namespace {

struct Field {
  const char* name;
  std::size_t documented_offset;
  std::size_t documented_size;
  std::size_t offset;
  std::size_t size;
};

#define CONTROL(name, documented, size)                                             \
  Field {                                                                           \
#name, documented, size, offsetof(Vmcb, control) + offsetof(VmcbControl, name), \
        sizeof(VmcbControl::name)                                                   \
  }
#define SAVE(name, documented, size)                                                                         \
  Field {                                                                                                    \
#name, 0x400 + documented, size, offsetof(Vmcb, save) + offsetof(VmcbSave, name), sizeof(VmcbSave::name) \
  }

// APM vol. 2, appendix B, tables B-1 and B-2.
const std::vector<Field> fields{
    CONTROL(intercepts, 0x000, 24),
    CONTROL(pause_filter_thresh, 0x03c, 2),
    CONTROL(pause_filter_count, 0x03e, 2),
    CONTROL(iopm_base_pa, 0x040, 8),
    CONTROL(msrpm_base_pa, 0x048, 8),
    CONTROL(tsc_offset, 0x050, 8),
    CONTROL(asid, 0x058, 4),
    CONTROL(tlb_ctl, 0x05c, 1),
    CONTROL(erap_ctl, 0x05d, 1),
    CONTROL(int_ctl, 0x060, 4),
    CONTROL(int_vector, 0x064, 4),
    CONTROL(int_state, 0x068, 4),
    CONTROL(exit_code, 0x070, 8),
    CONTROL(exit_info_1, 0x078, 8),
    CONTROL(exit_info_2, 0x080, 8),
    CONTROL(exit_int_info, 0x088, 4),
    CONTROL(exit_int_info_err, 0x08c, 4),
    CONTROL(nested_ctl, 0x090, 8),
    CONTROL(avic_vapic_bar, 0x098, 8),
    CONTROL(ghcb_gpa, 0x0a0, 8),
    CONTROL(event_inj, 0x0a8, 4),
    CONTROL(event_inj_err, 0x0ac, 4),
    CONTROL(nested_cr3, 0x0b0, 8),
    CONTROL(virt_ext, 0x0b8, 8),
    CONTROL(clean, 0x0c0, 4),
    CONTROL(next_rip, 0x0c8, 8),
    CONTROL(insn_len, 0x0d0, 1),
    CONTROL(insn_bytes, 0x0d1, 15),
    CONTROL(avic_backing_page, 0x0e0, 8),
    CONTROL(avic_logical_id, 0x0f0, 8),
    CONTROL(avic_physical_id, 0x0f8, 8),
    CONTROL(vmsa_pa, 0x108, 8),
    CONTROL(vmgexit_rax, 0x110, 8),
    CONTROL(vmgexit_cpl, 0x118, 1),
    CONTROL(bus_lock_counter, 0x120, 2),
    CONTROL(update_irr, 0x134, 4),
    CONTROL(allowed_sev_features, 0x138, 8),
    CONTROL(guest_sev_features, 0x140, 8),
    CONTROL(requested_irr, 0x150, 32),
    CONTROL(reserved_sw, 0x3e0, 32),
    SAVE(es, 0x000, 16),
    SAVE(cs, 0x010, 16),
    SAVE(ss, 0x020, 16),
    SAVE(ds, 0x030, 16),
    SAVE(fs, 0x040, 16),
    SAVE(gs, 0x050, 16),
    SAVE(gdtr, 0x060, 16),
    SAVE(ldtr, 0x070, 16),
    SAVE(idtr, 0x080, 16),
    SAVE(tr, 0x090, 16),
    SAVE(vmpl, 0x0ca, 1),
    SAVE(cpl, 0x0cb, 1),
    SAVE(efer, 0x0d0, 8),
    SAVE(cr4, 0x148, 8),
    SAVE(cr3, 0x150, 8),
    SAVE(cr0, 0x158, 8),
    SAVE(dr7, 0x160, 8),
    SAVE(dr6, 0x168, 8),
    SAVE(rflags, 0x170, 8),
    SAVE(rip, 0x178, 8),
    SAVE(rsp, 0x1d8, 8),
    SAVE(s_cet, 0x1e0, 8),
    SAVE(ssp, 0x1e8, 8),
    SAVE(isst_addr, 0x1f0, 8),
    SAVE(rax, 0x1f8, 8),
    SAVE(star, 0x200, 8),
    SAVE(lstar, 0x208, 8),
    SAVE(cstar, 0x210, 8),
    SAVE(sfmask, 0x218, 8),
    SAVE(kernel_gs_base, 0x220, 8),
    SAVE(sysenter_cs, 0x228, 8),
    SAVE(sysenter_esp, 0x230, 8),
    SAVE(sysenter_eip, 0x238, 8),
    SAVE(cr2, 0x240, 8),
    SAVE(g_pat, 0x268, 8),
    SAVE(dbgctl, 0x270, 8),
    SAVE(br_from, 0x278, 8),
    SAVE(br_to, 0x280, 8),
    SAVE(last_excp_from, 0x288, 8),
    SAVE(last_excp_to, 0x290, 8),
    SAVE(spec_ctrl, 0x2e0, 8),
};

}  // namespace

TEST_CASE("every VMCB field has the offset and the size of the manual") {
  for (const Field& field : fields) {
    CAPTURE(field.name);
    CHECK(field.offset == field.documented_offset);
    CHECK(field.size == field.documented_size);
  }
  CHECK(sizeof(Vmcb) == 4096);
}

TEST_CASE("a VMCB is read and written as a page of bytes") {
  std::array<std::uint8_t, 4096> page{};
  page[0x00f] = 0x01;  // the HLT intercept: word 3 bit 24
  page[0x058] = 0x05;
  page[0x0a8 + 3] = 0x80;
  page[0x0ac] = 0x11;
  page[0x400 + 0x178] = 0x34;
  page[0x400 + 0x179] = 0x12;
  Vmcb vmcb{};
  std::memcpy(&vmcb, page.data(), page.size());
  CHECK(vmcb.control.intercepts[3] == 1U << 24);
  CHECK(vmcb.control.asid == 5);
  CHECK(vmcb.control.event_inj == event_inj::valid);
  CHECK(vmcb.control.event_inj_err == 0x11);
  CHECK(vmcb.save.rip == 0x1234);

  vmcb.save.cpl = 3;
  vmcb.control.exit_code = ~std::uint64_t{0};
  std::memcpy(page.data(), &vmcb, page.size());
  CHECK(page[0x4cb] == 3);
  for (std::size_t i = 0x70; i < 0x78; ++i)
    CHECK(page[i] == 0xff);
}

TEST_CASE("the bits of the interrupt control word stand where the manual has them") {
  using namespace int_ctl;
  CHECK(v_irq == 0x100);
  CHECK(v_gif == 0x200);
  CHECK(v_nmi == 0x800);
  CHECK(v_nmi_mask == 0x1000);
  CHECK(v_intr_prio_mask == 0xf0000);
  CHECK(v_ign_tpr == 0x100000);
  CHECK(v_intr_masking == 0x1000000);
  CHECK(v_gif_enable == 0x2000000);
  CHECK(v_nmi_enable == 0x4000000);
  CHECK(x2avic_enable == 0x40000000);
  CHECK(avic_enable == 0x80000000);
}

TEST_CASE("a virtual interrupt beats V_TPR only with a greater priority, or with V_IGN_TPR") {
  using namespace int_ctl;
  for (std::uint8_t priority = 0; priority < 16; ++priority) {
    for (std::uint8_t tpr = 0; tpr < 16; ++tpr) {
      const std::uint32_t word = with_v_tpr(with_v_intr_prio(0, priority), tpr);
      CHECK(above_tpr(word) == (priority > tpr));
      CHECK(above_tpr(word | v_ign_tpr));
    }
  }
}
