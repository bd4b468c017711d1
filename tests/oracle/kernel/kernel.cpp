// The oracle kernel: runs the guest program of every vector of a file under a VMCB that the file describes,
// and prints what the processor made of it. It judges nothing.

#include <initializer_list>

#include "../layout.hpp"
#include "machine.hpp"

using namespace svmsim::oracle;

extern "C" {
void run_guest(uint64_t vmcb, uint64_t host_if, uint64_t host_vmcb);
void unmask_nmi();
void let_events_in();
void kernel_main(uint32_t boot_info);
void host_exception(uint64_t vector, const uint64_t* frame);
}

namespace {

constexpr uint32_t msr_efer = 0xc0000080;
constexpr uint32_t msr_hsave = 0xc0010117;
constexpr unsigned max_patches = 64;

uint32_t current_vector = 0;
Line line;

[[noreturn]] void finish(uint32_t status) {
  out32(0xf4, status);  // QEMU's isa-debug-exit
  for (const char* word = "Shutdown"; *word != 0; ++word)
    out8(0x8900, uint8_t(*word));  // Bochs
  for (;;)
    asm volatile("cli; hlt");
}

[[noreturn]] void fail(const char* why) {
  line.text("F ").text(why).send();
  finish(1);
}

void set_gate(uint32_t idt, unsigned vector, uint64_t target, unsigned dpl) {
  const uint64_t low = (target & 0xffff) | uint64_t{layout::code_selector} << 16 |
                       uint64_t(0x8e00 | dpl << 13) << 32 | ((target >> 16) & 0xffff) << 48;
  memory<uint64_t>(idt + 16 * vector) = low;
  memory<uint64_t>(idt + 16 * vector + 8) = target >> 32;
}

class CodeWriter {
 public:
  explicit CodeWriter(uint32_t address) : next_(address) {}
  template <typename... Bytes>
  CodeWriter& emit(Bytes... bytes) {
    ((memory<uint8_t>(next_++) = uint8_t(bytes)), ...);
    return *this;
  }
  CodeWriter& emit32(uint32_t value) { return emit(value, value >> 8, value >> 16, value >> 24); }

 private:
  uint32_t next_;
};

/// The guest's handlers count their vector. What returns does so by IRET; the others end the vector by
/// VMMCALL, or where that is not intercepted by VMRUN, which always is.
void write_guest_handlers() {
  for (unsigned vector = 0; vector < 256; ++vector) {
    const uint32_t address = layout::handlers + vector * layout::handler_size;
    CodeWriter code(address);
    code.emit(0xfe, 0x04, 0x25).emit32(layout::guest_counts + vector);  // INC byte
    if (layout::handler_returns(vector)) {
      code.emit(0x48, 0xcf);  // IRETQ
    } else {
      if (vector != 6) code.emit(0x0f, 0x01, 0xd9);  // VMMCALL
      code.emit(0x31, 0xc0).emit(0x0f, 0x01, 0xd8);  // XOR EAX, EAX; VMRUN
      code.emit(0xeb, 0xfe);                         // QEMU translates on to a jump
    }
    set_gate(layout::guest_idt, vector, address, 3);
  }
}

void write_host_handlers() {
  for (unsigned vector = 0; vector < 256; ++vector) {
    const uint32_t address = layout::host_handlers + vector * 32;
    CodeWriter code(address);
    if (vector < 32 && vector != 2) {
      code.emit(0xbf).emit32(vector).emit(0x48, 0x89, 0xe6);  // MOV EDI, vector; MOV RSI, RSP
      code.emit(0x48, 0xc7, 0xc0)
          .emit32(uint32_t(reinterpret_cast<uint64_t>(&host_exception)))
          .emit(0xff, 0xe0);
    } else {
      code.emit(0xfe, 0x04, 0x25).emit32(layout::host_counts + vector);
      if (vector >= 32) {  // EOI
        code.emit(0x50, 0xb8).emit32(layout::apic + 0xb0).emit(0xc7, 0x00).emit32(0).emit(0x58);
      }
      code.emit(0x48, 0xcf);
    }
    set_gate(layout::host_idt, vector, address, 0);
  }
}

void write_gdt() {
  const auto descriptor = [](unsigned selector, uint64_t value) {
    memory<uint64_t>(layout::gdt + selector) = value;
  };
  const auto system = [](unsigned selector, unsigned type, uint64_t base, uint64_t limit) {
    memory<uint64_t>(layout::gdt + selector) =
        (limit & 0xffff) | (base & 0xffffff) << 16 | uint64_t(0x80 | type) << 40 | (base >> 24 & 0xff) << 56;
    memory<uint64_t>(layout::gdt + selector + 8) = base >> 32;
  };
  descriptor(layout::code_selector, 0x00af9b000000ffff);
  descriptor(layout::data_selector, 0x00cf93000000ffff);
  descriptor(layout::user_data_selector & ~7U, 0x00cff3000000ffff);
  descriptor(layout::user_code_selector & ~7U, 0x00affb000000ffff);
  system(layout::task_selector, 9, layout::tss, 0x67);
  system(layout::spare_task_selector, 9, layout::tss, 0x67);
  system(layout::ldt_selector, 2, layout::plain_page, 0xfff);
}

void set_up_machine() {
  fill(layout::gdt, 0, 0x2000);
  fill(layout::guest_counts, 0, 0x200);
  write_gdt();
  memory<uint64_t>(layout::tss + 4) = layout::guest_stack_top;
  memory<uint16_t>(layout::tss + 0x66) = 0x68;  // no I/O bitmap
  write_guest_handlers();
  write_host_handlers();
  const TablePointer gdtr{0xfff, layout::gdt};
  const TablePointer idtr{0xfff, layout::host_idt};
  asm volatile("lgdt %0; lidt %1; ltr %w2" ::"m"(gdtr), "m"(idtr), "r"(layout::task_selector));

  memory<uint64_t>(layout::playground_table + 8 * (layout::guard_page >> 12 & 511)) = 0;
  memory<uint64_t>(layout::playground_table + 8 * (layout::absent_page >> 12 & 511)) = 0;
  memory<uint64_t>(layout::playground_table + 8 * (layout::readonly_page >> 12 & 511)) &= ~uint64_t{2};
  memory<uint64_t>(layout::nested_playground_table + 8 * (layout::nested_absent_page >> 12 & 511)) = 0;
  memory<uint64_t>(layout::nested_playground_table + 8 * (layout::nested_readonly_page >> 12 & 511)) &=
      ~uint64_t{2};
  memory<uint64_t>(layout::nested_playground_table + 8 * (layout::nested_noexec_page >> 12 & 511)) |=
      uint64_t{1} << 63;
  asm volatile("mov %%cr3, %%rax; mov %%rax, %%cr3" ::: "rax", "memory");

  out8(0x21, 0xff);
  out8(0xa1, 0xff);
  memory<uint32_t>(layout::apic + 0xf0) = 0x1ff;      // on, spurious vector FFh
  memory<uint32_t>(layout::apic + 0x320) = 1U << 16;  // no timer
  memory<uint32_t>(layout::apic + 0x350) = 1U << 16;  // no 8259 through LINT0
  memory<uint32_t>(layout::apic + 0x360) = 1U << 16;
  memory<uint32_t>(layout::apic + 0x80) = 0;

  if ((cpuid(0x80000001).ecx & 4) == 0) fail("no SVM");
  write_msr(msr_efer, read_msr(msr_efer) | 1U << 12);
  write_msr(msr_hsave, layout::host_save);
  asm volatile("clgi; vmsave" ::"a"(uint64_t{layout::host_vmcb}) : "memory");
  asm volatile("vmsave" ::"a"(uint64_t{layout::plain_page}) : "memory");
}

void describe_processor() {
  const CpuidResult svm = cpuid(0x8000000a);
  line.text("C").field(svm.eax).field(svm.ebx).field(svm.ecx).field(svm.edx);
  for (const uint32_t leaf : {1U, 7U, 0x80000001U, 0x80000008U}) {
    const CpuidResult r = cpuid(leaf);
    line.field(r.eax).field(r.ebx).field(r.ecx).field(r.edx);
  }
  line.send();
}

uint64_t load(uint64_t address, uint32_t size) {
  uint64_t value = 0;
  copy(reinterpret_cast<uint64_t>(&value), address, size);
  return value;
}
void store(uint64_t address, uint32_t size, uint64_t value) {
  copy(address, reinterpret_cast<uint64_t>(&value), size);
}

void send_to_self(const layout::RecordHeader& record) {
  if ((record.pending & layout::pending_intr) != 0) {
    memory<uint32_t>(layout::apic + 0x310) = 0;
    memory<uint32_t>(layout::apic + 0x300) = 0x4000U | record.ipi_vector;
  }
  if ((record.pending & layout::pending_nmi) != 0) {
    memory<uint32_t>(layout::apic + 0x310) = 0;
    memory<uint32_t>(layout::apic + 0x300) = 0x4400U;
  }
}

void print_counts(uint32_t counts) {
  line.text(" ");
  bool any = false;
  for (unsigned word = 0; word < 256; word += 8) {
    if (memory<uint64_t>(counts + word) == 0) continue;
    for (unsigned vector = word; vector < word + 8; ++vector) {
      const uint8_t n = memory<uint8_t>(counts + vector);
      if (n == 0) continue;
      line.text(any ? "," : "").hex(vector).text(":").hex(n);
      any = true;
    }
    memory<uint64_t>(counts + word) = 0;
  }
  if (!any) line.text("-");
}

void print_result(uint32_t id, uint64_t host_events_in_guest) {
  line.text("R").field(id);
  for (const unsigned offset : {0x70U, 0x78U, 0x80U, 0x88U, 0xa8U, 0xc8U, 0x60U, 0x68U}) {
    line.field(memory<uint64_t>(layout::vmcb + offset));
  }
  for (const unsigned offset :
       {0x178U, 0x170U, 0x1f8U, 0x158U, 0x150U, 0x148U, 0xd0U, 0x168U, 0x160U, 0x240U}) {
    line.field(memory<uint64_t>(layout::vmcb + 0x400 + offset));
  }
  line.field(memory<uint8_t>(layout::vmcb + 0x4cb)).field(host_events_in_guest);
  print_counts(layout::guest_counts);
  print_counts(layout::host_counts);
  line.send();
}

uint64_t host_events() {
  uint64_t sum = 0;
  for (unsigned word = 0; word < 256; word += 8)
    sum |= memory<uint64_t>(layout::host_counts + word);
  return sum != 0 ? 1 : 0;
}

void end_of_interrupts() {
  for (unsigned word = 0; word < 8; ++word) {
    while (memory<uint32_t>(layout::apic + 0x100 + 0x10 * word) != 0)
      memory<uint32_t>(layout::apic + 0xb0) = 0;
  }
}

void run(const layout::FileHeader& file, uint64_t address) {
  static uint64_t old_values[max_patches];
  static unsigned msr_fill = 0x100;
  static unsigned io_fill = 0x100;
  const auto& record = *reinterpret_cast<const layout::RecordHeader*>(address);
  const auto* patches = reinterpret_cast<const layout::Patch*>(address + sizeof record);
  if (record.patches > max_patches) fail("too many patches");
  current_vector = record.id;

  copy(layout::vmcb, reinterpret_cast<uint64_t>(file.vmcb), 4096);
  if (msr_fill != record.msr_fill) fill(layout::msr_map, record.msr_fill, 0x2000);
  if (io_fill != record.io_fill) fill(layout::io_map, record.io_fill, 0x3000);
  msr_fill = record.msr_fill;
  io_fill = record.io_fill;
  copy(layout::code, reinterpret_cast<uint64_t>(patches + record.patches), record.code_size);
  for (unsigned i = 0; i < record.patches; ++i) {
    old_values[i] = load(patches[i].address, patches[i].size);
    store(patches[i].address, patches[i].size, patches[i].value);
  }

  memory<uint32_t>(layout::apic + 0x80) = record.host_tpr;
  send_to_self(record);
  run_guest(layout::vmcb, record.host_if, layout::host_vmcb);

  const uint64_t early = host_events();
  for (unsigned i = record.patches; i-- != 0;) {
    const bool in_vmcb = patches[i].address - layout::vmcb < 4096;
    if (!in_vmcb) store(patches[i].address, patches[i].size, old_values[i]);
  }
  memory<uint8_t>(layout::gdt + layout::spare_task_selector + 5) = 0x89;  // LTR made it busy
  memory<uint32_t>(layout::apic + 0x80) = 0;
  end_of_interrupts();
  unmask_nmi();
  let_events_in();
  asm volatile("clgi");
  print_result(record.id, early);
}

}  // namespace

void host_exception(uint64_t vector, const uint64_t* frame) {
  line.text("F host exception").field(vector).text(" vector").field(current_vector).text(" at");
  line.field(frame[0]).field(frame[1]).send();
  finish(1);
}

void kernel_main(uint32_t boot_info) {
  const uint32_t modules = memory<uint32_t>(boot_info + 20);
  if ((memory<uint32_t>(boot_info) & 8) == 0 || modules == 0) fail("no vector file");
  const uint64_t start = memory<uint32_t>(memory<uint32_t>(boot_info + 24));
  const auto& file = *reinterpret_cast<const layout::FileHeader*>(start);
  if (file.magic != layout::magic || file.version != layout::version) fail("no vector file of this version");

  set_up_machine();
  describe_processor();
  uint64_t address = start + sizeof file;
  for (uint32_t i = 0; i < file.vectors; ++i) {
    run(file, address);
    const auto& record = *reinterpret_cast<const layout::RecordHeader*>(address);
    const uint64_t size = sizeof record + record.patches * sizeof(layout::Patch) + record.code_size;
    address += (size + 7) & ~uint64_t{7};
  }
  line.text("E").field(file.vectors).send();
  finish(0);
}
