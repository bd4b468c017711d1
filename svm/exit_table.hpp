#pragma once

// The one table of exit codes (APM vol. 2, appendix C, table C-1). svm/exit_code.hpp makes constants and
// names of it, svm/intercept.hpp the intercepts. A row is
//   X(identifier, code, name in the manual, name in Linux, CPUID feature, meaning)
// The name in Linux is what kvm_exit prints (arch/x86/include/uapi/asm/svm.h), "" where it prints the number.

// clang-format off

/// Exits with an intercept bit: the code is the bit's index over the six intercept words.
#define SVMSIM_INTERCEPT_EXITS(X) \
  X(read_cr0, 0x000, "CR0_READ", "read_cr0", SVMSIM_NO_FEATURE, "MOV from CR0, or SMSW.")                   \
  X(read_cr1, 0x001, "CR1_READ", "", SVMSIM_NO_FEATURE, "MOV from CR1.")                                    \
  X(read_cr2, 0x002, "CR2_READ", "read_cr2", SVMSIM_NO_FEATURE, "MOV from CR2.")                            \
  X(read_cr3, 0x003, "CR3_READ", "read_cr3", SVMSIM_NO_FEATURE, "MOV from CR3.")                            \
  X(read_cr4, 0x004, "CR4_READ", "read_cr4", SVMSIM_NO_FEATURE, "MOV from CR4.")                            \
  X(read_cr5, 0x005, "CR5_READ", "", SVMSIM_NO_FEATURE, "MOV from CR5.")                                    \
  X(read_cr6, 0x006, "CR6_READ", "", SVMSIM_NO_FEATURE, "MOV from CR6.")                                    \
  X(read_cr7, 0x007, "CR7_READ", "", SVMSIM_NO_FEATURE, "MOV from CR7.")                                    \
  X(read_cr8, 0x008, "CR8_READ", "read_cr8", SVMSIM_NO_FEATURE, "MOV from CR8.")                            \
  X(read_cr9, 0x009, "CR9_READ", "", SVMSIM_NO_FEATURE, "MOV from CR9.")                                    \
  X(read_cr10, 0x00a, "CR10_READ", "", SVMSIM_NO_FEATURE, "MOV from CR10.")                                 \
  X(read_cr11, 0x00b, "CR11_READ", "", SVMSIM_NO_FEATURE, "MOV from CR11.")                                 \
  X(read_cr12, 0x00c, "CR12_READ", "", SVMSIM_NO_FEATURE, "MOV from CR12.")                                 \
  X(read_cr13, 0x00d, "CR13_READ", "", SVMSIM_NO_FEATURE, "MOV from CR13.")                                 \
  X(read_cr14, 0x00e, "CR14_READ", "", SVMSIM_NO_FEATURE, "MOV from CR14.")                                 \
  X(read_cr15, 0x00f, "CR15_READ", "", SVMSIM_NO_FEATURE, "MOV from CR15.")                                 \
  X(write_cr0, 0x010, "CR0_WRITE", "write_cr0", SVMSIM_NO_FEATURE, "MOV to CR0, or LMSW or CLTS.")          \
  X(write_cr1, 0x011, "CR1_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR1.")                                    \
  X(write_cr2, 0x012, "CR2_WRITE", "write_cr2", SVMSIM_NO_FEATURE, "MOV to CR2.")                           \
  X(write_cr3, 0x013, "CR3_WRITE", "write_cr3", SVMSIM_NO_FEATURE, "MOV to CR3.")                           \
  X(write_cr4, 0x014, "CR4_WRITE", "write_cr4", SVMSIM_NO_FEATURE, "MOV to CR4.")                           \
  X(write_cr5, 0x015, "CR5_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR5.")                                    \
  X(write_cr6, 0x016, "CR6_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR6.")                                    \
  X(write_cr7, 0x017, "CR7_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR7.")                                    \
  X(write_cr8, 0x018, "CR8_WRITE", "write_cr8", SVMSIM_NO_FEATURE, "MOV to CR8.")                           \
  X(write_cr9, 0x019, "CR9_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR9.")                                    \
  X(write_cr10, 0x01a, "CR10_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR10.")                                 \
  X(write_cr11, 0x01b, "CR11_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR11.")                                 \
  X(write_cr12, 0x01c, "CR12_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR12.")                                 \
  X(write_cr13, 0x01d, "CR13_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR13.")                                 \
  X(write_cr14, 0x01e, "CR14_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR14.")                                 \
  X(write_cr15, 0x01f, "CR15_WRITE", "", SVMSIM_NO_FEATURE, "MOV to CR15.")                                 \
  X(read_dr0, 0x020, "DR0_READ", "read_dr0", SVMSIM_NO_FEATURE, "MOV from DR0.")                            \
  X(read_dr1, 0x021, "DR1_READ", "read_dr1", SVMSIM_NO_FEATURE, "MOV from DR1.")                            \
  X(read_dr2, 0x022, "DR2_READ", "read_dr2", SVMSIM_NO_FEATURE, "MOV from DR2.")                            \
  X(read_dr3, 0x023, "DR3_READ", "read_dr3", SVMSIM_NO_FEATURE, "MOV from DR3.")                            \
  X(read_dr4, 0x024, "DR4_READ", "read_dr4", SVMSIM_NO_FEATURE, "MOV from DR4.")                            \
  X(read_dr5, 0x025, "DR5_READ", "read_dr5", SVMSIM_NO_FEATURE, "MOV from DR5.")                            \
  X(read_dr6, 0x026, "DR6_READ", "read_dr6", SVMSIM_NO_FEATURE, "MOV from DR6.")                            \
  X(read_dr7, 0x027, "DR7_READ", "read_dr7", SVMSIM_NO_FEATURE, "MOV from DR7.")                            \
  X(read_dr8, 0x028, "DR8_READ", "", SVMSIM_NO_FEATURE, "MOV from DR8.")                                    \
  X(read_dr9, 0x029, "DR9_READ", "", SVMSIM_NO_FEATURE, "MOV from DR9.")                                    \
  X(read_dr10, 0x02a, "DR10_READ", "", SVMSIM_NO_FEATURE, "MOV from DR10.")                                 \
  X(read_dr11, 0x02b, "DR11_READ", "", SVMSIM_NO_FEATURE, "MOV from DR11.")                                 \
  X(read_dr12, 0x02c, "DR12_READ", "", SVMSIM_NO_FEATURE, "MOV from DR12.")                                 \
  X(read_dr13, 0x02d, "DR13_READ", "", SVMSIM_NO_FEATURE, "MOV from DR13.")                                 \
  X(read_dr14, 0x02e, "DR14_READ", "", SVMSIM_NO_FEATURE, "MOV from DR14.")                                 \
  X(read_dr15, 0x02f, "DR15_READ", "", SVMSIM_NO_FEATURE, "MOV from DR15.")                                 \
  X(write_dr0, 0x030, "DR0_WRITE", "write_dr0", SVMSIM_NO_FEATURE, "MOV to DR0.")                           \
  X(write_dr1, 0x031, "DR1_WRITE", "write_dr1", SVMSIM_NO_FEATURE, "MOV to DR1.")                           \
  X(write_dr2, 0x032, "DR2_WRITE", "write_dr2", SVMSIM_NO_FEATURE, "MOV to DR2.")                           \
  X(write_dr3, 0x033, "DR3_WRITE", "write_dr3", SVMSIM_NO_FEATURE, "MOV to DR3.")                           \
  X(write_dr4, 0x034, "DR4_WRITE", "write_dr4", SVMSIM_NO_FEATURE, "MOV to DR4.")                           \
  X(write_dr5, 0x035, "DR5_WRITE", "write_dr5", SVMSIM_NO_FEATURE, "MOV to DR5.")                           \
  X(write_dr6, 0x036, "DR6_WRITE", "write_dr6", SVMSIM_NO_FEATURE, "MOV to DR6.")                           \
  X(write_dr7, 0x037, "DR7_WRITE", "write_dr7", SVMSIM_NO_FEATURE, "MOV to DR7.")                           \
  X(write_dr8, 0x038, "DR8_WRITE", "", SVMSIM_NO_FEATURE, "MOV to DR8.")                                    \
  X(write_dr9, 0x039, "DR9_WRITE", "", SVMSIM_NO_FEATURE, "MOV to DR9.")                                    \
  X(write_dr10, 0x03a, "DR10_WRITE", "", SVMSIM_NO_FEATURE, "MOV to DR10.")                                 \
  X(write_dr11, 0x03b, "DR11_WRITE", "", SVMSIM_NO_FEATURE, "MOV to DR11.")                                 \
  X(write_dr12, 0x03c, "DR12_WRITE", "", SVMSIM_NO_FEATURE, "MOV to DR12.")                                 \
  X(write_dr13, 0x03d, "DR13_WRITE", "", SVMSIM_NO_FEATURE, "MOV to DR13.")                                 \
  X(write_dr14, 0x03e, "DR14_WRITE", "", SVMSIM_NO_FEATURE, "MOV to DR14.")                                 \
  X(write_dr15, 0x03f, "DR15_WRITE", "", SVMSIM_NO_FEATURE, "MOV to DR15.")                                 \
  X(exception_0, 0x040, "EXCP0", "DE excp", SVMSIM_NO_FEATURE, "Divide error exception.")                   \
  X(exception_1, 0x041, "EXCP1", "DB excp", SVMSIM_NO_FEATURE, "Debug exception.")                          \
  X(exception_2, 0x042, "EXCP2", "", SVMSIM_NO_FEATURE, "Not an exception; this intercept is undefined.") \
  X(exception_3, 0x043, "EXCP3", "BP excp", SVMSIM_NO_FEATURE, "Breakpoint (INT3) exception.")              \
  X(exception_4, 0x044, "EXCP4", "OF excp", SVMSIM_NO_FEATURE, "Overflow (INTO) exception.")                \
  X(exception_5, 0x045, "EXCP5", "BR excp", SVMSIM_NO_FEATURE, "Bound range exception.")                    \
  X(exception_6, 0x046, "EXCP6", "UD excp", SVMSIM_NO_FEATURE, "Invalid opcode exception.")                 \
  X(exception_7, 0x047, "EXCP7", "NM excp", SVMSIM_NO_FEATURE, "Device not available exception.")           \
  X(exception_8, 0x048, "EXCP8", "DF excp", SVMSIM_NO_FEATURE, "Double fault exception.")                   \
  X(exception_9, 0x049, "EXCP9", "", SVMSIM_NO_FEATURE, "Not an exception; this intercept is undefined.") \
  X(exception_10, 0x04a, "EXCP10", "TS excp", SVMSIM_NO_FEATURE, "Invalid TSS exception.")                  \
  X(exception_11, 0x04b, "EXCP11", "NP excp", SVMSIM_NO_FEATURE, "Segment not present exception.")          \
  X(exception_12, 0x04c, "EXCP12", "SS excp", SVMSIM_NO_FEATURE, "Stack exception.")                        \
  X(exception_13, 0x04d, "EXCP13", "GP excp", SVMSIM_NO_FEATURE, "General protection exception.")           \
  X(exception_14, 0x04e, "EXCP14", "PF excp", SVMSIM_NO_FEATURE, "Page fault exception.")                   \
  X(exception_15, 0x04f, "EXCP15", "", SVMSIM_NO_FEATURE, "Reserved exception vector.")                     \
  X(exception_16, 0x050, "EXCP16", "MF excp", SVMSIM_NO_FEATURE, "x87 floating-point exception.")           \
  X(exception_17, 0x051, "EXCP17", "AC excp", SVMSIM_NO_FEATURE, "Alignment check exception.")              \
  X(exception_18, 0x052, "EXCP18", "MC excp", SVMSIM_NO_FEATURE, "Machine check exception.")                \
  X(exception_19, 0x053, "EXCP19", "XF excp", SVMSIM_NO_FEATURE, "SIMD floating-point exception.")          \
  X(exception_20, 0x054, "EXCP20", "", SVMSIM_NO_FEATURE, "Reserved exception vector.")                     \
  X(exception_21, 0x055, "EXCP21", "", SVMSIM_NO_FEATURE, "Control protection exception.")                  \
  X(exception_22, 0x056, "EXCP22", "", SVMSIM_NO_FEATURE, "Reserved exception vector.")                     \
  X(exception_23, 0x057, "EXCP23", "", SVMSIM_NO_FEATURE, "Reserved exception vector.")                     \
  X(exception_24, 0x058, "EXCP24", "", SVMSIM_NO_FEATURE, "Reserved exception vector.")                     \
  X(exception_25, 0x059, "EXCP25", "", SVMSIM_NO_FEATURE, "Reserved exception vector.")                     \
  X(exception_26, 0x05a, "EXCP26", "", SVMSIM_NO_FEATURE, "Reserved exception vector.")                     \
  X(exception_27, 0x05b, "EXCP27", "", SVMSIM_NO_FEATURE, "Reserved exception vector.")                     \
  X(exception_28, 0x05c, "EXCP28", "", SVMSIM_NO_FEATURE, "Hypervisor injection exception.")                \
  X(exception_29, 0x05d, "EXCP29", "", SVMSIM_NO_FEATURE, "VMM communication exception.")                   \
  X(exception_30, 0x05e, "EXCP30", "", SVMSIM_NO_FEATURE, "Security exception.")                            \
  X(exception_31, 0x05f, "EXCP31", "", SVMSIM_NO_FEATURE, "Reserved exception vector.")                     \
  X(intr, 0x060, "INTR", "interrupt", SVMSIM_NO_FEATURE,                                                    \
    "Physical maskable interrupt; it stays pending and is not acknowledged.")                               \
  X(nmi, 0x061, "NMI", "nmi", SVMSIM_NO_FEATURE, "Physical NMI; it stays pending.")                         \
  X(smi, 0x062, "SMI", "smi", SVMSIM_NO_FEATURE, "System management interrupt.")                            \
  X(init, 0x063, "INIT", "init", SVMSIM_NO_FEATURE, "INIT; it stays pending.")                              \
  X(vintr, 0x064, "VINTR", "vintr", SVMSIM_NO_FEATURE,                                                      \
    "A virtual interrupt is about to be taken; V_IRQ stays set.")                                           \
  X(cr0_sel_write, 0x065, "CR0_SEL_WRITE", "cr0_sel_write", SVMSIM_NO_FEATURE,                              \
    "MOV to CR0 or LMSW that changes bits other than TS and MP.")                                           \
  X(idtr_read, 0x066, "IDTR_READ", "read_idtr", SVMSIM_NO_FEATURE, "SIDT.")                                 \
  X(gdtr_read, 0x067, "GDTR_READ", "read_gdtr", SVMSIM_NO_FEATURE, "SGDT.")                                 \
  X(ldtr_read, 0x068, "LDTR_READ", "read_ldtr", SVMSIM_NO_FEATURE, "SLDT.")                                 \
  X(tr_read, 0x069, "TR_READ", "read_rt", SVMSIM_NO_FEATURE, "STR.")                                        \
  X(idtr_write, 0x06a, "IDTR_WRITE", "write_idtr", SVMSIM_NO_FEATURE, "LIDT.")                              \
  X(gdtr_write, 0x06b, "GDTR_WRITE", "write_gdtr", SVMSIM_NO_FEATURE, "LGDT.")                              \
  X(ldtr_write, 0x06c, "LDTR_WRITE", "write_ldtr", SVMSIM_NO_FEATURE, "LLDT.")                              \
  X(tr_write, 0x06d, "TR_WRITE", "write_rt", SVMSIM_NO_FEATURE, "LTR.")                                     \
  X(rdtsc, 0x06e, "RDTSC", "rdtsc", SVMSIM_NO_FEATURE, "RDTSC.")                                            \
  X(rdpmc, 0x06f, "RDPMC", "rdpmc", SVMSIM_NO_FEATURE, "RDPMC.")                                            \
  X(pushf, 0x070, "PUSHF", "pushf", SVMSIM_NO_FEATURE, "PUSHF.")                                            \
  X(popf, 0x071, "POPF", "popf", SVMSIM_NO_FEATURE, "POPF.")                                                \
  X(cpuid, 0x072, "CPUID", "cpuid", SVMSIM_NO_FEATURE, "CPUID.")                                            \
  X(rsm, 0x073, "RSM", "rsm", SVMSIM_NO_FEATURE, "RSM.")                                                    \
  X(iret, 0x074, "IRET", "iret", SVMSIM_NO_FEATURE, "IRET.")                                                \
  X(swint, 0x075, "SWINT", "swint", SVMSIM_NO_FEATURE, "INTn, the software interrupt with a vector byte.")  \
  X(invd, 0x076, "INVD", "invd", SVMSIM_NO_FEATURE, "INVD.")                                                \
  X(pause, 0x077, "PAUSE", "pause", SVMSIM_NO_FEATURE, "PAUSE, after the PAUSE filter.")                    \
  X(hlt, 0x078, "HLT", "hlt", SVMSIM_NO_FEATURE, "HLT with the HLT intercept.")                             \
  X(invlpg, 0x079, "INVLPG", "invlpg", SVMSIM_NO_FEATURE, "INVLPG.")                                        \
  X(invlpga, 0x07a, "INVLPGA", "invlpga", SVMSIM_NO_FEATURE, "INVLPGA.")                                    \
  X(ioio, 0x07b, "IOIO", "io", SVMSIM_NO_FEATURE, "IN, OUT, INS or OUTS on a port whose IOPM bit is set.")  \
  X(msr, 0x07c, "MSR", "msr", SVMSIM_NO_FEATURE,                                                            \
    "RDMSR or WRMSR on an MSR whose MSRPM bit is set, or outside the map.")                                 \
  X(task_switch, 0x07d, "TASK_SWITCH", "task_switch", SVMSIM_NO_FEATURE, "Task switch.")                    \
  X(ferr_freeze, 0x07e, "FERR_FREEZE", "ferr_freeze", SVMSIM_NO_FEATURE,                                    \
    "The processor freezes while it waits for an x87 error interrupt.")                                     \
  X(shutdown, 0x07f, "SHUTDOWN", "shutdown", SVMSIM_NO_FEATURE,                                             \
    "Shutdown, for example after a triple fault.")                                                          \
  X(vmrun, 0x080, "VMRUN", "vmrun", SVMSIM_NO_FEATURE, "VMRUN in the guest.")                               \
  X(vmmcall, 0x081, "VMMCALL", "hypercall", SVMSIM_NO_FEATURE, "VMMCALL.")                                  \
  X(vmload, 0x082, "VMLOAD", "vmload", SVMSIM_NO_FEATURE, "VMLOAD.")                                        \
  X(vmsave, 0x083, "VMSAVE", "vmsave", SVMSIM_NO_FEATURE, "VMSAVE.")                                        \
  X(stgi, 0x084, "STGI", "stgi", SVMSIM_NO_FEATURE, "STGI.")                                                \
  X(clgi, 0x085, "CLGI", "clgi", SVMSIM_NO_FEATURE, "CLGI.")                                                \
  X(skinit, 0x086, "SKINIT", "skinit", SVMSIM_NO_FEATURE, "SKINIT.")                                        \
  X(rdtscp, 0x087, "RDTSCP", "rdtscp", SVMSIM_NO_FEATURE, "RDTSCP.")                                        \
  X(icebp, 0x088, "ICEBP", "icebp", SVMSIM_NO_FEATURE, "ICEBP (INT1).")                                     \
  X(wbinvd, 0x089, "WBINVD", "wbinvd", SVMSIM_NO_FEATURE, "WBINVD or WBNOINVD.")                            \
  X(monitor, 0x08a, "MONITOR", "monitor", SVMSIM_NO_FEATURE, "MONITOR or MONITORX.")                        \
  X(mwait, 0x08b, "MWAIT", "mwait", SVMSIM_NO_FEATURE, "MWAIT or MWAITX, unconditionally.")                 \
  X(mwait_conditional, 0x08c, "MWAIT_CONDITIONAL", "", SVMSIM_NO_FEATURE,                                   \
    "MWAIT or MWAITX while the monitor is armed.")                                                          \
  X(xsetbv, 0x08d, "XSETBV", "xsetbv", SVMSIM_NO_FEATURE, "XSETBV.")                                        \
  X(rdpru, 0x08e, "RDPRU", "", SVMSIM_NO_FEATURE, "RDPRU.")                                                 \
  X(efer_write_trap, 0x08f, "EFER_WRITE_TRAP", "write_efer_trap", SVMSIM_NO_FEATURE,                        \
    "EFER was written (SEV-ES); rIP is after the instruction.")                                             \
  X(cr0_write_trap, 0x090, "CR0_WRITE_TRAP", "write_cr0_trap", SVMSIM_NO_FEATURE,                           \
    "CR0 was written (SEV-ES); rIP is after the instruction.")                                              \
  X(cr1_write_trap, 0x091, "CR1_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                         \
    "CR1 was written (SEV-ES); rIP is after the instruction.")                                              \
  X(cr2_write_trap, 0x092, "CR2_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                         \
    "CR2 was written (SEV-ES); rIP is after the instruction.")                                              \
  X(cr3_write_trap, 0x093, "CR3_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                         \
    "CR3 was written (SEV-ES); rIP is after the instruction.")                                              \
  X(cr4_write_trap, 0x094, "CR4_WRITE_TRAP", "write_cr4_trap", SVMSIM_NO_FEATURE,                           \
    "CR4 was written (SEV-ES); rIP is after the instruction.")                                              \
  X(cr5_write_trap, 0x095, "CR5_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                         \
    "CR5 was written (SEV-ES); rIP is after the instruction.")                                              \
  X(cr6_write_trap, 0x096, "CR6_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                         \
    "CR6 was written (SEV-ES); rIP is after the instruction.")                                              \
  X(cr7_write_trap, 0x097, "CR7_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                         \
    "CR7 was written (SEV-ES); rIP is after the instruction.")                                              \
  X(cr8_write_trap, 0x098, "CR8_WRITE_TRAP", "write_cr8_trap", SVMSIM_NO_FEATURE,                           \
    "CR8 was written (SEV-ES); rIP is after the instruction.")                                              \
  X(cr9_write_trap, 0x099, "CR9_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                         \
    "CR9 was written (SEV-ES); rIP is after the instruction.")                                              \
  X(cr10_write_trap, 0x09a, "CR10_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                       \
    "CR10 was written (SEV-ES); rIP is after the instruction.")                                             \
  X(cr11_write_trap, 0x09b, "CR11_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                       \
    "CR11 was written (SEV-ES); rIP is after the instruction.")                                             \
  X(cr12_write_trap, 0x09c, "CR12_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                       \
    "CR12 was written (SEV-ES); rIP is after the instruction.")                                             \
  X(cr13_write_trap, 0x09d, "CR13_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                       \
    "CR13 was written (SEV-ES); rIP is after the instruction.")                                             \
  X(cr14_write_trap, 0x09e, "CR14_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                       \
    "CR14 was written (SEV-ES); rIP is after the instruction.")                                             \
  X(cr15_write_trap, 0x09f, "CR15_WRITE_TRAP", "", SVMSIM_NO_FEATURE,                                       \
    "CR15 was written (SEV-ES); rIP is after the instruction.")                                             \
  X(invlpgb, 0x0a0, "INVLPGB", "", SVMSIM_NO_FEATURE, "INVLPGB.")                                           \
  X(invlpgb_illegal, 0x0a1, "INVLPGB_ILLEGAL", "", SVMSIM_NO_FEATURE,                                       \
    "INVLPGB in a form that a guest may not use.")                                                          \
  X(invpcid, 0x0a2, "INVPCID", "invpcid", SVMSIM_NO_FEATURE, "INVPCID.")                                    \
  X(mcommit, 0x0a3, "MCOMMIT", "", SVMSIM_NO_FEATURE, "MCOMMIT.")                                           \
  X(tlbsync, 0x0a4, "TLBSYNC", "", Feature::tlbi_ctl, "TLBSYNC.")                                           \
  X(buslock, 0x0a5, "BUSLOCK", "buslock", Feature::bus_lock_threshold,                                      \
    "Bus lock while the bus-lock threshold counter is 0.")                                                  \
  X(idle_hlt, 0x0a6, "IDLE_HLT", "idle-halt", Feature::idle_hlt,                                            \
    "HLT with the idle-HLT intercept while no virtual interrupt is pending.")

/// Exits without an intercept bit.
#define SVMSIM_OTHER_EXITS(X) \
  X(npf, 0x400, "NPF", "npf", Feature::np, "The nested page tables do not allow an access.")                \
  X(avic_incomplete_ipi, 0x401, "AVIC_INCOMPLETE_IPI", "avic_incomplete_ipi", Feature::avic,                \
    "AVIC could not complete an IPI.")                                                                      \
  X(avic_noaccel, 0x402, "AVIC_NOACCEL", "avic_unaccelerated_access", Feature::avic,                        \
    "Guest access to an APIC register that AVIC does not accelerate.")                                      \
  X(vmgexit, 0x403, "VMGEXIT", "vmgexit", SVMSIM_NO_FEATURE, "VMGEXIT of an SEV-ES guest.")                 \
  X(invalid, ~std::uint64_t{0}, "INVALID", "invalid_guest_state", SVMSIM_NO_FEATURE,                        \
    "VMRUN failed a consistency check; the guest did not run.")                                             \
  X(busy, ~std::uint64_t{1}, "BUSY", "", SVMSIM_NO_FEATURE, "The VMSA is in use (SEV).")                    \
  X(idle_required, ~std::uint64_t{2}, "IDLE_REQUIRED", "", SVMSIM_NO_FEATURE,                               \
    "The sibling thread is not idle (SMT protection).")                                                     \
  X(invalid_pmc, ~std::uint64_t{3}, "INVALID_PMC", "", SVMSIM_NO_FEATURE,                                   \
    "The performance counter state in the VMCB is not valid.")

// clang-format on
