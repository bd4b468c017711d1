#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apic/arbitration.hpp"
#include "apic/destination.hpp"
#include "apic/io_apic.hpp"
#include "model/avic.hpp"
#include "model/config/pv.hpp"
#include "model/config/scenario.hpp"
#include "model/device.hpp"
#include "model/guest_devices.hpp"
#include "model/policy/apicv_inhibits.hpp"
#include "model/stats/latency_stats.hpp"
#include "svm/permission_map.hpp"

namespace svmsim::model {

class Vcpu;

/// What the vCPUs of one VM share.
struct Vm {
  std::string name;
  unsigned index = 0;
  svm::MsrPermissionMap msrpm;
  svm::IoPermissionMap iopm;
  apic::DestinationMap apics{{}};  ///< index = vCPU index
  apic::Arbiter arbiter{0};
  PvConfig pv;  ///< what the guest's CPUID shows
  std::vector<std::unique_ptr<GuestDeviceUnit>> guest_devices;
  bool native = false;               ///< no guest at all: its kernel owns the pCPUs
  bool halts_in_user_space = false;  ///< the APIC is not in the kernel
  bool finished = false;             ///< its workload is done: its vCPUs end where they next look
  apic::IoApic io_apic;
  int pic_vector = -1;  ///< what the legacy controller asks for; -1 = nothing
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<Vcpu*> vcpus;
  ApicvInhibits inhibits;                     ///< why AVIC is not used
  std::unique_ptr<AvicVm> avic;               ///< null where it cannot be used at all
  std::optional<std::uint64_t> halt_poll_ns;  ///< KVM_CAP_HALT_POLL; replaces the module parameter
  DisabledExits disabled_exits;               ///< KVM_CAP_X86_DISABLE_EXITS, before vCPUs were made
  // Of all vCPUs: a distribution each would be most of a vCPU's memory.
  LatencyStats wakeup_latency;
  LatencyStats ipi_latency;
  std::size_t last_boosted_vcpu = 0;  ///< directed yield goes on after it
};

}  // namespace svmsim::model
