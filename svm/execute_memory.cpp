#include "svm/exit_code.hpp"
#include "svm/guest_cpu.hpp"

// Memory accesses under the nested page tables (APM vol. 2, 15.25.6) and the bus-lock threshold (15.14.5).

namespace svmsim::svm {

namespace {

constexpr std::uint64_t apic_bar_mask = 0x000f'ffff'ffff'f000;

}  // namespace

Step GuestCpu::execute_memory(const GuestAction& action, PageAccess access, GuestEnvironment& environment) {
  const std::uint64_t address = action.operand[1];
  if (!nested_allows(address, access, environment)) return nested_page_fault(address, access, environment);
  // 15.29.3: the nested tables give the permission, APIC_BAR says which page is the APIC's.
  if (avic_environment_ != nullptr && access != PageAccess::fetch && !x2avic() &&
      (address >> 12) == (vmcb_->control.avic_vapic_bar & apic_bar_mask) >> 12) {
    return execute_avic_page(action, access == PageAccess::write, environment);
  }
  return retire(action);
}

// 15.25.14: supervisor code does not run from pages that the nested tables give to the user, and runs from
// all others.
bool GuestCpu::gmet_allows(std::uint64_t address, GuestEnvironment& environment) {
  if (environment.page_allows(address, PageAccess::fetch)) {
    // Allowed to the user: the page may be one that the environment says nothing special about.
    const NestedPage page = environment.nested_page(address);
    return !page.present || !page.user;
  }
  const NestedPage page = environment.nested_page(address);
  return page.present && !page.reserved_bit && !page.no_execute && !page.user;
}

Step GuestCpu::nested_page_fault(std::uint64_t address, PageAccess access, GuestEnvironment& environment) {
  const NestedPage page = environment.nested_page(address);
  std::uint64_t info = npf_info::final_translation;
  if (page.guest_table_walk) {
    // The walk sets accessed and dirty bits: it writes as the user, whatever the access is.
    info = npf_info::guest_table_walk | npf_info::user | npf_info::write;
  } else {
    // Guest accesses are user accesses of the nested tables (15.25.5); under GMET supervisor fetches are not.
    if (access != PageAccess::fetch || !gmet_applies()) info |= npf_info::user;
    if (access == PageAccess::write) info |= npf_info::write;
    if (access == PageAccess::fetch) info |= npf_info::fetch;
  }
  if (page.present) info |= npf_info::present;
  if (page.present && page.reserved_bit) info |= npf_info::reserved;
  return vmexit(exit_code::npf, info, address);
}

// The counter decides before the access: 0 exits, anything else is one less afterwards.
Step GuestCpu::execute_bus_lock(const GuestAction& action, GuestEnvironment& environment) {
  const bool counted = has_intercepted(Intercept::buslock, Feature::bus_lock_threshold);
  std::uint16_t& counter = vmcb_->control.bus_lock_counter;
  if (counted && counter == 0) return vmexit(exit_code::buslock);
  if (const Step fault = touch(action.operand[1], PageAccess::write, environment);
      fault.kind != StepKind::none) {
    return fault;
  }
  if (counted) --counter;
  return retire(action);
}

}  // namespace svmsim::svm
