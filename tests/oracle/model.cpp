#include "tests/oracle/model.hpp"

#include <optional>

#include "svm/guest_cpu.hpp"
#include "svm/table_environment.hpp"
#include "svm/user_error.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::oracle {

namespace {

using svm::ActionKind;
using svm::GuestAction;
using svm::StepKind;

constexpr std::uint32_t msr_x2apic_tpr = 0x808;

/// The surroundings that the kernel gives a guest: its handlers, its maps, its pages, and one local APIC.
class OracleEnvironment final : public svm::TableEnvironment {
 public:
  explicit OracleEnvironment(const Vector& vector)
      : ipi_vector_(vector.ipi_vector), ipi_pending_(vector.pending_intr) {
    msr_map = msr_map_of(vector);
    io_map = io_map_of(vector);
    nmi_pending = vector.pending_nmi;
    msrs[msr_x2apic_tpr] = vector.host_tpr;
    if ((vector.vmcb.control.nested_ctl & svm::nested_ctl::np_enable) == 0) return;
    page(layout::nested_absent_page).present = false;
    page(layout::nested_readonly_page).writable = false;
    page(layout::nested_noexec_page).no_execute = true;
  }

  std::uint64_t handler_entry(std::uint8_t vector) override {
    return layout::handlers + std::uint64_t{vector} * layout::handler_size;
  }
  std::uint8_t gate_privilege_level(std::uint8_t) override { return 3; }
  int acknowledge_physical_interrupt() override {
    if (!ipi_pending_) return -1;
    ipi_pending_ = false;
    in_service_ = ipi_vector_;
    return ipi_vector_;
  }
  [[nodiscard]] svm::PhysicalEvents physical_events() {
    const unsigned tpr = static_cast<unsigned>(msrs[msr_x2apic_tpr]) >> 4;
    const unsigned priority = std::max(tpr, in_service_ >> 4);
    svm::PhysicalEvents result = events();
    result.intr = ipi_pending_ && unsigned{ipi_vector_} >> 4 > priority;
    return result;
  }
  /// A store to the ICR: the CPU sends to itself.
  void send(std::uint64_t icr) {
    if ((icr & 0x700) == 0x400) {
      nmi_pending = true;
    } else {
      ipi_vector_ = static_cast<std::uint8_t>(icr & 0xff);
      ipi_pending_ = true;
    }
  }
  [[nodiscard]] std::optional<std::uint8_t> ipi_left() const {
    return ipi_pending_ ? std::optional(ipi_vector_) : std::nullopt;
  }

 private:
  std::uint8_t ipi_vector_;
  bool ipi_pending_;
  unsigned in_service_ = 0;  ///< the guest's handlers send no EOI
};

/// The guest's handlers, as the kernel writes them: INC of the vector's counter, then IRET, or VMMCALL and
/// VMRUN.
class Handler {
 public:
  [[nodiscard]] static bool contains(std::uint64_t rip) noexcept {
    return rip >= layout::handlers && rip < layout::handlers + 256 * layout::handler_size;
  }
  explicit Handler(std::uint64_t rip) noexcept
      : vector((rip - layout::handlers) / layout::handler_size),
        offset_((rip - layout::handlers) % layout::handler_size) {
    action.rip = rip;
    constexpr unsigned increment = 7;
    const bool returns = layout::handler_returns(static_cast<unsigned>(vector));
    const unsigned terminator = vector == svm::exception_vector::invalid_opcode ? increment : increment + 3;
    if (offset_ == 0) {
      set(ActionKind::nop, increment);
      counts = true;
    } else if (returns && offset_ == increment) {
      set(ActionKind::iret, 2);
    } else if (!returns && offset_ == increment && terminator != increment) {
      set(ActionKind::vmmcall, 3);
    } else if (!returns && offset_ == terminator) {
      set(ActionKind::nop, 2);
    } else if (!returns && offset_ == terminator + 2) {
      set(ActionKind::vmrun, 3);
    }
  }

  GuestAction action;
  std::uint64_t vector;
  bool known = false;
  bool counts = false;

 private:
  void set(ActionKind kind, unsigned length) noexcept {
    action.kind = kind;
    action.length = static_cast<std::uint8_t>(length);
    known = true;
  }
  std::uint64_t offset_;
};

Result result_of(const svm::Vmcb& vmcb) {
  const svm::VmcbControl& control = vmcb.control;
  const svm::VmcbSave& save = vmcb.save;
  const auto pair = [](std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; };
  Result result;
  result.exit_code = control.exit_code;
  result.info_1 = control.exit_info_1;
  result.info_2 = control.exit_info_2;
  result.exit_int_info = pair(control.exit_int_info, control.exit_int_info_err);
  result.event_inj = pair(control.event_inj, control.event_inj_err);
  result.next_rip = control.next_rip;
  result.int_ctl = pair(control.int_ctl, control.int_vector);
  result.int_state = control.int_state;
  result.rip = save.rip;
  result.rflags = save.rflags;
  result.rax = save.rax;
  result.cr0 = save.cr0;
  result.cr3 = save.cr3;
  result.cr4 = save.cr4;
  result.efer = save.efer;
  result.dr6 = save.dr6;
  result.dr7 = save.dr7;
  result.cr2 = save.cr2;
  result.cpl = save.cpl;
  return result;
}

}  // namespace

ModelAnswer run_model(const Vector& vector, const Processor& processor, const svm::Knobs& knobs) {
  OracleEnvironment environment(vector);
  svm::GuestCpu cpu(processor.features, knobs, processor.limits);
  svm::Vmcb vmcb = vector.vmcb;
  ModelAnswer answer;

  // The last action in a handler's or program's way decides; far more than any vector needs means a loop.
  constexpr unsigned max_steps = 500;
  svm::Step step = cpu.vmrun(vmcb, vector.host_if, environment);
  for (unsigned n = 0; step.kind != StepKind::vmexit; ++n) {
    if (n == max_steps) return answer;
    if (step.kind == StepKind::shutdown || step.kind == StepKind::reset) {
      answer.end = ModelEnd::shutdown;
      return answer;
    }
    step = cpu.boundary(environment.physical_events(), environment);
    if (step.kind != StepKind::none) continue;
    if (cpu.halted()) {
      answer.end = cpu.shut_down() ? ModelEnd::shutdown : ModelEnd::halted;
      return answer;
    }

    GuestAction action;
    const std::uint64_t rip = cpu.rip();
    if (Handler::contains(rip)) {
      const Handler handler(rip);
      if (!handler.known) return answer;
      if (handler.counts) ++answer.result.guest_events[static_cast<unsigned>(handler.vector)];
      action = handler.action;
    } else if (const GuestAction* found = vector.program.at(rip)) {
      action = *found;
    } else {
      return answer;
    }
    try {
      step = cpu.execute(action, environment);
    } catch (const InternalError&) {
      answer.end = ModelEnd::unknown;
      return answer;
    }
    if (step.kind == StepKind::halted) answer.waited = true;
    const bool sent = step.kind == StepKind::retired && action.kind == ActionKind::memory_write &&
                      action.operand[1] == layout::apic + 0x300;
    if (sent) environment.send(action.operand[0]);
  }

  answer.end = ModelEnd::vmexit;
  const auto guest_events = answer.result.guest_events;
  answer.result = result_of(vmcb);
  answer.result.guest_events = guest_events;
  if (environment.nmi_pending) answer.result.host_events[2] = 1;
  if (const auto left = environment.ipi_left()) answer.result.host_events[*left] = 1;
  return answer;
}

}  // namespace svmsim::oracle
