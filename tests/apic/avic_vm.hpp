#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apic/avic/avic_core.hpp"
#include "svm/vmcb.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::apic::test {

/// One VM with AVIC: tables, backing pages, and a core for each vCPU, all in guest mode unless told
/// otherwise. vCPU n has APIC ID n and, while it runs, host APIC ID 100h + n.
class AvicVm {
 public:
  explicit AvicVm(bool x2avic, std::size_t vcpus = 4, AvicKnobs knobs = {}, AvicProcessor processor = {})
      : registers(processor, knobs), memory(size_for(vcpus)), x2avic_(x2avic), vcpus_(vcpus) {
    const std::uint32_t id_limit = static_cast<std::uint32_t>(vcpus) - 1;
    for (std::uint32_t id = 0; id < vcpus; ++id) {
      page(id).reset(id, 0x00050010, x2avic);
      page(id).write(APIC_SPIV, 0x1ff);
      entry(id) = PhysicalIdEntry::make(memory.backing_pages.address(id)).running_on(host_id(id));
      cores.emplace_back(registers);
    }
    control.int_ctl = svm::int_ctl::avic_enable | (x2avic ? svm::int_ctl::x2avic_enable : 0);
    control.avic_physical_id = memory.physical_tables.address(0) | id_limit;
    control.avic_logical_id = memory.logical_tables.address(0);
    for (std::uint32_t id = 0; id < vcpus; ++id)
      enter(id);
  }

  static constexpr std::uint32_t host_id(std::uint32_t id) { return 0x100 + id; }

  void enter(std::uint32_t id) {
    control.avic_backing_page = memory.backing_pages.address(id);
    cores[id].vmrun(control, memory);
    cores[id].entered();
  }
  /// For all later entries; enter() makes a core see it.
  void set_max_index(std::uint32_t max_index) {
    control.avic_physical_id = memory.physical_tables.address(0) | max_index;
  }

  BackingPage& page(std::uint32_t id) { return memory.backing_pages[id]; }
  PhysicalIdEntry& entry(std::uint32_t id) {
    return memory.physical_tables[id / PhysicalIdTablePage::entry_count]
        .entries[id % PhysicalIdTablePage::entry_count];
  }
  LogicalIdEntry& logical(std::uint32_t index) { return memory.logical_tables[0].entries[index]; }

  /// Writes the ICR as a guest in this mode does.
  template <typename Sink>
  AvicResult send(std::uint32_t sender, std::uint32_t low, std::uint32_t destination, Sink& sink) {
    if (x2avic_) return cores[sender].write_msr(msr_x2apic_icr, std::uint64_t{destination} << 32 | low, sink);
    cores[sender].write_page(APIC_ICR2, destination << 24, sink);
    return cores[sender].write_page(APIC_ICR, low, sink);
  }

  /// vCPUs whose IRR bit of `vector` is set.
  std::vector<std::uint32_t> requested(std::uint8_t vector) {
    std::vector<std::uint32_t> result;
    for (std::uint32_t id = 0; id < vcpus_; ++id) {
      if (page(id).test_irr(vector)) result.push_back(id);
    }
    return result;
  }

  AvicRegisters registers;
  AvicMemory memory;
  svm::VmcbControl control{};
  std::vector<AvicCore> cores;

 private:
  static AvicMemory::Size size_for(std::size_t vcpus) {
    AvicMemory::Size size;
    size.backing_pages = vcpus;
    size.physical_table_pages =
        (vcpus + PhysicalIdTablePage::entry_count - 1) / PhysicalIdTablePage::entry_count;
    return size;
  }

  bool x2avic_;
  std::size_t vcpus_;
};

/// The host APIC IDs that an IPI rang, in order.
inline std::vector<std::uint32_t> rung(const DoorbellList& list) {
  return {list.host_apic_ids.begin(), list.host_apic_ids.begin() + static_cast<std::ptrdiff_t>(list.count)};
}

}  // namespace svmsim::apic::test
