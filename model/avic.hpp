#pragma once

#include <array>
#include <cstdint>

#include "apic/avic/avic_core.hpp"
#include "apic/avic/memory.hpp"
#include "apic/avic/stale_is_running.hpp"
#include "apic/local_apic.hpp"
#include "svm/permission_map.hpp"

namespace svmsim::model {

/// What KVM keeps in memory for AVIC of one VM (struct kvm_svm, arch/x86/kvm/svm/avic.c). Only where the
/// module parameter is on and the CPU has AVIC.
struct AvicVm {
  struct Options {
    unsigned vm_index = 0;
    std::size_t vcpus = 1;
    bool x2avic = false;             ///< the CPU has it
    bool ipi_virtualization = true;  ///< false: the hardware never sees IsRunning
    bool stale_is_running = false;   ///< erratum 1235
    std::uint64_t stale_cycles = 0;
  };
  explicit AvicVm(const Options& options);

  [[nodiscard]] apic::PhysicalIdEntry& entry(std::uint32_t id) noexcept {
    return memory.physical_tables[id / apic::PhysicalIdTablePage::entry_count]
        .entries[id % apic::PhysicalIdTablePage::entry_count];
  }
  /// Greatest vCPU ID that the physical table of that mode can name.
  [[nodiscard]] static std::uint32_t last_index(bool x2avic, bool x2avic_ext) noexcept {
    return x2avic ? apic::avic_max_index_limit(true, x2avic_ext) : apic::xavic_last_index;
  }

  Options options;
  apic::AvicMemory memory;
  apic::StaleIsRunning stale;
  svm::MsrPermissionMap x2avic_msrpm;  ///< lets the guest of an active x2AVIC reach its APIC
  bool apic_page_mapped = false;       ///< xAPIC guests: the nested page tables have the APIC page
  unsigned irq_windows = 0;            ///< kvm_arch::apicv_nr_irq_window_req
};

/// AVIC of one vCPU: the hardware while it runs, its backing page, and KVM's copy of its table entry.
///
/// The emulated LocalApic and the backing page hold the same registers. In guest mode the page is the one
/// that counts; at #VMEXIT the LocalApic takes it over, at VMRUN the page takes over the LocalApic. IRR and
/// TMR are written into the page at any time by senders, so that in host mode whoever reads the LocalApic
/// merges them first.
struct AvicVcpu {
  AvicVcpu(const apic::AvicRegisters& registers, apic::BackingPage& backing_page) noexcept
      : core(registers), page(&backing_page) {}

  /// The page's IRR, ISR, TMR and TPR, as in guest mode.
  [[nodiscard]] apic::LocalApic::AvicState page_state() const noexcept;
  void store_state(const apic::LocalApic::AvicState& state) noexcept;
  /// `apic` gets what it has not seen yet of the page.
  void pull(apic::LocalApic& apic) const noexcept;
  /// VMRUN: from now on the page is what counts.
  void enter(apic::LocalApic& apic) noexcept;
  /// #VMEXIT: from now on the LocalApic is.
  void leave(apic::LocalApic& apic) noexcept;
  /// Registers that the guest reads without an exit, after KVM has changed some.
  void publish_registers(apic::LocalApic& apic) const noexcept;

  apic::AvicCore core;
  apic::BackingPage* page;
  bool in_guest = false;        ///< the page counts
  apic::PhysicalIdEntry entry;  ///< vcpu_svm::avic_physical_id_entry: with IsRunning as KVM means it
  int logical_index = -1;       ///< of its entry in the logical table; -1: none
  bool irq_window = false;      ///< it holds one of AvicVm::irq_windows
};

}  // namespace svmsim::model
