#include <array>

#include "tests/oracle/action_cases.hpp"
#include "tests/oracle/systematic.hpp"

namespace svmsim::oracle::systematic {

using svm::ActionKind;
using svm::Intercept;

void msr_map_edges(const VectorSink& sink) {
  constexpr std::array<std::uint32_t, 18> msrs{0x0,        0x10,       0x1b,       0x174,      0x175,
                                               0x277,      0x1fff,     0x2000,     0x40000000, 0xbfffffff,
                                               0xc0000080, 0xc0000081, 0xc0000102, 0xc0001fff, 0xc0002000,
                                               0xc0010000, 0xc0011fff, 0xc0012000};
  for (const std::uint32_t msr : msrs) {
    for (const bool write : {false, true}) {
      for (const bool fill : {false, true}) {
        for (int flip = -3; flip <= 2; ++flip) {
          Vector vector = begin("msr");
          vector.intercept(Intercept::msr);
          vector.msr_fill = fill;
          const std::int32_t bit = svm::MsrPermissionMap::read_bit(msr);
          // -3: no bit; else the own bits and their neighbours.
          if (flip == -3 && bit < 0) {
            vector.msr_fill = fill;
          } else if (flip != -3) {
            const std::int32_t target = bit + (write ? 1 : 0) + flip;
            if (bit < 0 || target < 0 || target >= 8 * static_cast<int>(svm::MsrPermissionMap::size_bytes))
              continue;
            vector.msr_bits.push_back(static_cast<std::uint32_t>(target));
          }
          // What is not intercepted happens: only where it does no harm.
          const bool caught = msr_map_of(vector).intercepts(msr, write);
          const bool harmless = msr == 0x174 || msr == 0x175 || msr == 0xc0000081 || msr == 0xc0000102 ||
                                (!write && (msr == 0x10 || msr == 0x1b || msr == 0x277 || msr == 0xc0000080));
          if (!caught && !harmless) continue;
          if (write) {
            emit_wrmsr(vector.program, msr, 0x10);
          } else {
            emit_rdmsr(vector.program, msr);
          }
          finish(sink, std::move(vector));
        }
      }
    }
  }
}

void io_map_edges(const VectorSink& sink) {
  constexpr std::array<std::uint16_t, 9> ports{0x80,   0x5000, 0x4fff, 0x5003, 0x7fff,
                                               0x7ffd, 0x8000, 0xfffc, 0xffff};
  for (const std::uint16_t port : ports) {
    for (const unsigned size : {1U, 2U, 4U}) {
      for (const bool write : {false, true}) {
        for (const bool fill : {false, true}) {
          for (int flip = -2; flip <= static_cast<int>(size); ++flip) {
            Vector vector = begin("io", 0);
            vector.intercept(Intercept::ioio);
            vector.io_fill = fill;
            if (flip > -2) vector.io_bits.push_back(static_cast<std::uint32_t>(port + flip));
            emit_io(vector.program, write, port, size);
            finish(sink, std::move(vector));
          }
        }
      }
    }
  }
}

void consistency_checks(const VectorSink& sink) {
  struct Word {
    std::uint64_t svm::VmcbSave::*field;
    unsigned bits;
  };
  constexpr std::array<Word, 6> words{{{&svm::VmcbSave::efer, 64},
                                       {&svm::VmcbSave::cr0, 64},
                                       {&svm::VmcbSave::cr3, 64},
                                       {&svm::VmcbSave::cr4, 64},
                                       {&svm::VmcbSave::dr6, 64},
                                       {&svm::VmcbSave::dr7, 64}}};
  for (const Word& word : words) {
    for (unsigned bit = 0; bit < word.bits; ++bit) {
      Vector vector = begin("consistency");
      vector.vmcb.save.*word.field ^= std::uint64_t{1} << bit;
      finish(sink, std::move(vector));
    }
  }
  for (unsigned cache = 0; cache < 4; ++cache) {
    Vector vector = begin("consistency");
    vector.vmcb.save.cr0 |= std::uint64_t{cache} << 29;
    finish(sink, std::move(vector));
  }
  for (const std::uint32_t asid : {0U, 1U, 2U, 15U}) {
    Vector vector = begin("consistency");
    vector.vmcb.control.asid = asid;
    finish(sink, std::move(vector));
  }
  {
    Vector vector = begin("consistency");
    vector.intercept(Intercept::vmrun, false);
    finish(sink, std::move(vector));
  }
  {
    Vector vector = begin("consistency");
    vector.vmcb.save.cs.attrib |= svm::segment_attrib::default_size;
    finish(sink, std::move(vector));
  }
  // Both maps, from far below to beyond the end of the physical address space, for two widths of it.
  for (const unsigned width : {40U, 48U}) {
    for (int page = -4; page <= 1; ++page) {
      for (unsigned which = 0; which < 4; ++which) {
        Vector vector = begin("consistency");
        const std::uint64_t base = (std::uint64_t{1} << width) + static_cast<std::uint64_t>(page) * 0x1000;
        const bool msr = (which & 1) != 0;
        vector.intercept(msr ? Intercept::msr : Intercept::ioio, (which & 2) != 0);
        (msr ? vector.vmcb.control.msrpm_base_pa : vector.vmcb.control.iopm_base_pa) = base;
        finish(sink, std::move(vector));
      }
    }
  }
  for (const std::uint64_t bits : {std::uint64_t{0x1}, std::uint64_t{0xfff}}) {
    Vector vector = begin("consistency");
    vector.intercept(Intercept::msr).intercept(Intercept::ioio);
    vector.msr_fill = true;
    vector.vmcb.control.msrpm_base_pa |= bits;
    vector.vmcb.control.iopm_base_pa |= bits;
    emit_rdmsr(vector.program, 0x174);
    finish(sink, std::move(vector));
  }
  for (unsigned byte = 0; byte < 8; ++byte) {
    for (unsigned type = 0; type < 8; ++type) {
      Vector vector = begin("consistency");
      set_nested_paging(vector, true);
      const std::uint64_t mask = std::uint64_t{0xff} << (8 * byte);
      vector.vmcb.save.g_pat = (vector.vmcb.save.g_pat & ~mask) | std::uint64_t{type} << (8 * byte);
      finish(sink, std::move(vector));
    }
  }
}

void event_injection(const VectorSink& sink) {
  for (unsigned type = 0; type < 8; ++type) {
    for (unsigned event = 0; event < 256; event += (event < 34 ? 1 : 37)) {
      for (unsigned variant = 0; variant < 4; ++variant) {
        Vector vector = begin("inject", 0, (variant & 2) != 0);
        svm::VmcbControl& control = vector.vmcb.control;
        control.event_inj = svm::event_inj::event(type, static_cast<std::uint8_t>(event));
        if ((variant & 1) != 0) {
          control.event_inj |= svm::event_inj::error_valid;
          control.event_inj_err = 0x50;
          // An error code belongs to these exceptions and to nothing else.
          constexpr std::uint32_t with_error_code = 0x00027d00;
          if (type != 3 || event >= 32 || (with_error_code >> event & 1) == 0) continue;
        }
        control.next_rip = layout::code;
        vector.program.add("nop", {0x90}, ActionKind::nop);
        finish(sink, std::move(vector));
      }
    }
  }
  // The delivery itself faults: the guest's IDT lies on a page without rights.
  for (const std::uint32_t page : {layout::nested_absent_page, layout::absent_page}) {
    for (const unsigned type : {0U, 2U, 3U}) {
      for (const bool nested : {false, true}) {
        Vector vector = begin("inject");
        set_nested_paging(vector, nested);
        vector.vmcb.save.idtr.base = page;
        vector.vmcb.control.event_inj = svm::event_inj::event(type, type == 2 ? 2 : (type == 3 ? 13 : 0x61));
        if (type == 3) vector.vmcb.control.event_inj |= svm::event_inj::error_valid;
        if (page == layout::absent_page) continue;  // GuestCpu has no guest page tables
        if (!nested) continue;
        finish(sink, std::move(vector));
      }
    }
  }
}

void virtual_interrupts(const VectorSink& sink) {
  for (unsigned priority = 0; priority < 16; priority += 3) {
    for (unsigned tpr = 0; tpr < 16; tpr += 3) {
      for (unsigned variant = 0; variant < 64; ++variant) {
        const bool interrupts = (variant & 1) != 0;
        Vector vector = begin("v_irq", 0, interrupts);
        svm::VmcbControl& control = vector.vmcb.control;
        set_virtual_interrupt(vector, 0xb2, static_cast<std::uint8_t>(priority));
        control.int_ctl |= tpr;
        if ((variant & 2) != 0) control.int_ctl |= svm::int_ctl::v_ign_tpr;
        vector.intercept(Intercept::vintr, (variant & 4) != 0);
        if ((variant & 8) != 0) control.int_ctl |= svm::int_ctl::v_intr_masking;
        if ((variant & 16) != 0) control.int_state |= svm::int_state::interrupt_shadow;
        if ((variant & 32) != 0) control.int_ctl |= svm::int_ctl::v_gif_enable | svm::int_ctl::v_gif;
        vector.program.add("nop", {0x90}, ActionKind::nop);
        if (!interrupts) vector.program.add("sti", {0xfb}, ActionKind::sti);
        vector.program.add("nop", {0x90}, ActionKind::nop).add("nop", {0x90}, ActionKind::nop);
        finish(sink, std::move(vector));
      }
    }
  }
}

void global_interrupt_flag(const VectorSink& sink) {
  for (unsigned variant = 0; variant < 128; ++variant) {
    Vector vector = begin("gif", 0, (variant & 1) != 0);
    svm::VmcbControl& control = vector.vmcb.control;
    control.int_ctl |= svm::int_ctl::v_intr_masking;
    if ((variant & 2) != 0) control.int_ctl |= svm::int_ctl::v_gif_enable;
    if ((variant & 4) != 0) control.int_ctl |= svm::int_ctl::v_gif;
    if ((variant & 8) != 0) set_virtual_interrupt(vector, 0x93, 12);
    vector.intercept(Intercept::vintr, (variant & 16) != 0);
    vector.intercept(Intercept::stgi, (variant & 32) != 0);
    vector.intercept(Intercept::clgi, (variant & 64) != 0);
    vector.program.add("stgi", {0x0f, 0x01, 0xdc}, ActionKind::stgi).add("nop", {0x90}, ActionKind::nop);
    vector.program.add("clgi", {0x0f, 0x01, 0xdd}, ActionKind::clgi).add("nop", {0x90}, ActionKind::nop);
    finish(sink, std::move(vector));
  }
}

void pause_filter(const VectorSink& sink) {
  for (const unsigned count : {0U, 1U, 2U, 3U, 5U, 9U, 10U, 11U, 0xffffU}) {
    for (unsigned pauses = 0; pauses <= 12; ++pauses) {
      for (const bool on : {false, true}) {
        Vector vector = begin("pause");
        vector.intercept(Intercept::pause, on);
        vector.vmcb.control.pause_filter_count = static_cast<std::uint16_t>(count);
        for (unsigned i = 0; i < pauses; ++i)
          vector.program.add("pause", {0xf3, 0x90}, ActionKind::pause);
        finish(sink, std::move(vector));
      }
    }
  }
}

void exceptions(const VectorSink& sink) {
  for (const ExceptionCase& raised : exception_cases()) {
    for (unsigned variant = 0; variant < 32; ++variant) {
      Vector vector = begin("exceptions", (variant & 1) != 0 ? 3 : 0, (variant & 2) != 0);
      if (raised.vector == 14 && (variant & 1) == 0 && (variant & 4) != 0) continue;
      set_nested_paging(vector, (variant & 4) != 0);
      if (raised.prepare != nullptr) raised.prepare(vector);
      const auto own = svm::exception_intercept(raised.vector);
      const unsigned mode = variant >> 3;
      if (mode == 1) vector.intercept(own);
      if (mode >= 2) vector.vmcb.control.intercepts[2] = 0xffffffff;
      if (mode == 3) vector.intercept(own, false);
      raised.emit(vector.program);
      finish(sink, std::move(vector));
    }
  }
}

/// The guest interrupts its own CPU through the physical APIC, with IF, TPR and the intercepts as they come.
void self_interrupts(const VectorSink& sink) {
  for (unsigned variant = 0; variant < 256; ++variant) {
    const bool nmi = (variant & 1) != 0;
    const bool interrupts = (variant & 2) != 0;
    Vector vector = begin("self_ipi", 0, interrupts);
    set_nested_paging(vector, (variant & 128) != 0);
    vector.intercept(Intercept::intr, (variant & 4) != 0);
    vector.intercept(Intercept::nmi, (variant & 8) != 0);
    if ((variant & 16) != 0) vector.vmcb.control.int_ctl |= svm::int_ctl::v_intr_masking;
    vector.host_if = (variant & 32) == 0;
    emit_self_ipi(vector.program, nmi ? 0x4400U : 0x40c4U);
    vector.program.add("nop", {0x90}, ActionKind::nop);
    if ((variant & 64) != 0) {
      vector.program.add("sti", {0xfb}, ActionKind::sti);
      vector.program.add("nop", {0x90}, ActionKind::nop).add("nop", {0x90}, ActionKind::nop);
      vector.program.add("cli", {0xfa}, ActionKind::cli);
    }
    finish(sink, std::move(vector));
  }
}

/// HLT in every state that the idle-HLT question names (docs/oracle.md), with the HLT intercept, the VINTR
/// intercept, both and neither. The compositions of idle_hlt.cpp are made of these.
void halts(const VectorSink& sink) {
  for (unsigned variant = 0; variant < 1024; ++variant) {
    const bool sti = (variant & 1) != 0;
    const bool interrupts = !sti && (variant & 2) != 0;
    if (sti && (variant & 2) != 0) continue;
    Vector vector = begin("hlt", 0, interrupts);
    svm::VmcbControl& control = vector.vmcb.control;
    if ((variant & 4) != 0) set_virtual_interrupt(vector, 0x81, 8);
    if ((variant & 8) != 0) control.int_ctl |= 10;
    if ((variant & 16) != 0) control.int_state |= svm::int_state::interrupt_shadow;
    vector.intercept(Intercept::hlt, (variant & 32) != 0);
    vector.intercept(Intercept::vintr, (variant & 64) != 0);
    if ((variant & 128) != 0) control.int_ctl |= svm::int_ctl::v_gif_enable;
    if ((variant & 256) != 0) control.int_ctl |= svm::int_ctl::v_gif;
    if ((variant & 512) != 0) {
      vector.pending_intr = true;
      vector.intercept(Intercept::intr);
    }
    control.int_ctl |= svm::int_ctl::v_intr_masking;
    if (sti) vector.program.add("sti", {0xfb}, ActionKind::sti);
    vector.program.add("hlt", {0xf4}, ActionKind::hlt);
    finish(sink, std::move(vector));
  }
}

}  // namespace svmsim::oracle::systematic
