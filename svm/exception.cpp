#include "svm/address.hpp"
#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// Delivery through the IDT and what can go wrong on the way: exceptions in the delivery, their combination to
// #DF, shutdown (APM vol. 2, 8.2.9, 8.5, 15.7.2, 15.12, 15.14.3).

namespace svmsim::svm {

namespace {

enum class ExceptionClass : std::uint8_t { benign, contributory, page_fault, double_fault };

[[nodiscard]] constexpr std::uint32_t vector_bits(std::initializer_list<unsigned> vectors) noexcept {
  std::uint32_t bits = 0;
  for (const unsigned vector : vectors)
    bits |= std::uint32_t{1} << vector;
  return bits;
}

// #DE, #TS, #NP, #SS, #GP, #CP and #VC (8.2.9; 15.35.5 for #VC).
constexpr std::uint32_t contributory_vectors = vector_bits({0, 10, 11, 12, 13, 21, 29});

[[nodiscard]] constexpr ExceptionClass class_of(std::uint32_t event) noexcept {
  if (event_inj::type(event) != event_inj::type_exception) return ExceptionClass::benign;
  const std::uint8_t vector = event_inj::vector(event);
  if (vector == exception_vector::double_fault) return ExceptionClass::double_fault;
  if (vector == exception_vector::page_fault) return ExceptionClass::page_fault;
  return vector < 32 && ((contributory_vectors >> vector) & 1U) != 0 ? ExceptionClass::contributory
                                                                     : ExceptionClass::benign;
}

/// INTn, and INT3 and INTO, which are exceptions of type 3 (15.7.2).
[[nodiscard]] constexpr bool is_software(std::uint32_t event) noexcept {
  const std::uint32_t type = event_inj::type(event);
  const std::uint8_t vector = event_inj::vector(event);
  return type == event_inj::type_soft ||
         (type == event_inj::type_exception &&
          (vector == exception_vector::breakpoint || vector == exception_vector::overflow));
}

/// Faults restart their instruction: RFLAGS.RF of the pushed image is 1, so that its instruction breakpoint
/// does not fire again (3.1.6). #DB pushes it as it is.
[[nodiscard]] constexpr bool pushes_resume_flag(std::uint32_t event) noexcept {
  return event_inj::type(event) == event_inj::type_exception && !is_software(event) &&
         event_inj::vector(event) != exception_vector::debug;
}

}  // namespace

// Intercepts of exceptions are tested before the IDT is read (15.12).
Step GuestCpu::raise(std::uint8_t vector, bool has_error, std::uint32_t error_code,
                     std::uint64_t fault_address, GuestEnvironment& environment, std::uint64_t next_rip) {
  if (vector == exception_vector::debug) {
    constexpr std::uint64_t breakpoints = 0xf;
    // Table 15-10: without GIF the breakpoint registers raise nothing, RFLAGS.TF does.
    if (!gif_ && (fault_address & breakpoints) != 0) {
      fault_address &= ~breakpoints;
      if (fault_address == 0) return {};
    }
    vmcb_->save.dr6 |= fault_address;  // as the handler would see it, intercepted or not (15.12.2)
  }
  // Table 15-10: without GIF a machine check that cannot be held is a shutdown.
  if (vector == exception_vector::machine_check && !gif_) return shutdown();
  if (intercepts_exception(vector)) {
    return vmexit(exit_code::exception(vector), has_error ? error_code : 0,
                  vector == exception_vector::page_fault ? fault_address : 0, next_rip);
  }
  if (vector == exception_vector::page_fault) vmcb_->save.cr2 = fault_address;
  const bool pushed = has_error && (vmcb_->save.cr0 & cr0::pe) != 0;
  return deliver(event_inj::event(event_inj::type_exception, vector) | (pushed ? event_inj::error_valid : 0U),
                 pushed ? error_code : 0, rip_, environment);
}

Step GuestCpu::raise_software(std::uint8_t vector, std::uint64_t next_rip, GuestEnvironment& environment) {
  if (intercepts_exception(vector)) {
    return vmexit(exit_code::exception(vector), 0, 0, next_rip);
  }
  return deliver(event_inj::event(event_inj::type_exception, vector), 0, next_rip, environment);
}

Step GuestCpu::software_interrupt(std::uint8_t vector, std::uint64_t next_rip,
                                  GuestEnvironment& environment) {
  return deliver(event_inj::event(event_inj::type_soft, vector), 0, next_rip, environment);
}

Step GuestCpu::fault(std::uint8_t vector, GuestEnvironment& environment) {
  return raise(vector, false, 0, 0, environment);
}

Step GuestCpu::general_protection(GuestEnvironment& environment) {
  return raise(exception_vector::general_protection, true, 0, 0, environment);
}

Step GuestCpu::deliver(std::uint32_t event, std::uint32_t error_code, std::uint64_t return_rip,
                       GuestEnvironment& environment) {
  const VmcbSave& save = vmcb_->save;
  const std::uint8_t vector = event_inj::vector(event);
  const bool protected_mode = (save.cr0 & cr0::pe) != 0;
  const unsigned gate_bytes = (save.efer & efer::lma) != 0 ? 16 : (protected_mode ? 8 : 4);
  const std::uint32_t gate_error = gate_error_code(event);

  if (is_software(event) && cpl_ != 0) {
    // An INTn of virtual-8086 mode needs IOPL 3; TSS and redirection bitmap are not modelled, which
    // leaves it to the monitor (8.9.1). Otherwise the gate's privilege level decides (8.7.2).
    const bool v86 = (rflags_ & rflags::virtual_8086) != 0;
    if (v86 && event_inj::type(event) == event_inj::type_soft &&
        (rflags_ & rflags::iopl_mask) != rflags::iopl_mask) {
      return exception_in_delivery(event, error_code, exception_vector::general_protection, 0, environment);
    }
    if (cpl_ > environment.gate_privilege_level(vector)) {
      return exception_in_delivery(event, error_code, exception_vector::general_protection, gate_error,
                                   environment);
    }
  }
  const std::uint32_t offset = gate_bytes * vector;
  if (offset + gate_bytes - 1 > save.idtr.limit) {
    return exception_in_delivery(event, error_code, exception_vector::general_protection, gate_error,
                                 environment);
  }
  std::uint64_t missing = save.idtr.base + offset;
  bool readable = descriptor_readable(missing, idt_page_, environment);
  if (readable && protected_mode) {
    missing = save.gdtr.base + (save.cs.selector & ~std::uint64_t{7});
    readable = descriptor_readable(missing, gdt_page_, environment);
  }
  if (!readable) {
    interrupt_delivery(event, error_code);
    return nested_page_fault(missing, PageAccess::read, environment);
  }
  const std::uint64_t entry = environment.handler_entry(vector);
  if (!canonical(entry)) {
    const bool absent = entry == GuestEnvironment::absent_gate;
    const bool described = absent || entry == GuestEnvironment::invalid_gate;
    return exception_in_delivery(
        event, error_code,
        absent ? exception_vector::segment_not_present : exception_vector::general_protection,
        described ? gate_error : gate_error & 1U, environment);
  }

  // A guest that never returns from its handlers abandons its oldest frames; so does its stack in time.
  if (frames_.size() == max_frames) frames_.erase(frames_.begin());
  frames_.push_back({return_rip, rflags_ | (pushes_resume_flag(event) ? rflags::resume : 0), cpl_});
  rflags_ &=
      ~(rflags::interrupt | rflags::trap | rflags::nested_task | rflags::resume | rflags::virtual_8086);
  cpl_ = 0;
  shadow_ = false;
  halted_ = false;
  shut_down_ = false;
  rip_ = entry;
  return {StepKind::delivered, vector, error_code};
}

std::uint32_t GuestCpu::gate_error_code(std::uint32_t event) noexcept {
  // The vector as an index into the IDT, and EXT unless the program asked for the event itself (8.4.1).
  constexpr std::uint32_t idt = 2;
  return std::uint32_t{event_inj::vector(event)} << 3 | idt | (is_software(event) ? 0U : 1U);
}

bool GuestCpu::descriptor_readable(std::uint64_t address, std::uint64_t& known_page,
                                   GuestEnvironment& environment) {
  const std::uint64_t page = address >> 12;
  if (page == known_page) return true;
  if (!nested_allows(address, PageAccess::read, environment)) return false;
  known_page = page;
  return true;
}

// The event goes into EXITINTINFO if an exit follows.
void GuestCpu::interrupt_delivery(std::uint32_t event, std::uint32_t error_code) noexcept {
  // The NMI will be delivered again, so it is not in service (15.21.10).
  if (event_inj::type(event) == event_inj::type_nmi) {
    int_ctl_ &= ~int_ctl::v_nmi_mask;
    nmi_masked_ = false;
  }
  delivering_ = event;
  delivering_error_ = error_code;
}

// 15.12: the intercept of the second exception comes before the combination; the result is tested again.
Step GuestCpu::exception_in_delivery(std::uint32_t event, std::uint32_t event_error, std::uint8_t vector,
                                     std::uint32_t error_code, GuestEnvironment& environment) {
  if ((vmcb_->save.cr0 & cr0::pe) == 0) error_code = 0;  // real mode has none
  if (intercepts_exception(vector)) {
    interrupt_delivery(event, event_error);
    return vmexit(exit_code::exception(vector), error_code);
  }
  const std::uint32_t second = event_inj::event(event_inj::type_exception, vector);
  const ExceptionClass first_class = class_of(event);
  const ExceptionClass second_class = class_of(second);
  if (first_class == ExceptionClass::double_fault && second_class != ExceptionClass::benign) {
    if (intercepts(Intercept::shutdown)) interrupt_delivery(event, event_error);
    return shutdown();
  }
  const bool combined =
      (first_class == ExceptionClass::contributory && second_class == ExceptionClass::contributory) ||
      (first_class == ExceptionClass::page_fault && second_class != ExceptionClass::benign);
  const std::uint32_t pushed = (vmcb_->save.cr0 & cr0::pe) != 0 ? event_inj::error_valid : 0U;
  if (!combined) return deliver(second | pushed, error_code, rip_, environment);
  const std::uint32_t double_fault =
      event_inj::event(event_inj::type_exception, exception_vector::double_fault) | pushed;
  if (intercepts_exception(exception_vector::double_fault)) {
    // The #VC that this becomes under SEV-ES comes in the delivery of #DF, or it could come for ever.
    if (sev_es()) {
      interrupt_delivery(double_fault, 0);
    } else {
      interrupt_delivery(event, event_error);
    }
    return vmexit(exit_code::exception(exception_vector::double_fault));
  }
  return deliver(double_fault, 0, rip_, environment);
}

// 15.14.3. Without the intercept the processor stays in the shutdown state, which only NMI, SMI, INIT and
// RESET end.
Step GuestCpu::shutdown() {
  if (intercepts(Intercept::shutdown)) return vmexit(exit_code::shutdown);
  shut_down_ = true;
  halted_ = true;
  return {StepKind::shutdown, 0, 0};
}

}  // namespace svmsim::svm
