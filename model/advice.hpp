#pragma once

#include <cstdint>
#include <vector>

#include "model/config/scenario.hpp"
#include "model/policy/apicv_inhibits.hpp"
#include "model/stats/run_result.hpp"

namespace svmsim::model {

/// What a run has shown of one VM that advice is made of.
struct VmFacts {
  std::vector<ApicvInhibits::Row> inhibits;
  std::uint64_t run_cycles = 0;       ///< time that the statistics cover
  std::uint64_t icr_exits = 0;        ///< IPIs that left the guest as an ICR write: msr, npf
  std::uint64_t incomplete_ipis = 0;  ///< exits avic_incomplete_ipi
  std::uint64_t hypercall_ipis = 0;   ///< exits for PV_SEND_IPI
  bool ipi_virtualization = true;     ///< AVIC sees which vCPUs run
};

/// Where a run shows what confused the authors of the founding thread (kvm-software.md 4.5): AVIC is enabled,
/// and the IPIs leave the guest all the same, or it is not used at all. What it is, why, and which setting
/// changes it; nothing for a VM without anything of the kind.
[[nodiscard]] std::vector<Advice> avic_advice(const Scenario& scenario, const VmConfig& vm,
                                              const VmFacts& facts);

}  // namespace svmsim::model
