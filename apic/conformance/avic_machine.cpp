#include "apic/conformance/avic_machine.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apic/avic/doorbell.hpp"
#include "apic/conformance/avic_sink.hpp"
#include "svm/action_table.hpp"
#include "svm/conformance/guest_setup.hpp"
#include "svm/conformance/names.hpp"
#include "svm/conformance/settings.hpp"
#include "svm/guest_cpu.hpp"
#include "svm/table_environment.hpp"

namespace svmsim::apic::conformance {

namespace {

[[nodiscard]] AvicMemory::Size size_for(std::size_t vcpus) {
  AvicMemory::Size size;
  size.backing_pages = vcpus;
  size.physical_table_pages =
      (vcpus + PhysicalIdTablePage::entry_count - 1) / PhysicalIdTablePage::entry_count;
  return size;
}

[[nodiscard]] const Choices& doorbell_choices() {
  static const Choices choices{"evaluated", "latched", "dropped", "stalled", "ignored"};
  return choices;
}

[[nodiscard]] const Choices& post_choices() {
  static const Choices choices{"aborted",  "remapped", "illegal_page", "illegal_vector",
                               "doorbell", "logged",   "log_overflow", "recorded"};
  return choices;
}

}  // namespace

const Choices& avic_effect_choices() {
  static const Choices choices = [] {
    Choices all{"none", "entered", "without_avic", "nobody"};
    for (const Choices* more : {&doorbell_choices(), &post_choices()})
      all.insert(all.end(), more->begin(), more->end());
    return all;
  }();
  return choices;
}

AvicMachine::AvicMachine(const AvicSetup& setup)
    : setup_(setup),
      registers_(setup.processor, setup.knobs),
      memory_(size_for(setup.vcpus.size())),
      stale_(setup.vcpus.size(), setup.stale_window_cycles) {
  for (std::size_t index = 0; index < setup.vcpus.size(); ++index) {
    const AvicVcpuSetup& one = setup.vcpus[index];
    BackingPage& page = memory_.backing_pages[index];
    page.reset(static_cast<std::uint32_t>(index), LocalApicOptions{}.version, setup.x2avic);
    page.write(APIC_SPIV, 0x1ff);
    for (const auto& [offset, value] : one.registers)
      page.write(offset, value);
    for (const std::uint64_t vector : one.irr)
      page.set_irr(static_cast<std::uint8_t>(vector));
    for (const std::uint64_t vector : one.tmr)
      page.set_tmr(static_cast<std::uint8_t>(vector), true);
    for (const std::uint64_t vector : one.isr) {
      const auto number = static_cast<std::uint8_t>(vector);
      const std::uint32_t offset = APIC_ISR + 0x10U * (number >> 5);
      page.write(offset, page.read(offset) | 1U << (number & 31U));
    }
    PhysicalIdEntry entry = PhysicalIdEntry::make(one.page.value_or(memory_.backing_pages.address(index)));
    if (one.running) entry = entry.running_on(one.host_apic_id);
    if (!one.valid) entry.raw &= ~PhysicalIdEntry::valid_bit;
    if (one.entry) entry.raw = *one.entry;
    entry_at(index) = entry;
  }
  for (const auto& [index, raw] : setup.logical)
    memory_.logical_tables[0].entries[index].raw = raw;
  for (std::size_t index = 0; index < setup.vcpus.size(); ++index) {
    const AvicVcpuSetup& one = setup.vcpus[index];
    const std::uint8_t v_tpr = one.v_tpr.value_or(page(index).tpr() >> 4);
    vcpus_.push_back({AvicCore(registers_), one.host_apic_id, v_tpr, one.halted, nullptr});
    if (!one.in_guest) continue;
    vmrun(index, std::nullopt, true);
    entered(index);
  }
}

PhysicalIdEntry& AvicMachine::entry_at(std::size_t index) {
  return memory_.physical_tables[index / PhysicalIdTablePage::entry_count]
      .entries[index % PhysicalIdTablePage::entry_count];
}

PhysicalIdEntry AvicMachine::entry(std::size_t index) const {
  return memory_.physical_tables[index / PhysicalIdTablePage::entry_count]
      .entries[index % PhysicalIdTablePage::entry_count];
}

std::string AvicMachine::outcome_text() const {
  std::string text = outcome_.fault ? "#GP(0)" : outcome_.effect;
  if (outcome_.exit) {
    text = fmt::format("#VMEXIT {}, EXITINFO1 {:#x}, EXITINFO2 {:#x}, rIP {}",
                       svm::conformance::exit_text(*outcome_.exit), outcome_.exit_info_1,
                       outcome_.exit_info_2, outcome_.rip_after ? "after" : "at");
  }
  if (outcome_.impossible != "none") text = outcome_.impossible;
  if (outcome_.value) text += fmt::format(", value {:#x}", *outcome_.value);
  for (const std::uint64_t vector : outcome_.delivered)
    text += fmt::format(", delivered {:#x}", vector);
  if (outcome_.taken >= 0) text += fmt::format(", vector {:#x}", outcome_.taken);
  if (!outcome_.sequence.empty()) text += fmt::format(", {}", fmt::join(outcome_.sequence, ", "));
  return text;
}

bool AvicMachine::guest_acts(std::size_t index) {
  const Vcpu& vcpu = vcpus_[index];
  if (vcpu.guest != nullptr) {
    outcome_.impossible = fmt::format("vCPU {} is a whole guest: it acts by its program", index);
  } else if (!vcpu.core.active()) {
    outcome_.impossible = fmt::format("vCPU {} is not in guest mode with AVIC", index);
  } else if (vcpu.halted) {
    outcome_.impossible = fmt::format("vCPU {} is halted", index);
  }
  return outcome_.impossible == "none";
}

void AvicMachine::ended(std::size_t index, const AvicResult& result) {
  outcome_.fault = result.outcome == AvicOutcome::general_protection;
  outcome_.rip_after = result.rip_after();
  outcome_.v_tpr = result.v_tpr;
  if (result.v_tpr >= 0) vcpus_[index].v_tpr = static_cast<std::uint8_t>(result.v_tpr);
  if (result.exits()) {
    outcome_.exit = result.exit_code();
    outcome_.exit_info_1 = result.exit_info_1;
    outcome_.exit_info_2 = result.exit_info_2;
    outcome_.nrip_is_next = result.nrip_is_next;
  }
  const std::vector<std::uint64_t> doorbells = outcome_.doorbells;
  for (const std::uint64_t host_apic_id : doorbells)
    ring(static_cast<std::uint32_t>(host_apic_id));
}

void AvicMachine::ring(std::uint32_t host_apic_id) {
  for (Vcpu& vcpu : vcpus_) {
    if (vcpu.host_apic_id != host_apic_id) continue;
    const DoorbellEffect effect = vcpu.core.doorbell(vcpu.halted);
    outcome_.rung.emplace_back(doorbell_choices()[static_cast<std::size_t>(effect)]);
    if (vcpu.guest != nullptr) {
      vcpu.guest->driver.cpu.avic_evaluated();
      return;
    }
    // What the guest may take ends the halt; IF is GuestCpu's to judge.
    if (vcpu.core.pending() >= 0 && setup_.interrupts_enabled) vcpu.halted = false;
    return;
  }
  outcome_.rung.emplace_back("nobody");
}

void AvicMachine::write_register(std::size_t index, std::uint32_t offset, std::uint64_t value) {
  if (setup_.x2avic) {
    write_msr(index, x2apic_msr(offset), value);
  } else {
    store(index, offset, static_cast<std::uint32_t>(value));
  }
}

void AvicMachine::read_register(std::size_t index, std::uint32_t offset) {
  if (setup_.x2avic) {
    read_msr(index, x2apic_msr(offset));
  } else {
    load(index, offset);
  }
}

void AvicMachine::write_msr(std::size_t index, std::uint32_t msr, std::uint64_t value) {
  if (!guest_acts(index)) return;
  if (!vcpus_[index].core.x2avic() || !is_x2apic_msr(msr)) {
    outcome_.impossible = "only MSRs 800h-8FFh in x2AVIC mode reach AVIC";
    return;
  }
  AvicSink sink(*this);
  ended(index, vcpus_[index].core.write_msr(msr, value, sink));
}

void AvicMachine::read_msr(std::size_t index, std::uint32_t msr) {
  if (!guest_acts(index)) return;
  if (!vcpus_[index].core.x2avic() || !is_x2apic_msr(msr)) {
    outcome_.impossible = "only MSRs 800h-8FFh in x2AVIC mode reach AVIC";
    return;
  }
  const AvicResult result = vcpus_[index].core.read_msr(msr);
  ended(index, result);
  if (result.outcome == AvicOutcome::done) outcome_.value = result.value;
}

void AvicMachine::store(std::size_t index, std::uint32_t offset, std::uint32_t value) {
  if (!guest_acts(index)) return;
  AvicSink sink(*this);
  ended(index, vcpus_[index].core.write_page(offset, value, sink));
}

void AvicMachine::load(std::size_t index, std::uint32_t offset) {
  if (!guest_acts(index)) return;
  const AvicResult result = vcpus_[index].core.read_page(offset);
  ended(index, result);
  if (result.outcome == AvicOutcome::done) outcome_.value = result.value;
}

void AvicMachine::send(std::size_t index, const IcrCommand& command) {
  if (setup_.x2avic) return write_msr(index, msr_x2apic_icr, command.x2apic());
  store(index, APIC_ICR2, command.destination << 24);
  if (outcome_.impossible == "none") store(index, APIC_ICR, command.low());
}

void AvicMachine::set_cr8(std::size_t index, std::uint8_t value) {
  if (!guest_acts(index)) return;
  vcpus_[index].core.write_cr8(value);
  vcpus_[index].v_tpr = value;
}

void AvicMachine::acknowledge(std::size_t index) {
  if (!vcpus_[index].core.active()) {
    outcome_.impossible = fmt::format("vCPU {} is not in guest mode with AVIC", index);
    return;
  }
  outcome_.taken = vcpus_[index].core.acknowledge();
  vcpus_[index].halted = false;
}

// HLT belongs to GuestCpu, which looks at the backing page for the idle-HLT intercept.
void AvicMachine::hlt(std::size_t index) {
  if (!guest_acts(index)) return;
  Vcpu& vcpu = vcpus_[index];
  svm::Vmcb vmcb = svm::conformance::default_vmcb();
  for (const svm::Intercept intercept : setup_.intercepts)
    set_intercept(vmcb.control, intercept, true);
  vmcb.control.int_ctl |=
      svm::int_ctl::avic_enable | (setup_.x2avic ? svm::int_ctl::x2avic_enable : 0U) | vcpu.v_tpr;
  if (setup_.interrupts_enabled) vmcb.save.rflags |= svm::rflags::interrupt;
  svm::TableEnvironment environment;
  environment.highest_irr = vcpu.core.highest_irr();
  environment.ppr = vcpu.core.ppr();
  svm::GuestCpu cpu(svm::conformance::every_feature(), setup_.core_knobs);
  static_cast<void>(cpu.vmrun(vmcb, true, environment));
  svm::GuestAction action = svm::usual_action(svm::ActionKind::hlt);
  action.rip = vmcb.save.rip;
  const svm::Step step = cpu.execute(action, environment);
  vcpu.halted = step.kind == svm::StepKind::halted;
  outcome_.rip_after = vcpu.halted;
  if (step.kind != svm::StepKind::vmexit) return;
  outcome_.exit = vmcb.control.exit_code;
  outcome_.exit_info_1 = vmcb.control.exit_info_1;
  outcome_.exit_info_2 = vmcb.control.exit_info_2;
  outcome_.nrip_is_next = vmcb.control.next_rip == action.next_rip();
}

void AvicMachine::set_avic_fields(std::size_t index, svm::VmcbControl& control) const {
  control.int_ctl |= svm::int_ctl::avic_enable | vcpus_[index].v_tpr;
  if (setup_.x2avic) control.int_ctl |= svm::int_ctl::x2avic_enable;
  control.avic_vapic_bar = 0xfee0'0000;
  control.avic_backing_page = memory_.backing_pages.address(index);
  control.avic_physical_id = memory_.physical_tables.address(0) |
                             setup_.max_index.value_or(static_cast<std::uint32_t>(setup_.vcpus.size() - 1));
  control.avic_logical_id = memory_.logical_tables.address(0);
}

void AvicMachine::vmrun(std::size_t index, std::optional<std::uint8_t> v_tpr, bool avic) {
  Vcpu& vcpu = vcpus_[index];
  vcpu.v_tpr = v_tpr.value_or(vcpu.v_tpr);
  svm::VmcbControl control{};
  set_avic_fields(index, control);
  if (!avic) control.int_ctl &= ~(svm::int_ctl::avic_enable | svm::int_ctl::x2avic_enable);
  const AvicEntry entry = vcpu.core.vmrun(control, memory_);
  outcome_.effect = entry.enabled ? "entered" : "without_avic";
  outcome_.tpr_mismatch = entry.tpr_mismatch;
}

void AvicMachine::doorbell(std::size_t index) {
  ring(vcpus_[index].host_apic_id);
  outcome_.effect = outcome_.rung.back();
  outcome_.rung.clear();
}

// The hypervisor's WRMSR of C001_011Bh.
void AvicMachine::ring_by_msr(std::uint64_t value) {
  const auto target = doorbell_target(value, setup_.knobs);
  outcome_.fault = !target;
  if (!target) return;
  outcome_.doorbells.push_back(*target);
  ring(*target);
}

void AvicMachine::request(std::size_t index, std::uint8_t vector, bool level) {
  BackingPage& page = memory_.backing_pages[index];
  page.set_tmr(vector, level);
  page.set_irr(vector);
}

void AvicMachine::withdraw(std::size_t index, std::uint8_t vector) {
  BackingPage& page = memory_.backing_pages[index];
  const std::uint32_t offset = APIC_IRR + 0x10U * (vector >> 5);
  page.write(offset, page.read(offset) & ~(1U << (vector & 31U)));
}

void AvicMachine::poke(std::size_t index, std::uint32_t offset, std::uint32_t value) {
  memory_.backing_pages[index].write(offset, value);
}

// avic_vcpu_load and avic_vcpu_put.
void AvicMachine::load_vcpu(std::size_t index, std::optional<std::uint32_t> host_apic_id) {
  Vcpu& vcpu = vcpus_[index];
  vcpu.host_apic_id = host_apic_id.value_or(vcpu.host_apic_id);
  entry_at(index) = entry(index).running_on(vcpu.host_apic_id);
}

void AvicMachine::put_vcpu(std::size_t index) {
  stale_.note_cleared(static_cast<std::uint32_t>(index), entry(index), now_);
  entry_at(index) = entry(index).not_running();
}

void AvicMachine::make_irte(std::size_t index, std::uint8_t vector, std::uint32_t tag) {
  irte_ = Irte::posted(vector, memory_.backing_pages.address(index), tag);
}

void AvicMachine::post(std::uint16_t device_id) {
  const PostResult result = post_interrupt(irte_, device_id, memory_, ga_log_);
  outcome_.effect = post_choices()[static_cast<std::size_t>(result.outcome)];
  const BackingPage* page = memory_.backing_pages.find(irte_.backing_page());
  const bool requested = result.outcome >= PostOutcome::doorbell;
  if (requested && page != nullptr) {
    const auto index = static_cast<std::uint64_t>(page - &memory_.backing_pages[0]);
    outcome_.requested.push_back(index);
    outcome_.sequence.push_back(fmt::format("irr {}", index));
    if (result.merged) outcome_.merged.push_back(index);
  }
  if (result.outcome != PostOutcome::doorbell) return;
  outcome_.doorbells.push_back(irte_.destination());
  outcome_.sequence.push_back(fmt::format("doorbell {:#x}", irte_.destination()));
  ring(irte_.destination());
}

void AvicMachine::take_log_entry() {
  if (const auto entry = ga_log_.take()) outcome_.value = entry->raw;
}

}  // namespace svmsim::apic::conformance
