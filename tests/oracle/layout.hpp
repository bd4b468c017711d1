#pragma once

// What the oracle kernel and the runner agree on: physical addresses, the vector file, and what the guest's
// handlers are made of. Freestanding: the kernel is built without a library.

#include <stdint.h>

namespace svmsim::oracle::layout {

// Identity-mapped and reserved by the kernel's linker script. The guest runs on the host's page tables; with
// nested paging on, a second set of identity tables lies under it.
inline constexpr uint32_t arena = 0x200000;
inline constexpr uint32_t page_tables = 0x200000;       ///< PML4, PDPT, four page directories
inline constexpr uint32_t playground_table = 0x206000;  ///< maps the playground's 2 MiB in 4 KiB pages
inline constexpr uint32_t nested_tables = 0x207000;
inline constexpr uint32_t nested_playground_table = 0x20d000;
inline constexpr uint32_t vmcb = 0x20e000;
inline constexpr uint32_t host_vmcb = 0x20f000;  ///< of VMSAVE and VMLOAD around the guest
inline constexpr uint32_t host_save = 0x210000;
inline constexpr uint32_t msr_map = 0x211000;
inline constexpr uint32_t io_map = 0x213000;
inline constexpr uint32_t guest_idt = 0x216000;
inline constexpr uint32_t host_idt = 0x217000;
inline constexpr uint32_t code = 0x218000;      ///< the vector's guest program
inline constexpr uint32_t handlers = 0x219000;  ///< of the guest, handler_size bytes for each vector
inline constexpr uint32_t guest_counts = 0x21b000;
inline constexpr uint32_t host_counts = 0x21b100;
inline constexpr uint32_t gdt = 0x220000;
inline constexpr uint32_t tss = 0x221000;
inline constexpr uint32_t host_handlers = 0x222000;
inline constexpr uint32_t arena_end = 0x40a000;

inline constexpr uint32_t handler_size = 32;

// The playground: single pages with their own rights.
inline constexpr uint32_t playground = 0x400000;
inline constexpr uint32_t guard_page =
    0x400000;  ///< absent: a guest that faults without end must not reach the arena
inline constexpr uint32_t guest_stack_top = 0x403000;
inline constexpr uint32_t plain_page = 0x404000;            ///< also a legal operand of VMLOAD and VMSAVE
inline constexpr uint32_t absent_page = 0x405000;           ///< absent in the guest's tables
inline constexpr uint32_t nested_absent_page = 0x406000;    ///< absent in the nested tables
inline constexpr uint32_t nested_readonly_page = 0x407000;  ///< not writable in the nested tables
inline constexpr uint32_t readonly_page = 0x408000;         ///< not writable in the guest's tables
inline constexpr uint32_t nested_noexec_page = 0x409000;    ///< not executable in the nested tables

inline constexpr uint32_t apic = 0xfee00000;

// Selectors of the one GDT that host and guest share.
inline constexpr uint16_t code_selector = 0x08;
inline constexpr uint16_t data_selector = 0x10;
inline constexpr uint16_t user_data_selector = 0x1b;
inline constexpr uint16_t user_code_selector = 0x23;
inline constexpr uint16_t task_selector = 0x28;
inline constexpr uint16_t spare_task_selector = 0x38;  ///< available, for LTR
inline constexpr uint16_t ldt_selector = 0x48;

/// Exceptions that a guest's handler returns from: those after which the guest stands behind the instruction.
constexpr bool handler_returns(unsigned vector) {
  return (vector >= 1 && vector <= 4) || vector >= 32;
}

// The vector file: a header, then one record for each vector, all little-endian.
inline constexpr uint32_t magic = 0x524f5653;  ///< "SVOR"
inline constexpr uint32_t version = 1;

struct FileHeader {
  uint32_t magic;
  uint32_t version;
  uint32_t vectors;
  uint32_t reserved;
  uint8_t vmcb[4096];  ///< every vector starts from it
};

inline constexpr uint8_t pending_intr = 1U << 0;
inline constexpr uint8_t pending_nmi = 1U << 1;

/// Then `patches` of Patch, then `code_size` bytes of the guest's program, then zeros up to a multiple of 8.
struct RecordHeader {
  uint32_t id;
  uint16_t code_size;
  uint16_t patches;
  uint8_t host_if;     ///< RFLAGS.IF of the host at VMRUN
  uint8_t pending;     ///< what the host sends itself before VMRUN, with GIF clear
  uint8_t ipi_vector;  ///< of pending_intr
  uint8_t host_tpr;    ///< of the physical APIC at VMRUN
  uint8_t msr_fill;    ///< every byte of the MSR permission map
  uint8_t io_fill;     ///< every byte of the I/O permission map
  uint8_t reserved[2];
};
static_assert(sizeof(RecordHeader) == 16, "the file format is fixed");

/// A store of `size` bytes at a physical address, undone after the vector. VMCB fields and map bytes are set
/// so.
struct Patch {
  uint32_t address;
  uint32_t size;
  uint64_t value;
};
static_assert(sizeof(Patch) == 16, "the file format is fixed");

}  // namespace svmsim::oracle::layout
