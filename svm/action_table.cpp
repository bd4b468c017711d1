#include "svm/action_table.hpp"

#include <initializer_list>

#include "svm/user_error.hpp"

namespace svmsim::svm {

namespace {

constexpr std::uint64_t any = UINT64_MAX;

constexpr ActionOperand number(std::string_view key, std::uint64_t maximum, std::string_view meaning) {
  return {key, ActionField::number, 0, maximum, 0, meaning};
}
constexpr ActionOperand value(std::string_view key, std::string_view meaning,
                              ActionField field = ActionField::operand_0, std::uint64_t maximum = any) {
  return {key, field, 0, maximum, 0, meaning};
}
constexpr ActionOperand address(std::string_view meaning) {
  return {"address", ActionField::operand_1, 0, any, 0, meaning};
}
constexpr ActionOperand flag(std::string_view key, std::uint8_t bit, std::string_view meaning) {
  return {key, ActionField::flag, 0, 1, bit, meaning};
}
constexpr ActionOperand size_of(std::uint64_t usual) {
  return {"size", ActionField::size, usual, UINT8_MAX, 0, "operand bytes"};
}

constexpr ActionOperand gpr{"gpr", ActionField::gpr, 0, 15, 0, "general register, RAX is 0"};
constexpr ActionOperand address_size{
    "address_size", ActionField::address_size, 0, 8, 0, "address bytes; 0 is the code segment's size"};
constexpr ActionOperand port = number("port", UINT16_MAX, "I/O port");
constexpr ActionOperand data_segment{
    "segment", ActionField::segment, 3, 5, 0, "effective segment: ES CS SS DS FS GS are 0 to 5"};
constexpr ActionOperand rep = flag("rep", action_flags::rep, "with a REP prefix");
constexpr ActionOperand table_address = address("address of the memory operand");
constexpr ActionOperand maybe_address = address("address of the memory operand, 0 for a register");
constexpr ActionOperand selector = value("selector", "selector", ActionField::operand_0, UINT16_MAX);
constexpr ActionOperand table_base = value("base", "new base");
constexpr ActionOperand table_limit = value("limit", "new limit", ActionField::operand_2, UINT16_MAX);
constexpr ActionOperand written = value("value", "value written");
constexpr ActionOperand monitored = address("linear address that is monitored");
constexpr ActionOperand monitor_extensions = value("extensions", "ECX", ActionField::operand_0, UINT32_MAX);
constexpr ActionOperand hints = value("hints", "EAX", ActionField::operand_0, UINT32_MAX);
constexpr ActionOperand mwait_extensions = value("extensions", "ECX", ActionField::operand_1, UINT32_MAX);
constexpr ActionOperand vmcb_address = address("physical address of the VMCB, rAX");

struct Row {
  ActionKind kind;
  std::string_view name;
  std::uint8_t length;
  bool privileged;
  std::string_view meaning;
  std::initializer_list<ActionOperand> operands;
};

constexpr bool privileged = true;
constexpr bool unprivileged = false;

std::vector<ActionInfo> make_table() {
  using K = ActionKind;
  const std::initializer_list<Row> rows{
      {K::compute,
       "compute",
       0,
       unprivileged,
       "guest work that no intercept sees",
       {value("cycles", "TSC cycles", ActionField::cycles)}},
      {K::nop, "nop", 1, unprivileged, "NOP", {}},
      {K::cli, "cli", 1, unprivileged, "CLI", {}},
      {K::sti, "sti", 1, unprivileged, "STI", {}},
      {K::hlt, "hlt", 1, privileged, "HLT", {}},
      {K::pause, "pause", 2, unprivileged, "PAUSE", {}},
      {K::cpuid,
       "cpuid",
       2,
       unprivileged,
       "CPUID",
       {number("leaf", UINT32_MAX, "EAX"), value("subleaf", "ECX", ActionField::operand_0, UINT32_MAX)}},
      {K::rdtsc, "rdtsc", 2, unprivileged, "RDTSC", {}},
      {K::rdmsr, "rdmsr", 2, privileged, "RDMSR", {number("msr", UINT32_MAX, "ECX")}},
      {K::wrmsr, "wrmsr", 2, privileged, "WRMSR", {number("msr", UINT32_MAX, "ECX"), written}},
      {K::in, "in", 2, unprivileged, "IN", {port, size_of(1), address_size}},
      {K::out, "out", 2, unprivileged, "OUT", {port, written, size_of(1), address_size}},
      {K::vmmcall,
       "vmmcall",
       3,
       unprivileged,
       "VMMCALL",
       {number("number", UINT32_MAX, "hypercall number, RAX"), value("rbx", "RBX"),
        value("rcx", "RCX", ActionField::operand_1), value("rdx", "RDX", ActionField::operand_2),
        value("rsi", "RSI", ActionField::operand_3)}},
      {K::iret, "iret", 2, unprivileged, "IRET", {}},
      {K::memory_read,
       "memory_read",
       3,
       unprivileged,
       "a load",
       {address("guest physical address"), size_of(4)}},
      {K::memory_write,
       "memory_write",
       3,
       unprivileged,
       "a store",
       {address("guest physical address"), written, size_of(4)}},
      {K::mov_from_cr8, "mov_from_cr8", 4, privileged, "MOV from CR8", {gpr}},
      {K::mov_to_cr8, "mov_to_cr8", 4, privileged, "MOV to CR8", {written, gpr}},

      {K::rdtscp, "rdtscp", 3, unprivileged, "RDTSCP", {}},
      {K::rdpmc, "rdpmc", 2, unprivileged, "RDPMC", {number("counter", UINT32_MAX, "ECX")}},
      {K::rdpru, "rdpru", 3, unprivileged, "RDPRU", {number("register", UINT32_MAX, "ECX")}},
      {K::mov_from_cr,
       "mov_from_cr",
       3,
       privileged,
       "MOV from CRn",
       {number("cr", 15, "control register"), gpr}},
      {K::mov_to_cr,
       "mov_to_cr",
       3,
       privileged,
       "MOV to CRn",
       {number("cr", 15, "control register"), written, gpr}},
      {K::clts, "clts", 2, privileged, "CLTS", {}},
      {K::lmsw,
       "lmsw",
       3,
       privileged,
       "LMSW",
       {value("value", "machine status word", ActionField::operand_0, UINT16_MAX), maybe_address, gpr}},
      {K::smsw, "smsw", 3, unprivileged, "SMSW", {maybe_address, gpr}},
      {K::mov_from_dr,
       "mov_from_dr",
       3,
       privileged,
       "MOV from DRn",
       {number("dr", 15, "debug register"), gpr}},
      {K::mov_to_dr,
       "mov_to_dr",
       3,
       privileged,
       "MOV to DRn",
       {number("dr", 15, "debug register"), written, gpr}},
      {K::sidt, "sidt", 3, unprivileged, "SIDT", {table_address}},
      {K::sgdt, "sgdt", 3, unprivileged, "SGDT", {table_address}},
      {K::sldt, "sldt", 3, unprivileged, "SLDT", {maybe_address}},
      {K::str, "str", 3, unprivileged, "STR", {maybe_address}},
      {K::lidt, "lidt", 3, privileged, "LIDT", {table_base, table_limit, table_address}},
      {K::lgdt, "lgdt", 3, privileged, "LGDT", {table_base, table_limit, table_address}},
      {K::lldt, "lldt", 3, privileged, "LLDT", {selector, maybe_address}},
      {K::ltr, "ltr", 3, privileged, "LTR", {selector, maybe_address}},
      {K::pushf, "pushf", 1, unprivileged, "PUSHF", {}},
      {K::popf, "popf", 1, unprivileged, "POPF", {value("value", "image of RFLAGS")}},
      {K::mov_ss, "mov_ss", 2, unprivileged, "MOV SS or POP SS", {}},
      {K::int_n, "int_n", 2, unprivileged, "INTn (CDh)", {number("vector", UINT8_MAX, "vector")}},
      {K::int3, "int3", 1, unprivileged, "INT3 (CCh)", {}},
      {K::into, "into", 1, unprivileged, "INTO (CEh) with OF set", {}},
      {K::icebp, "icebp", 1, unprivileged, "ICEBP (F1h), also INT1", {}},
      {K::rsm, "rsm", 2, unprivileged, "RSM", {}},
      {K::task_switch,
       "task_switch",
       0,
       unprivileged,
       "a task switch, by CALL unless a flag says otherwise",
       {number("selector", UINT16_MAX, "selector of the new TSS"),
        value("error_code", "error code that the switch pushes", ActionField::operand_0, UINT32_MAX),
        flag("iret", action_flags::iret, "by IRET"), flag("far_jump", action_flags::far_jump, "by a far JMP"),
        flag("has_error_code", action_flags::has_error_code, "by an exception with an error code")}},
      {K::invd, "invd", 2, privileged, "INVD", {}},
      {K::wbinvd, "wbinvd", 2, privileged, "WBINVD", {}},
      {K::wbnoinvd, "wbnoinvd", 3, privileged, "WBNOINVD", {}},
      {K::invlpg, "invlpg", 3, privileged, "INVLPG", {address("linear address")}},
      {K::invlpga,
       "invlpga",
       3,
       privileged,
       "INVLPGA",
       {address("linear address, rAX"), number("asid", UINT32_MAX, "ASID, ECX")}},
      {K::invpcid,
       "invpcid",
       5,
       privileged,
       "INVPCID",
       {number("type", UINT32_MAX, "type of the invalidation"), address("linear address"),
        value("pcid", "PCID of the descriptor")}},
      {K::invlpgb,
       "invlpgb",
       3,
       privileged,
       "INVLPGB",
       {value("rax", "rAX"), number("ecx", UINT32_MAX, "ECX"),
        value("edx", "EDX", ActionField::operand_1, UINT32_MAX),
        flag("illegal_form", action_flags::illegal_form, "in a form that is not allowed in a guest")}},
      {K::tlbsync, "tlbsync", 3, privileged, "TLBSYNC", {}},
      {K::mcommit, "mcommit", 4, unprivileged, "MCOMMIT", {}},
      {K::monitor, "monitor", 3, privileged, "MONITOR", {monitored, monitor_extensions}},
      {K::mwait, "mwait", 3, privileged, "MWAIT", {hints, mwait_extensions}},
      {K::monitorx, "monitorx", 3, unprivileged, "MONITORX", {monitored, monitor_extensions}},
      {K::mwaitx, "mwaitx", 3, unprivileged, "MWAITX", {hints, mwait_extensions}},
      {K::xsetbv,
       "xsetbv",
       3,
       privileged,
       "XSETBV",
       {number("xcr", UINT32_MAX, "extended control register, ECX"), written}},
      {K::skinit, "skinit", 3, privileged, "SKINIT", {number("slb", UINT32_MAX, "address of the SLB, EAX")}},
      {K::vmrun, "vmrun", 3, privileged, "VMRUN", {vmcb_address}},
      {K::vmload, "vmload", 3, privileged, "VMLOAD", {vmcb_address}},
      {K::vmsave, "vmsave", 3, privileged, "VMSAVE", {vmcb_address}},
      {K::stgi, "stgi", 3, privileged, "STGI", {}},
      {K::clgi, "clgi", 3, privileged, "CLGI", {}},
      {K::ins, "ins", 1, unprivileged, "INS", {port, size_of(1), address("destination"), rep, address_size}},
      {K::outs,
       "outs",
       1,
       unprivileged,
       "OUTS",
       {port, written, size_of(1), address("source"), rep, address_size, data_segment}},
      {K::raise,
       "raise",
       0,
       unprivileged,
       "an exception",
       {number("vector", 31, "vector"),
        value("error_code", "error code, of the vectors that have one", ActionField::operand_0, UINT32_MAX),
        address("faulting linear address of a page fault, or what a debug exception sets in DR6")}},
      {K::instruction_fetch,
       "instruction_fetch",
       0,
       unprivileged,
       "a fetch of code",
       {address("guest physical address")}},
      {K::bus_lock,
       "bus_lock",
       4,
       unprivileged,
       "a locked access that takes a bus lock",
       {address("guest physical address")}},
      {K::ferr, "ferr", 1, unprivileged, "an x87 error with CR0.NE clear: the processor freezes", {}},
      {K::vmgexit, "vmgexit", 4, unprivileged, "VMGEXIT of an SEV-ES guest", {}},
  };
  std::vector<ActionInfo> table;
  for (const Row& row : rows) {
    ActionInfo info;
    info.kind = row.kind;
    info.name = row.name;
    info.length = row.length;
    info.privileged = row.privileged;
    info.meaning = row.meaning;
    for (const ActionOperand& operand : row.operands)
      info.operand.at(info.operands++) = operand;
    table.push_back(info);
  }
  return table;
}

}  // namespace

const ActionOperand* ActionInfo::find(std::string_view key) const noexcept {
  for (const ActionOperand& candidate : *this) {
    if (candidate.key == key) return &candidate;
  }
  return nullptr;
}

const std::vector<ActionInfo>& action_table() {
  static const std::vector<ActionInfo> table = make_table();
  return table;
}

const ActionInfo& action_info(ActionKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  if (index >= action_table().size()) throw InternalError("a guest action that does not exist");
  return action_table()[index];
}

std::string_view action_name(ActionKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  return index < action_table().size() ? action_table()[index].name : std::string_view{};
}

std::optional<ActionKind> action_of(std::string_view name) {
  for (const ActionInfo& info : action_table()) {
    if (info.name == name) return info.kind;
  }
  return std::nullopt;
}

std::vector<std::string> action_names() {
  std::vector<std::string> names;
  for (const ActionInfo& info : action_table())
    names.emplace_back(info.name);
  return names;
}

std::size_t action_count() {
  return action_table().size();
}

GuestAction usual_action(ActionKind kind) {
  const ActionInfo& info = action_info(kind);
  GuestAction action;
  action.kind = kind;
  action.length = info.length;
  for (const ActionOperand& operand : info)
    static_cast<void>(set_operand(action, operand, operand.usual));
  return action;
}

bool set_operand(GuestAction& action, const ActionOperand& operand, std::uint64_t value) noexcept {
  if (value > operand.maximum) return false;
  const auto byte = static_cast<std::uint8_t>(value & 0xffU);
  switch (operand.field) {
    case ActionField::number:
      action.number = static_cast<std::uint32_t>(value);
      break;
    case ActionField::operand_0:
    case ActionField::operand_1:
    case ActionField::operand_2:
    case ActionField::operand_3:
      action.operand[static_cast<std::size_t>(operand.field) -
                     static_cast<std::size_t>(ActionField::operand_0)] = value;
      break;
    case ActionField::cycles:
      action.cycles = value;
      break;
    case ActionField::gpr:
      action.gpr = byte;
      break;
    case ActionField::size:
      action.size = byte;
      break;
    case ActionField::address_size:
      action.address_size = byte;
      break;
    case ActionField::segment:
      action.segment = byte;
      break;
    case ActionField::flag:
      action.flags = static_cast<std::uint8_t>(value != 0 ? action.flags | operand.flag
                                                          : action.flags & ~unsigned{operand.flag});
      break;
  }
  return true;
}

std::uint64_t get_operand(const GuestAction& action, const ActionOperand& operand) noexcept {
  switch (operand.field) {
    case ActionField::number:
      return action.number;
    case ActionField::operand_0:
    case ActionField::operand_1:
    case ActionField::operand_2:
    case ActionField::operand_3:
      return action.operand[static_cast<std::size_t>(operand.field) -
                            static_cast<std::size_t>(ActionField::operand_0)];
    case ActionField::cycles:
      return action.cycles;
    case ActionField::gpr:
      return action.gpr;
    case ActionField::size:
      return action.size;
    case ActionField::address_size:
      return action.address_size;
    case ActionField::segment:
      return action.segment;
    case ActionField::flag:
      return (action.flags & operand.flag) != 0 ? 1 : 0;
  }
  return 0;
}

}  // namespace svmsim::svm
