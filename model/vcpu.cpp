#include "model/vcpu.hpp"

#include <algorithm>

#include "model/emulated_cpuid.hpp"
#include "model/hypervisor.hpp"
#include "model/vm.hpp"
#include "svm/user_error.hpp"

namespace svmsim::model {

namespace {

// MSRs that KVM leaves to the guest (svm.c, direct_access_msrs), as far as they are plain storage.
constexpr std::array<std::uint32_t, 12> passed_through{0xc0000081, 0xc0000100, 0xc0000101, 0xc0000102,
                                                       0xc0000082, 0xc0000083, 0xc0000084, 0x174,
                                                       0x175,      0x176,      0x48,       0x49};

constexpr std::uint64_t apic_page = 0xfee00;  // AVIC is inhibited where APIC_BASE has moved
constexpr std::uint64_t io_apic_page = 0xfec00;

bool lists_page(const std::vector<std::uint64_t>& pages, std::uint64_t guest_physical) {
  return std::any_of(pages.begin(), pages.end(),
                     [&](std::uint64_t page) { return (page >> 12) == (guest_physical >> 12); });
}

int passed_through_index(std::uint32_t msr) {
  const auto* found = std::find(passed_through.begin(), passed_through.end(), msr);
  return found == passed_through.end() ? -1 : static_cast<int>(found - passed_through.begin());
}

}  // namespace

const std::array<std::uint32_t, 12>& passed_through_msr_list() {
  return passed_through;
}

Vcpu::Vcpu(const sc_core::sc_module_name& name, Vm& in_vm, unsigned in_index, svm::FeatureSet features,
           svm::Knobs knobs, const apic::LocalApicOptions& apic_options,
           std::unique_ptr<workloads::WorkloadSource> in_source, Hypervisor& hypervisor)
    : sc_core::sc_module(name),
      vm(in_vm),
      index(in_index),
      guest(features, knobs),
      environment(*this),
      apic_unit("lapic", in_index, apic_options),
      source(std::move(in_source)),
      external_causes(source->has_external_causes()),
      before_recording(source->begins_inside_exit()),
      timer(*this, hypervisor),
      hypervisor_(hypervisor) {}

void Vcpu::run(PhysicalCpu& cpu) {
  hypervisor_.vcpu_run(*this, cpu);
}

void Vcpu::sched_in(PhysicalCpu& cpu) {
  hypervisor_.avic_sched_in(*this, cpu);
  hypervisor_.kvm_sched_in(*this, cpu);
}

void Vcpu::sched_out(PhysicalCpu& cpu, bool was_preempted) {
  hypervisor_.avic_sched_out(*this, cpu);
  Hypervisor::kvm_sched_out(*this, cpu, was_preempted);
}

std::uint64_t Vcpu::Environment::host_tsc() {
  return vcpu_.pcpu->local();
}

svm::MsrAccess Vcpu::Environment::read_msr(std::uint32_t msr) {
  const int slot = passed_through_index(msr);
  if (slot < 0) return {true, 0};
  return {false, vcpu_.passed_through_msrs[static_cast<std::size_t>(slot)]};
}

svm::MsrAccess Vcpu::Environment::write_msr(std::uint32_t msr, std::uint64_t value) {
  const int slot = passed_through_index(msr);
  if (slot < 0) return {true, 0};
  vcpu_.passed_through_msrs[static_cast<std::size_t>(slot)] = value;
  return {};
}

// KVM's I/O map intercepts every port: these two are never asked.
std::uint64_t Vcpu::Environment::read_port(std::uint16_t, unsigned) {
  throw InternalError("an intercepted port was read in guest mode");
}
void Vcpu::Environment::write_port(std::uint16_t, unsigned, std::uint64_t) {
  throw InternalError("an intercepted port was written in guest mode");
}

std::array<std::uint32_t, 4> Vcpu::Environment::cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  const EmulatedCpuid result = emulated_cpuid(leaf, subleaf, vcpu_.index, vcpu_.vm.pv);
  return {result.eax, result.ebx, result.ecx, result.edx};
}

bool Vcpu::is_mmio(std::uint64_t guest_physical) const noexcept {
  const std::uint64_t page = guest_physical >> 12;
  return page == apic_unit.state().base_address() >> 12 || page == io_apic_page ||
         lists_page(mmio_pages, guest_physical);
}

bool Vcpu::has_apic_page() const noexcept {
  return apicv_active && apic_unit.state().mode() == apic::ApicMode::xapic;
}

bool Vcpu::Environment::page_allows(std::uint64_t guest_physical, svm::PageAccess) {
  if (vcpu_.guest_mode)
    return !lists_page(vcpu_.nested->shadow_absent, guest_physical) &&
           vcpu_.nested->guest.maps(guest_physical);
  if ((guest_physical >> 12) == apic_page && vcpu_.has_apic_page()) return vcpu_.vm.avic->apic_page_mapped;
  return !lists_page(vcpu_.absent_pages, guest_physical) && !vcpu_.is_mmio(guest_physical);
}

// Once it was met, KVM marks an entry without memory by a reserved bit, so that the next fault needs no
// look-up (arch/x86/kvm/mmu/spte.c).
svm::NestedPage Vcpu::Environment::nested_page(std::uint64_t guest_physical) {
  svm::NestedPage page;
  page.present = false;
  if (vcpu_.guest_mode) return page;
  if ((guest_physical >> 12) == apic_page && vcpu_.has_apic_page()) return page;
  if (vcpu_.is_mmio(guest_physical) && !lists_page(vcpu_.absent_pages, guest_physical)) {
    page.present = true;
    page.reserved_bit = true;
  }
  return page;
}

std::uint64_t Vcpu::Environment::handler_entry(std::uint8_t vector) {
  return vcpu_.source->handler_entry(vector);
}

const svm::MsrPermissionMap& Vcpu::Environment::msr_permission_map(std::uint64_t) {
  return *vcpu_.msrpm;
}
const svm::IoPermissionMap& Vcpu::Environment::io_permission_map(std::uint64_t) {
  return vcpu_.vm.iopm;
}

svm::Vmcb* Vcpu::Environment::vmcb_page(std::uint64_t physical) {
  return vcpu_.nested == nullptr ? nullptr : vcpu_.nested->guest.vmcb_page(physical);
}

}  // namespace svmsim::model
