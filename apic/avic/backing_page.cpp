#include "apic/avic/backing_page.hpp"

#include "apic/destination.hpp"

namespace svmsim::apic {

void BackingPage::reset(std::uint32_t id, std::uint32_t version, bool x2apic) noexcept {
  constexpr std::uint32_t lvt_masked = 0x0001'0000;
  words_.fill(0);
  write(APIC_ID, x2apic ? id : id << 24);
  write(APIC_LVR, version);
  if (x2apic) {
    write(APIC_LDR, x2apic_logical_id(id));
  } else {
    write(APIC_DFR, 0xffff'ffff);
  }
  write(APIC_SPIV, 0xff);
  for (const std::uint32_t lvt : {APIC_LVTT, APIC_LVTTHMR, APIC_LVTPC, APIC_LVT0, APIC_LVT1, APIC_LVTERR})
    write(lvt, lvt_masked);
}

}  // namespace svmsim::apic
