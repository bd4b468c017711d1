#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "svm/avic_access.hpp"
#include "svm/permission_map.hpp"

namespace svmsim::svm {

/// Events pending at the physical CPU that runs the guest. They reach GuestCpu by value, so that it never
/// polls.
struct PhysicalEvents {
  bool smi = false;
  bool init = false;
  bool nmi = false;
  bool intr = false;  ///< maskable, already above the physical APIC's PPR

  [[nodiscard]] bool any() const noexcept { return smi || init || nmi || intr; }
};

/// EXITINFO1 and EXITINFO2 of an SMI exit (APM vol. 2, 15.13.3).
struct SmiInfo {
  static constexpr std::uint64_t external = 1U << 0;  ///< 0: an I/O trap of the guest's own instruction
  static constexpr std::uint64_t machine_check_redirected = 1U << 1;

  std::uint64_t info_1 = external;  ///< bits 63:32 describe the I/O instruction of an internal SMI
  std::uint64_t info_2 = 0;         ///< rIP of that instruction
};

/// How VMRUN fares with the VMSA of an SEV-ES guest (APM vol. 2, 15.35.8 and appendix C).
enum class VmsaLoad : std::uint8_t {
  loaded,
  damaged,           ///< cannot be read, or its checksum is wrong: exit INVALID
  busy,              ///< its BUSY bit is set: exit BUSY
  sibling_not_idle,  ///< SMT protection: exit IDLE_REQUIRED
  illegal_pmc,       ///< exit INVALID_PMC
};

/// What GuestCpu needs of the VMSA. Its registers are in the state save area of the VMCB that runs.
struct Vmsa {
  VmsaLoad load = VmsaLoad::loaded;
  std::uint64_t sev_features = 0;  ///< offset 3B0h; svm/vmcb_bits.hpp, namespace sev_features
};

/// Result of an MSR access that no intercept caught.
struct MsrAccess {
  bool general_protection = false;  ///< the access raises #GP(0)
  std::uint64_t value = 0;          ///< value read
};

enum class PageAccess : std::uint8_t { read, write, fetch };

/// What the nested page tables say of one 4 KiB page of guest physical memory. The default allows everything.
struct NestedPage {
  bool present = true;
  bool writable = true;
  bool user = true;
  bool no_execute = false;
  bool reserved_bit = false;      ///< a reserved bit is set in the entry
  bool guest_table_walk = false;  ///< the page holds guest page tables: it is met while they are walked
};

struct Vmcb;
struct VmcbControl;

/// What GuestCpu asks of its surroundings. `apic/` and `model/` implement it; svm/ knows neither time nor
/// wiring. Every question is about something the VMCB does not intercept, or about memory outside the VMCB.
class GuestEnvironment {
 public:
  GuestEnvironment() = default;
  GuestEnvironment(const GuestEnvironment&) = delete;
  GuestEnvironment& operator=(const GuestEnvironment&) = delete;
  virtual ~GuestEnvironment() = default;

  /// Host TSC at the action that is being executed.
  [[nodiscard]] virtual std::uint64_t host_tsc() = 0;
  static constexpr std::uint64_t tsc_ratio_one = std::uint64_t{1} << 32;
  /// The host's TSC_RATIO MSR (C000_0104h): 8.32 fixed point. Asked only where the CPU has the MSR.
  [[nodiscard]] virtual std::uint64_t tsc_ratio() { return tsc_ratio_one; }

  [[nodiscard]] virtual MsrAccess read_msr(std::uint32_t msr) = 0;
  [[nodiscard]] virtual MsrAccess write_msr(std::uint32_t msr, std::uint64_t value) = 0;
  [[nodiscard]] virtual std::uint64_t read_port(std::uint16_t port, unsigned size) = 0;
  virtual void write_port(std::uint16_t port, unsigned size, std::uint64_t value) = 0;
  /// EAX, EBX, ECX, EDX.
  [[nodiscard]] virtual std::array<std::uint32_t, 4> cpuid(std::uint32_t leaf, std::uint32_t subleaf) = 0;

  /// Whether the nested page tables allow the access; false makes the access exit with NPF (400h).
  [[nodiscard]] virtual bool page_allows(std::uint64_t guest_physical, PageAccess access) = 0;
  /// Why page_allows() said no: what EXITINFO1 of the exit is made of. Under GMET it also decides fetches of
  /// supervisor code.
  [[nodiscard]] virtual NestedPage nested_page(std::uint64_t /*guest_physical*/) {
    NestedPage absent;
    absent.present = false;
    return absent;
  }
  /// The VMCB page that a VMLOAD or VMSAVE of the guest reaches in memory, or null where there is none: the
  /// instruction then has no effect. The address is a system physical one, and with VMSAVE/VMLOAD
  /// virtualization a guest physical one.
  [[nodiscard]] virtual Vmcb* vmcb_page(std::uint64_t /*physical*/) { return nullptr; }

  /// What handler_entry() returns for a gate of an invalid type (an empty one) and for one that is not
  /// present; both are no canonical addresses.
  static constexpr std::uint64_t invalid_gate = 0x8000'0000'0000'0000;
  static constexpr std::uint64_t absent_gate = 0x8000'0000'0000'0001;
  /// Entry rIP of the guest's IDT gate; GuestCpu has no guest memory of its own.
  [[nodiscard]] virtual std::uint64_t handler_entry(std::uint8_t vector) = 0;
  /// DPL of the guest's IDT gate, which INTn, INT3 and INTO of a higher CPL must not use. As Linux sets it
  /// up: INT3, INTO and INT 80h are open to user code.
  [[nodiscard]] virtual std::uint8_t gate_privilege_level(std::uint8_t vector) {
    return vector == 3 || vector == 4 || vector == 0x80 ? 3 : 0;
  }

  /// The maps in system memory that MSRPM_BASE_PA and IOPM_BASE_PA point to.
  [[nodiscard]] virtual const MsrPermissionMap& msr_permission_map(std::uint64_t physical) = 0;
  [[nodiscard]] virtual const IoPermissionMap& io_permission_map(std::uint64_t physical) = 0;

  /// INTACK at the physical APIC for a physical interrupt that the VMCB does not intercept: its vector, or -1
  /// when this environment has no physical interrupts for the guest (the interrupt then stays pending).
  [[nodiscard]] virtual int acknowledge_physical_interrupt() { return -1; }
  /// The guest took the pending physical NMI, which the VMCB does not intercept.
  virtual void acknowledge_physical_nmi() {}
  /// Where the pending SMI comes from.
  [[nodiscard]] virtual SmiInfo smi_info() { return {}; }
  /// The pending SMI is over: its handler has run, unseen by the guest, or it was discarded.
  virtual void acknowledge_smi() {}
  /// The guest took the pending INIT.
  virtual void acknowledge_init() {}
  /// VM_CR.R_INIT: INIT raises #SX.
  [[nodiscard]] virtual bool init_redirected() { return false; }

  /// The four page-directory-pointer entries at `physical`, which PAE paging without nested paging loads at
  /// VMRUN; nothing where the environment has no such memory: they are taken as legal.
  [[nodiscard]] virtual std::optional<std::array<std::uint64_t, 4>> page_directory_pointers(
      std::uint64_t physical) {
    static_cast<void>(physical);
    return std::nullopt;
  }
  /// The VMSA of an SEV-ES guest.
  [[nodiscard]] virtual Vmsa vmsa(std::uint64_t physical) {
    static_cast<void>(physical);
    return {};
  }
  /// SNP: whether the page belongs to the hypervisor according to the RMP.
  [[nodiscard]] virtual bool hypervisor_owned(std::uint64_t physical) {
    static_cast<void>(physical);
    return true;
  }

  // AVIC (APM vol. 2, 15.29; fact sheet 8). Asked only while the VMCB that runs enables it. The backing page
  // and the tables are memory: what is recognized, and where an IPI goes, is the environment's to know. The
  // defaults are those of an environment without a backing page: registers are MSRs that hold values, and
  // nothing is ever pending.

  /// VMRUN has loaded the AVIC fields: the backing page is evaluated.
  virtual void avic_vmrun(const VmcbControl& /*control*/) {}
  /// VMRUN is complete, an injected event delivered: a doorbell that came meanwhile is evaluated.
  virtual void avic_entered() {}
  /// #VMEXIT, or the end of guest mode by an INIT.
  virtual void avic_vmexit() {}
  /// The recognized interrupt: vector, or -1. Asked behind everything that evaluates (8.5) and at boundaries.
  [[nodiscard]] virtual int avic_pending() { return -1; }
  /// The guest takes it: IRR to ISR, PPR follows. -1 when software has withdrawn it.
  [[nodiscard]] virtual int avic_acknowledge() { return -1; }
  /// MOV CR8: V_TPR is GuestCpu's, the TPR of the backing page follows.
  virtual void avic_write_cr8(std::uint8_t /*cr8*/) {}
  /// x2AVIC: RDMSR and WRMSR of 800h-8FFh that the MSR permission map lets through.
  [[nodiscard]] virtual AvicAccess avic_read_msr(std::uint32_t msr) {
    const MsrAccess access = read_msr(msr);
    AvicAccess result;
    result.outcome = access.general_protection ? AvicOutcome::general_protection : AvicOutcome::done;
    result.value = access.value;
    return result;
  }
  [[nodiscard]] virtual AvicAccess avic_write_msr(std::uint32_t msr, std::uint64_t value) {
    AvicAccess result;
    if (write_msr(msr, value).general_protection) result.outcome = AvicOutcome::general_protection;
    return result;
  }
  /// xAVIC: an access to the page at APIC_BAR that the nested page tables allow; `offset` is within the page.
  [[nodiscard]] virtual AvicAccess avic_read_page(std::uint32_t /*offset*/) { return {}; }
  [[nodiscard]] virtual AvicAccess avic_write_page(std::uint32_t /*offset*/, std::uint32_t /*value*/) {
    return {};
  }

  /// The view of the idle-HLT intercept. Vector of the highest IRR bit in the backing page, or -1.
  [[nodiscard]] virtual int avic_highest_irr() { return -1; }
  /// PPR of the backing page.
  [[nodiscard]] virtual std::uint8_t avic_ppr() { return 0; }
};

}  // namespace svmsim::svm
