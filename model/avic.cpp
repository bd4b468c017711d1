#include "model/avic.hpp"

namespace svmsim::model {

namespace {

constexpr std::uint64_t first_page = 0x1'0000'0000;
constexpr std::uint64_t pages_of_vm = 0x400'0000;  // room for 4096 vCPUs and the tables

apic::AvicMemory::Size memory_size(std::size_t vcpus) {
  apic::AvicMemory::Size size;
  size.backing_pages = vcpus;
  size.physical_table_pages =
      (vcpus + apic::PhysicalIdTablePage::entry_count - 1) / apic::PhysicalIdTablePage::entry_count;
  return size;
}

/// Registers that only KVM changes and that AVIC lets the guest read.
constexpr std::array<std::uint16_t, 15> kept_by_software{
    apic::APIC_ID,   apic::APIC_LVR,    apic::APIC_LDR,     apic::APIC_DFR,   apic::APIC_SPIV,
    apic::APIC_ESR,  apic::APIC_LVTT,   apic::APIC_LVTTHMR, apic::APIC_LVTPC, apic::APIC_LVT0,
    apic::APIC_LVT1, apic::APIC_LVTERR, apic::APIC_TMICT,   apic::APIC_TDCR,  apic::APIC_RRR};

apic::VectorSet vectors_of(const apic::BackingPage& page, std::uint32_t first) noexcept {
  apic::VectorSet result;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint32_t word = page.read(first + 0x10U * static_cast<std::uint32_t>(i));
    if (word != 0) result.set_word32(i, word);
  }
  return result;
}

void store_vectors(apic::BackingPage& page, std::uint32_t first, const apic::VectorSet& vectors) noexcept {
  for (std::size_t i = 0; i < 8; ++i)
    page.write(first + 0x10U * static_cast<std::uint32_t>(i), vectors.word32(i));
}

}  // namespace

AvicVm::AvicVm(const Options& vm_options)
    : options(vm_options),
      memory(memory_size(vm_options.vcpus), first_page + vm_options.vm_index * pages_of_vm),
      stale(vm_options.vcpus, vm_options.stale_cycles) {}

apic::LocalApic::AvicState AvicVcpu::page_state() const noexcept {
  return {vectors_of(*page, apic::APIC_IRR), vectors_of(*page, apic::APIC_ISR),
          vectors_of(*page, apic::APIC_TMR), page->tpr()};
}

void AvicVcpu::store_state(const apic::LocalApic::AvicState& state) noexcept {
  store_vectors(*page, apic::APIC_IRR, state.irr);
  store_vectors(*page, apic::APIC_ISR, state.isr);
  store_vectors(*page, apic::APIC_TMR, state.tmr);
  page->set_tpr(state.tpr);
}

void AvicVcpu::pull(apic::LocalApic& apic) const noexcept {
  if (in_guest) {
    apic.set_avic_state(page_state());
    return;
  }
  apic::LocalApic::AvicState state = apic.avic_state();
  state.irr = state.irr | vectors_of(*page, apic::APIC_IRR);
  state.tmr = vectors_of(*page, apic::APIC_TMR);
  apic.set_avic_state(state);
}

void AvicVcpu::enter(apic::LocalApic& apic) noexcept {
  pull(apic);
  store_state(apic.avic_state());
  in_guest = true;
}

void AvicVcpu::leave(apic::LocalApic& apic) noexcept {
  pull(apic);
  in_guest = false;
}

void AvicVcpu::publish_registers(apic::LocalApic& apic) const noexcept {
  const bool x2apic = apic.mode() == apic::ApicMode::x2apic;
  for (const std::uint32_t offset : kept_by_software) {
    const apic::RegisterRead read = x2apic ? apic.read_msr(apic::x2apic_msr(offset)) : apic.read_mmio(offset);
    if (!read.general_protection) page->write(offset, static_cast<std::uint32_t>(read.value));
  }
  page->write(apic::APIC_ICR, static_cast<std::uint32_t>(apic.icr()));
  page->write(apic::APIC_ICR2, static_cast<std::uint32_t>(apic.icr() >> 32));
}

}  // namespace svmsim::model
