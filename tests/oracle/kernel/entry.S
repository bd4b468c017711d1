# Multiboot entry (32 bits, no paging), the way to 64 bits, and VMRUN.

.set magic, 0x1badb002
.set page_tables, 0x200000
.set playground_table, 0x206000
.set nested_tables, 0x207000
.set nested_playground_table, 0x20d000

.section .multiboot, "a"
.balign 4
.long magic, 0, -magic

.text
.code32
.globl start
start:
  cli
  cld
  movl $boot_stack_top, %esp
  movl %ebx, boot_info            # what the loader says, for later

  # Identity tables for 4 GiB in 2 MiB pages, user bit set: the same shape serves the host, the guest at CPL 3 and
  # nested paging. esi = PML4, ebp = table of the playground's 2 MiB.
  movl $page_tables, %esi
  movl $playground_table, %ebp
  call build_tables
  movl $nested_tables, %esi
  movl $nested_playground_table, %ebp
  call build_tables

  movl %cr4, %eax
  orl $0x20, %eax                 # PAE
  movl %eax, %cr4
  movl $page_tables, %eax
  movl %eax, %cr3
  movl $0xc0000080, %ecx
  rdmsr
  orl $0x900, %eax                # LME, NXE
  wrmsr
  movl %cr0, %eax
  andl $0x9ffffff1, %eax          # caches on, no MP, EM, TS
  orl $0x80010023, %eax           # PG, WP, NE, MP, PE
  movl %eax, %cr0
  lgdt boot_gdt_pointer
  ljmp $8, $long_mode

build_tables:
  leal 0x1007(%esi), %eax
  movl %eax, (%esi)
  leal 0x2007(%esi), %eax
  movl $4, %ecx
  leal 0x1000(%esi), %edi
1:
  movl %eax, (%edi)
  addl $0x1000, %eax
  addl $8, %edi
  loop 1b
  leal 0x2000(%esi), %edi
  movl $0x87, %eax                # present, writable, user, 2 MiB
  movl $2048, %ecx
1:
  movl %eax, (%edi)
  addl $0x200000, %eax
  addl $8, %edi
  loop 1b
  leal 7(%ebp), %eax              # the playground begins at 4 MiB
  movl %eax, 0x2010(%esi)
  movl %ebp, %edi
  movl $0x400007, %eax
  movl $512, %ecx
1:
  movl %eax, (%edi)
  addl $0x1000, %eax
  addl $8, %edi
  loop 1b
  ret

.code64
long_mode:
  movl $16, %eax
  movl %eax, %ds
  movl %eax, %es
  movl %eax, %ss
  xorl %eax, %eax
  movl %eax, %fs
  movl %eax, %gs
  movl $boot_stack_top, %esp
  movl boot_info, %edi
  call kernel_main
1:
  cli
  hlt
  jmp 1b

# void run_guest(uint64_t vmcb, uint64_t host_if, uint64_t host_vmcb): VMRUN with GIF clear before and after. The guest
# starts with zero in every register that is not in the VMCB.
.globl run_guest
run_guest:
  pushq %rbx
  pushq %rbp
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  pushq %rdx                      # host_vmcb
  pushq %rdi
  testl %esi, %esi
  jz 1f
  sti                             # held back by GIF
  nop                             # no shadow over VMRUN
1:
  movq %rdi, %rax
  xorl %ebx, %ebx
  xorl %ecx, %ecx
  xorl %edx, %edx
  xorl %esi, %esi
  xorl %edi, %edi
  xorl %ebp, %ebp
  xorl %r8d, %r8d
  xorl %r9d, %r9d
  xorl %r10d, %r10d
  xorl %r11d, %r11d
  xorl %r12d, %r12d
  xorl %r13d, %r13d
  xorl %r14d, %r14d
  xorl %r15d, %r15d
  vmload
  vmrun
  cli
  popq %rax
  vmsave
  popq %rax
  vmload
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbp
  popq %rbx
  ret

# void unmask_nmi(): a guest that left its NMI handler by #VMEXIT has NMIs masked; IRET ends that.
.globl unmask_nmi
unmask_nmi:
  movq %rsp, %rax
  pushq $16
  pushq %rax
  pushfq
  pushq $8
  pushq $1f
  iretq
1:
  ret

# void after_vmexit(): what the host takes once nothing holds it back. Jumps end translation blocks: an emulator may look
# for interrupts only there.
.globl let_events_in
let_events_in:
  stgi
  jmp 1f
1:
  nop
  sti
  nop
  jmp 1f
1:
  nop
  cli
  ret

.data
.balign 8
boot_gdt:
  .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
boot_gdt_pointer:
  .word 23
  .quad boot_gdt
boot_info:
  .long 0

.bss
.balign 16
  .skip 16384
boot_stack_top:

.section .note.GNU-stack, "", @progbits
