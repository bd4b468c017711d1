#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "svm/guest_environment.hpp"
#include "svm/permission_map.hpp"
#include "svm/vmcb.hpp"

namespace svmsim::svm {

/// Surroundings of a GuestCpu made of tables, for people who run guest actions without the model: conformance
/// cases, tests, the Python binding. Everything is a public member to set before or between actions; what the
/// guest changes (MSRs, ports, acknowledged interrupts) can be read back there.
///
/// Left out: time passes only when somebody calls advance(); a port keeps what was last written to it,
/// whatever the size; MSRs do nothing but hold a value, those of the APIC under AVIC too: the backing page is
/// `highest_irr` and `ppr`, and no more.
class TableEnvironment : public GuestEnvironment {
 public:
  std::uint64_t tsc = 0;                         ///< of the host
  std::uint64_t ratio = tsc_ratio_one;           ///< TSC_RATIO of the host
  std::map<std::uint32_t, std::uint64_t> msrs;   ///< absent: reads 0
  std::set<std::uint32_t> faulting_msrs;         ///< RDMSR and WRMSR raise #GP(0)
  std::map<std::uint16_t, std::uint64_t> ports;  ///< absent: reads 0
  /// EAX, EBX, ECX, EDX by leaf and subleaf; absent: zeros.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::array<std::uint32_t, 4>> cpuid_leaves;
  std::map<std::uint64_t, NestedPage> nested_pages;  ///< by page number (address >> 12); absent: all allowed
  std::map<std::uint64_t, Vmcb> vmcb_pages;          ///< by physical address: what VMLOAD and VMSAVE reach
  std::map<std::uint8_t, std::uint64_t> handlers;    ///< rIP by vector; absent: default_handler()
  std::map<std::uint8_t, std::uint8_t> gate_levels;  ///< DPL by vector; absent: as Linux sets its IDT up
  MsrPermissionMap msr_map;                          ///< at every address that msr_maps does not name
  IoPermissionMap io_map;                            ///< at every address that io_maps does not name
  std::map<std::uint64_t, MsrPermissionMap> msr_maps;  ///< by physical address
  std::map<std::uint64_t, IoPermissionMap> io_maps;    ///< by physical address
  int highest_irr = -1;      ///< AVIC backing page: vector of the highest IRR bit, -1 for none
  std::uint8_t ppr = 0;      ///< AVIC backing page: PPR
  bool smi_pending = false;  ///< what is pending at the physical CPU; the guest takes it from here
  SmiInfo smi;               ///< where the pending SMI comes from
  bool init_pending = false;
  bool r_init = false;  ///< VM_CR.R_INIT
  bool nmi_pending = false;
  std::vector<std::uint8_t> interrupts_pending;  ///< vectors above the physical PPR, the next to take first

  /// PDPTEs that PAE paging without nested paging loads; nothing: legal ones.
  std::optional<std::array<std::uint64_t, 4>> pdptes;
  Vmsa guest_vmsa;                        ///< of an SEV-ES guest
  std::set<std::uint64_t> foreign_pages;  ///< SNP: page numbers that are not the hypervisor's

  /// Entry of a vector's handler that `handlers` does not name.
  [[nodiscard]] static constexpr std::uint64_t default_handler(std::uint8_t vector) noexcept {
    return 0x20'0000 + std::uint64_t{vector} * 0x100;
  }
  /// The pending events as GuestCpu::boundary() wants them.
  [[nodiscard]] PhysicalEvents events() const noexcept {
    return {smi_pending, init_pending, nmi_pending, !interrupts_pending.empty()};
  }
  void advance(std::uint64_t cycles) noexcept { tsc += cycles; }
  /// The page of a guest physical address, to change what it allows.
  [[nodiscard]] NestedPage& page(std::uint64_t guest_physical) { return nested_pages[guest_physical >> 12]; }

  std::uint64_t host_tsc() override { return tsc; }
  std::uint64_t tsc_ratio() override { return ratio; }
  MsrAccess read_msr(std::uint32_t msr) override;
  MsrAccess write_msr(std::uint32_t msr, std::uint64_t value) override;
  std::uint64_t read_port(std::uint16_t port, unsigned size) override;
  void write_port(std::uint16_t port, unsigned size, std::uint64_t value) override;
  std::array<std::uint32_t, 4> cpuid(std::uint32_t leaf, std::uint32_t subleaf) override;
  bool page_allows(std::uint64_t guest_physical, PageAccess access) override;
  NestedPage nested_page(std::uint64_t guest_physical) override;
  Vmcb* vmcb_page(std::uint64_t physical) override;
  std::uint64_t handler_entry(std::uint8_t vector) override;
  const MsrPermissionMap& msr_permission_map(std::uint64_t physical) override;
  const IoPermissionMap& io_permission_map(std::uint64_t physical) override;
  int avic_pending() override { return (highest_irr >> 4) > (ppr >> 4) ? highest_irr : -1; }
  /// Takes `highest_irr`, and raises `ppr` to its class.
  int avic_acknowledge() override;
  int avic_highest_irr() override { return highest_irr; }
  std::uint8_t avic_ppr() override { return ppr; }
  /// Takes the first pending interrupt.
  int acknowledge_physical_interrupt() override;
  void acknowledge_physical_nmi() override { nmi_pending = false; }
  SmiInfo smi_info() override { return smi; }
  void acknowledge_smi() override { smi_pending = false; }
  void acknowledge_init() override { init_pending = false; }
  bool init_redirected() override { return r_init; }
  std::optional<std::array<std::uint64_t, 4>> page_directory_pointers(std::uint64_t) override {
    return pdptes;
  }
  Vmsa vmsa(std::uint64_t) override { return guest_vmsa; }
  bool hypervisor_owned(std::uint64_t physical) override { return foreign_pages.count(physical >> 12) == 0; }
  std::uint8_t gate_privilege_level(std::uint8_t vector) override;
};

}  // namespace svmsim::svm
