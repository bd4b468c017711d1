#include "apic/avic/avic_core.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "svm/user_error.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::apic {

namespace {

template <typename Page>
Page* page_at(PageRange<Page>& range, std::uint64_t pointer, const char* what) {
  Page* page = range.find(pointer & PhysicalIdEntry::backing_page_mask);
  if (page == nullptr) throw InternalError(fmt::format("VMRUN: no {} at host address 0x{:x}", what, pointer));
  return page;
}

}  // namespace

AvicEntry AvicCore::vmrun(const svm::VmcbControl& control, AvicMemory& memory) {
  using namespace svm;
  phase_ = Phase::entering;
  pending_ = -1;
  context_ = {};
  if ((control.int_ctl & int_ctl::avic_enable) == 0) return {};

  context_.x2avic = registers_->processor().x2avic && (control.int_ctl & int_ctl::x2avic_enable) != 0;
  context_.memory = &memory;
  context_.own = page_at(memory.backing_pages, control.avic_backing_page, "AVIC backing page");
  context_.physical =
      page_at(memory.physical_tables, control.avic_physical_id, "AVIC physical APIC ID table");
  const auto max_index =
      static_cast<std::uint32_t>(control.avic_physical_id & avic_physical_id::max_index_mask);
  if (context_.x2avic) {
    // Pages of the table that are not there hold no valid entry.
    const std::size_t pages =
        memory.physical_tables.from(control.avic_physical_id & PhysicalIdEntry::backing_page_mask);
    context_.max_index =
        std::min(max_index, static_cast<std::uint32_t>(pages * PhysicalIdTablePage::entry_count - 1));
  } else {
    context_.max_index = std::min(max_index, xavic_last_index);
    context_.logical = page_at(memory.logical_tables, control.avic_logical_id, "AVIC logical APIC ID table");
  }
  // The hypervisor may have changed TPR and ISR.
  context_.own->update_ppr();
  evaluate();
  return {true, int_ctl::v_tpr(control.int_ctl) != context_.own->tpr() >> 4};
}

void AvicCore::entered() noexcept {
  phase_ = Phase::guest;
  if (latched_ && context_.own != nullptr) evaluate();
  latched_ = false;
}

void AvicCore::vmexit() noexcept {
  phase_ = Phase::host;
  pending_ = -1;
}

DoorbellEffect AvicCore::doorbell(bool halted) noexcept {
  if (phase_ == Phase::host) {
    switch (registers_->knobs().host_mode_doorbell) {
      case HostModeDoorbell::dropped:
        return DoorbellEffect::dropped;
      case HostModeDoorbell::stalls:
        return DoorbellEffect::stalled;
      case HostModeDoorbell::pending:
        latched_ = true;
        return DoorbellEffect::latched;
    }
  }
  if (context_.own == nullptr) return DoorbellEffect::dropped;
  if (phase_ == Phase::entering) {
    latched_ = true;
    return DoorbellEffect::latched;
  }
  if (halted && !registers_->knobs().doorbell_wakes_halted_guest) return DoorbellEffect::ignored;
  evaluate();
  return DoorbellEffect::evaluated;
}

AvicResult AvicCore::noaccel(AvicOutcome outcome, std::uint32_t offset, bool write) const noexcept {
  AvicResult result;
  result.outcome = outcome;
  result.nrip_is_next = registers_->knobs().nrip_is_next;
  result.exit_info_1 = (offset & noaccel_info::offset_mask) | (write ? noaccel_info::write : 0);
  return result;
}

AvicResult AvicCore::read_page(std::uint32_t offset) const noexcept {
  if (registers_->page(offset).read != AvicAction::allow)
    return noaccel(AvicOutcome::noaccel_fault, offset, false);
  AvicResult result;
  result.value = context_.own->read(offset);
  return result;
}

AvicResult AvicCore::read_msr(std::uint32_t msr) const noexcept {
  const AvicAction action = registers_->msr(msr).read;
  if (action == AvicAction::general_protection) return {AvicOutcome::general_protection};
  const std::uint32_t offset = x2apic_offset(msr);
  if (action != AvicAction::allow) return noaccel(AvicOutcome::noaccel_fault, offset, false);
  AvicResult result;
  result.value = offset == APIC_ICR ? context_.own->icr() : context_.own->read(offset);
  return result;
}

AvicResult AvicCore::end_of_interrupt() noexcept {
  BackingPage& page = *context_.own;
  const int in_service = page.highest_isr();
  if (in_service < 0) return {};
  const auto vector = static_cast<std::uint8_t>(in_service);
  const bool level = page.test_tmr(vector);
  if (!level || registers_->knobs().level_eoi_clears_isr) page.retire(vector);
  evaluate();
  if (!level) return {};
  AvicResult result = noaccel(AvicOutcome::noaccel_trap, APIC_EOI, true);
  result.exit_info_2 = vector;
  return result;
}

AvicResult AvicCore::incomplete(const IpiOutcome& outcome, std::uint32_t icr_low,
                                std::uint32_t icr_high) const noexcept {
  constexpr std::uint64_t delivery_status = 1U << 12;
  AvicResult result;
  result.outcome = AvicOutcome::incomplete_ipi;
  result.nrip_is_next = registers_->knobs().nrip_is_next;
  result.exit_info_1 = std::uint64_t{icr_high} << 32 | icr_low;
  result.exit_info_2 = outcome.exit_info_2();
  const bool type = (icr_low & IpiContext::message_type_and_trigger) != 0;
  if (type && registers_->knobs().leaves_icr_busy) result.exit_info_1 |= delivery_status;
  return result;
}

}  // namespace svmsim::apic
