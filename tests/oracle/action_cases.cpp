#include "tests/oracle/action_cases.hpp"

#include "svm/vmcb_bits.hpp"

namespace svmsim::oracle {

namespace {

using svm::ActionKind;
using svm::GuestAction;
using svm::Intercept;

GuestAction action(ActionKind kind, std::uint64_t number = 0, std::uint64_t operand_0 = 0,
                   std::uint64_t operand_1 = 0) {
  GuestAction result;
  result.kind = kind;
  result.number = static_cast<std::uint32_t>(number);
  result.operand[0] = operand_0;
  result.operand[1] = operand_1;
  return result;
}

GuestAction memory_action(ActionKind kind, std::uint64_t address, std::uint8_t size) {
  GuestAction result = action(kind, 0, 0, address);
  result.size = size;
  return result;
}

constexpr std::uint64_t default_cr0 = 0x80010033;
constexpr std::uint32_t descriptor_operand = layout::plain_page + 0x800;
constexpr std::uint32_t osxsave = 1U << 18;

template <unsigned Number>
void mov_from_cr(Program& p) {
  p.add("mov_from_cr", {0x0f, 0x20, 0xc0 | Number << 3}, action(ActionKind::mov_from_cr, Number));
}
void mov_to_cr(Program& p, unsigned number, std::uint32_t value) {
  p.load_eax(value).add("mov_to_cr", {0x0f, 0x22, 0xc0 | number << 3},
                        action(ActionKind::mov_to_cr, number, value));
}
template <unsigned Number>
void mov_from_dr(Program& p) {
  p.add("mov_from_dr", {0x0f, 0x21, 0xc0 | Number << 3}, action(ActionKind::mov_from_dr, Number));
}
template <unsigned Number, std::uint32_t Value>
void mov_to_dr(Program& p) {
  p.load_eax(Value).add("mov_to_dr", {0x0f, 0x23, 0xc0 | Number << 3},
                        action(ActionKind::mov_to_dr, Number, Value));
}
template <unsigned Value>
void mov_to_cr8(Program& p) {
  p.load_eax(Value).add(Value > 15 ? "mov_to_cr8_reserved" : "mov_to_cr8", {0x44, 0x0f, 0x22, 0xc0},
                        action(ActionKind::mov_to_cr8, 0, Value));
}

/// IRETQ to the next instruction, with unchanged flags.
void iret(Program& p) {
  const bool user = p.cpl() == 3;
  const std::uint32_t stack = layout::guest_stack_top - (user ? 0x1000 : 0);
  p.push(user ? layout::user_data_selector : layout::data_selector).push(stack).push(p.flags());
  p.push(user ? layout::user_code_selector : layout::code_selector);
  p.push(static_cast<std::uint32_t>(p.next_rip()) + 5 + 2);
  p.add("iret", {0x48, 0xcf}, ActionKind::iret);
}

void set_osxsave(Vector& v) {
  v.vmcb.save.cr4 |= osxsave;
}
void set_ts(Vector& v) {
  v.vmcb.save.cr0 |= svm::cr0::ts;
}

std::vector<ActionCase> make_actions() {
  using I = Intercept;
  std::vector<ActionCase> cases{
      {"nop", {}, [](Program& p) { p.add("nop", {0x90}, ActionKind::nop); }},
      {"cli", {}, [](Program& p) { p.add("cli", {0xfa}, ActionKind::cli); }},
      {"sti", {}, [](Program& p) { p.add("sti", {0xfb}, ActionKind::sti); }},
      {"hlt", {I::hlt}, [](Program& p) { p.add("hlt", {0xf4}, ActionKind::hlt); }},
      {"pause",
       {I::pause},
       [](Program& p) {
         p.add("pause", {0xf3, 0x90}, ActionKind::pause);
       }},
      {"cpuid",
       {I::cpuid},
       [](Program& p) {
         p.add("cpuid", {0x0f, 0xa2}, ActionKind::cpuid);
       }},
      {"rdtsc",
       {I::rdtsc},
       [](Program& p) {
         p.add("rdtsc", {0x0f, 0x31}, ActionKind::rdtsc);
       }},
      {"rdtscp",
       {I::rdtscp},
       [](Program& p) {
         p.add("rdtscp", {0x0f, 0x01, 0xf9}, ActionKind::rdtscp);
       }},
      {"rdpmc",
       {I::rdpmc},
       [](Program& p) {
         p.load_ecx(0).add("rdpmc", {0x0f, 0x33}, ActionKind::rdpmc);
       }},
      {"rdmsr", {I::msr}, [](Program& p) { emit_rdmsr(p, 0x174); }},
      {"wrmsr", {I::msr}, [](Program& p) { emit_wrmsr(p, 0x174, 8); }},
      {"in", {I::ioio}, [](Program& p) { emit_io(p, false, 0x5000, 1); }},
      {"out", {I::ioio}, [](Program& p) { emit_io(p, true, 0x80, 1); }},
      {"vmmcall",
       {I::vmmcall},
       [](Program& p) {
         p.add("vmmcall", {0x0f, 0x01, 0xd9}, ActionKind::vmmcall);
       }},
      {"iret", {I::iret}, iret},
      {"memory_read",
       {},
       [](Program& p) {
         p.add32("memory_read", {0x8b, 0x04, 0x25}, layout::plain_page,
                 memory_action(ActionKind::memory_read, layout::plain_page, 4));
       }},
      {"memory_write",
       {},
       [](Program& p) {
         p.add32("memory_write", {0x89, 0x04, 0x25}, descriptor_operand,
                 memory_action(ActionKind::memory_write, descriptor_operand, 4));
       }},
      {"nested_absent_read",
       {},
       [](Program& p) {
         p.add32("nested_absent_read", {0x8b, 0x04, 0x25}, layout::nested_absent_page + 0x120,
                 memory_action(ActionKind::memory_read, layout::nested_absent_page + 0x120, 4));
       }},
      {"nested_absent_write",
       {},
       [](Program& p) {
         p.add32("nested_absent_write", {0x89, 0x04, 0x25}, layout::nested_absent_page + 0x128,
                 memory_action(ActionKind::memory_write, layout::nested_absent_page + 0x128, 4));
       }},
      {"nested_readonly_read",
       {},
       [](Program& p) {
         p.add32("nested_readonly_read", {0x8b, 0x04, 0x25}, layout::nested_readonly_page + 8,
                 memory_action(ActionKind::memory_read, layout::nested_readonly_page + 8, 4));
       }},
      {"nested_readonly_write",
       {},
       [](Program& p) {
         p.add32("nested_readonly_write", {0x89, 0x04, 0x25}, layout::nested_readonly_page + 16,
                 memory_action(ActionKind::memory_write, layout::nested_readonly_page + 16, 4));
       }},
      {"mov_from_cr8",
       {I::read_cr8},
       [](Program& p) {
         p.add("mov_from_cr8", {0x44, 0x0f, 0x20, 0xc0}, ActionKind::mov_from_cr8);
       }},
      {"mov_to_cr8", {I::write_cr8}, mov_to_cr8<0>},
      {"mov_to_cr8_15", {I::write_cr8}, mov_to_cr8<15>},
      {"mov_to_cr8_bad", {I::write_cr8}, mov_to_cr8<16>},
      {"mov_from_cr0", {I::read_cr0}, mov_from_cr<0>},
      {"mov_from_cr2", {I::read_cr2}, mov_from_cr<2>},
      {"mov_from_cr3", {I::read_cr3}, mov_from_cr<3>},
      {"mov_from_cr4", {I::read_cr4}, mov_from_cr<4>},
      {"mov_to_cr0_same", {I::write_cr0, I::cr0_sel_write}, [](Program& p) { mov_to_cr(p, 0, default_cr0); }},
      {"mov_to_cr0_cd",
       {I::write_cr0, I::cr0_sel_write},
       [](Program& p) { mov_to_cr(p, 0, default_cr0 | 1U << 30); }},
      {"mov_to_cr0_ts",
       {I::write_cr0, I::cr0_sel_write},
       [](Program& p) { mov_to_cr(p, 0, default_cr0 | 8); }},
      {"mov_to_cr0_mp",
       {I::write_cr0, I::cr0_sel_write},
       [](Program& p) { mov_to_cr(p, 0, default_cr0 & ~2U); }},
      {"mov_to_cr0_wp",
       {I::write_cr0, I::cr0_sel_write},
       [](Program& p) { mov_to_cr(p, 0, default_cr0 & ~(1U << 16)); }},
      {"mov_to_cr0_ne",
       {I::write_cr0, I::cr0_sel_write},
       [](Program& p) { mov_to_cr(p, 0, default_cr0 & ~0x20U); }},
      {"mov_to_cr0_am",
       {I::write_cr0, I::cr0_sel_write},
       [](Program& p) { mov_to_cr(p, 0, default_cr0 | 1U << 18); }},
      {"mov_to_cr2", {I::write_cr2}, [](Program& p) { mov_to_cr(p, 2, 0x1234); }},
      {"mov_to_cr3", {I::write_cr3}, [](Program& p) { mov_to_cr(p, 3, layout::page_tables); }},
      {"mov_to_cr4", {I::write_cr4}, [](Program& p) { mov_to_cr(p, 4, 0xa0); }},
      {"clts",
       {I::write_cr0},
       [](Program& p) {
         p.add("clts", {0x0f, 0x06}, ActionKind::clts);
       },
       set_ts},
      {"lmsw_same",
       {I::write_cr0, I::cr0_sel_write},
       [](Program& p) {
         p.load_eax(0x33).add("lmsw", {0x0f, 0x01, 0xf0}, action(ActionKind::lmsw, 0, 0x33));
       }},
      {"lmsw_ts",
       {I::write_cr0, I::cr0_sel_write},
       [](Program& p) {
         p.load_eax(0x3b).add("lmsw", {0x0f, 0x01, 0xf0}, action(ActionKind::lmsw, 0, 0x3b));
       }},
      {"lmsw_mp",
       {I::write_cr0, I::cr0_sel_write},
       [](Program& p) {
         p.load_eax(0x31).add("lmsw", {0x0f, 0x01, 0xf0}, action(ActionKind::lmsw, 0, 0x31));
       }},
      {"smsw",
       {I::read_cr0},
       [](Program& p) {
         p.add("smsw", {0x0f, 0x01, 0xe0}, ActionKind::smsw);
       }},
      {"mov_from_dr0", {I::read_dr0}, mov_from_dr<0>},
      {"mov_from_dr1", {I::read_dr1}, mov_from_dr<1>},
      {"mov_from_dr2", {I::read_dr2}, mov_from_dr<2>},
      {"mov_from_dr3", {I::read_dr3}, mov_from_dr<3>},
      {"mov_from_dr6", {I::read_dr6}, mov_from_dr<6>},
      {"mov_from_dr7", {I::read_dr7}, mov_from_dr<7>},
      {"mov_to_dr0", {I::write_dr0}, mov_to_dr<0, 0x1000>},
      {"mov_to_dr1", {I::write_dr1}, mov_to_dr<1, 0x1000>},
      {"mov_to_dr2", {I::write_dr2}, mov_to_dr<2, 0x1000>},
      {"mov_to_dr3", {I::write_dr3}, mov_to_dr<3, 0x1000>},
      {"mov_to_dr6", {I::write_dr6}, mov_to_dr<6, 0xffff0ff0>},
      {"mov_to_dr7", {I::write_dr7}, mov_to_dr<7, 0x400>},
      {"pushf", {I::pushf}, [](Program& p) { p.add("pushf", {0x9c}, ActionKind::pushf); }},
      {"popf",
       {I::popf},
       [](Program& p) { p.push(0x2).add("popf", {0x9d}, action(ActionKind::popf, 0, 0x2)); }},
      {"popf_if",
       {I::popf},
       [](Program& p) { p.push(0x202).add("popf", {0x9d}, action(ActionKind::popf, 0, 0x202)); }},
      {"mov_ss",
       {},
       [](Program& p) {
         const std::uint32_t selector = p.cpl() == 3 ? layout::user_data_selector : layout::data_selector;
         p.load_eax(selector).add("mov_ss", {0x8e, 0xd0}, ActionKind::mov_ss);
       }},
      {"int_n",
       {I::swint},
       [](Program& p) {
         p.add("int_n", {0xcd, 0x80}, action(ActionKind::int_n, 0x80));
       }},
      {"int_3_long",
       {I::swint},
       [](Program& p) {
         p.add("int_n", {0xcd, 0x03}, action(ActionKind::int_n, 3));
       }},
      {"int3", {I::exception_3}, [](Program& p) { p.add("int3", {0xcc}, ActionKind::int3); }},
      {"icebp", {I::icebp}, [](Program& p) { p.add("icebp", {0xf1}, ActionKind::icebp); }},
      {"rsm",
       {I::rsm},
       [](Program& p) {
         p.add("rsm", {0x0f, 0xaa}, ActionKind::rsm);
       }},
      {"invd",
       {I::invd},
       [](Program& p) {
         p.add("invd", {0x0f, 0x08}, ActionKind::invd);
       }},
      {"wbinvd",
       {I::wbinvd},
       [](Program& p) {
         p.add("wbinvd", {0x0f, 0x09}, ActionKind::wbinvd);
       }},
      {"invlpg",
       {I::invlpg},
       [](Program& p) {
         p.add32("invlpg", {0x0f, 0x01, 0x3c, 0x25}, layout::plain_page,
                 action(ActionKind::invlpg, 0, 0, layout::plain_page));
       }},
      {"invlpga",
       {I::invlpga},
       [](Program& p) {
         p.load_eax(layout::plain_page).load_ecx(1);
         p.add("invlpga", {0x0f, 0x01, 0xdf}, action(ActionKind::invlpga, 1, 0, layout::plain_page));
       }},
      {"monitor",
       {I::monitor},
       [](Program& p) {
         p.load_eax(layout::plain_page).load_ecx(0).load_edx(0);
         p.add("monitor", {0x0f, 0x01, 0xc8}, action(ActionKind::monitor, 0, 0, layout::plain_page));
       }},
      {"mwait",
       {I::mwait, I::mwait_conditional},
       [](Program& p) {
         p.load_eax(0).load_ecx(0).add("mwait", {0x0f, 0x01, 0xc9}, ActionKind::mwait);
       },
       nullptr,
       true},
      {"monitor_mwait",
       {I::mwait, I::mwait_conditional, I::monitor},
       [](Program& p) {
         p.load_eax(layout::plain_page).load_ecx(0).load_edx(0);
         p.add("monitor", {0x0f, 0x01, 0xc8}, action(ActionKind::monitor, 0, 0, layout::plain_page));
         p.load_eax(0).add("mwait", {0x0f, 0x01, 0xc9}, ActionKind::mwait);
       },
       nullptr,
       true},
      {"xsetbv",
       {I::xsetbv},
       [](Program& p) {
         p.load_eax(1).load_ecx(0).load_edx(0).add("xsetbv", {0x0f, 0x01, 0xd1},
                                                   action(ActionKind::xsetbv, 0, 1));
       },
       set_osxsave},
      {"xsetbv_bad",
       {I::xsetbv},
       [](Program& p) {
         p.load_eax(0).load_ecx(0).load_edx(0).add("xsetbv", {0x0f, 0x01, 0xd1},
                                                   action(ActionKind::xsetbv, 0, 0));
       },
       set_osxsave},
      {"skinit",
       {I::skinit},
       [](Program& p) {
         p.load_eax(0).add("skinit", {0x0f, 0x01, 0xde}, ActionKind::skinit);
       },
       nullptr,
       true},
      {"vmrun",
       {I::vmrun},
       [](Program& p) {
         p.load_eax(layout::plain_page);
         p.add("vmrun", {0x0f, 0x01, 0xd8}, action(ActionKind::vmrun, 0, 0, layout::plain_page));
       },
       nullptr,
       true},
      {"vmrun_misaligned",
       {I::vmrun},
       [](Program& p) {
         p.load_eax(layout::plain_page + 8);
         p.add("vmrun", {0x0f, 0x01, 0xd8}, action(ActionKind::vmrun, 0, 0, layout::plain_page + 8));
       },
       nullptr,
       true},
      {"vmload",
       {I::vmload},
       [](Program& p) {
         p.load_eax(layout::plain_page);
         p.add("vmload", {0x0f, 0x01, 0xda}, action(ActionKind::vmload, 0, 0, layout::plain_page));
       }},
      {"vmsave",
       {I::vmsave},
       [](Program& p) {
         p.load_eax(layout::plain_page);
         p.add("vmsave", {0x0f, 0x01, 0xdb}, action(ActionKind::vmsave, 0, 0, layout::plain_page));
       }},
      {"vmload_misaligned",
       {I::vmload},
       [](Program& p) {
         p.load_eax(layout::plain_page + 8);
         p.add("vmload", {0x0f, 0x01, 0xda}, action(ActionKind::vmload, 0, 0, layout::plain_page + 8));
       }},
      {"stgi",
       {I::stgi},
       [](Program& p) {
         p.add("stgi", {0x0f, 0x01, 0xdc}, ActionKind::stgi);
       }},
      {"clgi",
       {I::clgi},
       [](Program& p) {
         p.add("clgi", {0x0f, 0x01, 0xdd}, ActionKind::clgi);
       }},
  };

  const auto store = [&cases](std::string_view name, Intercept own, void (*emit)(Program&)) {
    cases.push_back({name, {own}, emit, nullptr, false});
  };
  store("sidt", I::idtr_read, [](Program& p) {
    p.add32("sidt", {0x0f, 0x01, 0x0c, 0x25}, descriptor_operand,
            action(ActionKind::sidt, 0, 0, descriptor_operand));
  });
  store("sgdt", I::gdtr_read, [](Program& p) {
    p.add32("sgdt", {0x0f, 0x01, 0x04, 0x25}, descriptor_operand,
            action(ActionKind::sgdt, 0, 0, descriptor_operand));
  });
  store("sldt", I::ldtr_read, [](Program& p) {
    p.add32("sldt", {0x0f, 0x00, 0x04, 0x25}, descriptor_operand,
            action(ActionKind::sldt, 0, 0, descriptor_operand));
  });
  store("str", I::tr_read, [](Program& p) {
    p.add32("str", {0x0f, 0x00, 0x0c, 0x25}, descriptor_operand,
            action(ActionKind::str, 0, 0, descriptor_operand));
  });
  store("lldt", I::ldtr_write, [](Program& p) {
    p.load_eax(layout::ldt_selector)
        .add("lldt", {0x0f, 0x00, 0xd0}, action(ActionKind::lldt, 0, layout::ldt_selector));
  });
  store("ltr", I::tr_write, [](Program& p) {
    p.load_eax(layout::spare_task_selector);
    p.add("ltr", {0x0f, 0x00, 0xd8}, action(ActionKind::ltr, 0, layout::spare_task_selector));
  });
  // The operand is what SGDT and SIDT stored there before.
  const auto load_table = [](Program& p, std::string_view label, unsigned extension, std::uint64_t base,
                             ActionKind kind) {
    p.load_rax(base);
    p.add32("", {0x48, 0x89, 0x04, 0x25}, descriptor_operand + 2, action(ActionKind::nop));  // MOV [..], RAX
    p.quiet({0x66, 0xb8, 0xff, 0x0f})
        .add32("", {0x66, 0x89, 0x04, 0x25}, descriptor_operand, action(ActionKind::nop));
    GuestAction load = action(kind, 0, base, descriptor_operand);
    load.operand[2] = 0xfff;
    p.add32(label, {0x0f, 0x01, extension, 0x25}, descriptor_operand, load);
  };
  static const auto table = load_table;
  store("lidt", I::idtr_write,
        [](Program& p) { table(p, "lidt", 0x1c, layout::guest_idt, ActionKind::lidt); });
  store("lgdt", I::gdtr_write, [](Program& p) { table(p, "lgdt", 0x14, layout::gdt, ActionKind::lgdt); });
  return cases;
}

}  // namespace

const std::vector<ActionCase>& action_cases() {
  static const std::vector<ActionCase> cases = make_actions();
  return cases;
}

void emit_rdmsr(Program& program, std::uint32_t msr) {
  program.load_ecx(msr).add("rdmsr", {0x0f, 0x32}, action(ActionKind::rdmsr, msr));
}

void emit_wrmsr(Program& program, std::uint32_t msr, std::uint64_t value) {
  program.load_ecx(msr)
      .load_eax(static_cast<std::uint32_t>(value))
      .load_edx(static_cast<std::uint32_t>(value >> 32));
  program.add("wrmsr", {0x0f, 0x30}, action(ActionKind::wrmsr, msr, value));
}

void emit_io(Program& program, bool write, std::uint16_t port, unsigned size) {
  GuestAction io = action(write ? ActionKind::out : ActionKind::in, port);
  io.size = static_cast<std::uint8_t>(size);
  program.load_edx(port);
  const unsigned opcode = (write ? 0xeeU : 0xecU) | (size == 1 ? 0U : 1U);
  const std::string_view label = write ? "out" : "in";
  if (size == 2) {
    program.add(label, {0x66, opcode}, io);
  } else {
    program.add(label, {opcode}, io);
  }
}

void emit_self_ipi(Program& program, std::uint32_t icr_low) {
  program.load_edi(layout::apic);
  program.add32("", {0xc7, 0x87, 0x10, 0x03, 0, 0}, 0, action(ActionKind::nop));  // ICR high: destination 0
  GuestAction send = memory_action(ActionKind::memory_write, layout::apic + 0x300, 4);
  send.operand[0] = icr_low;
  program.add32("self_ipi", {0xc7, 0x87, 0x00, 0x03, 0, 0}, icr_low, send);
  program.transparent_jump();
}

}  // namespace svmsim::oracle
