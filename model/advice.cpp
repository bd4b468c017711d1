#include "model/advice.hpp"

#include <fmt/format.h>

#include "svm/features.hpp"

namespace svmsim::model {

namespace {

using Reason = ApicvInhibitReason;

struct Cause {
  Reason reason;
  const char* why;
  const char* setting;
};

constexpr Cause causes[] = {
    {Reason::hyperv, "the guest uses AutoEOI of a Hyper-V SynIC", "vm.apicv_inhibits without \"hyperv\""},
    {Reason::blockirq, "user space blocks interrupts for debugging",
     "vm.apicv_inhibits without \"blockirq\""},
    {Reason::physical_id_aliased, "two of its APICs answer to the same ID",
     "the guest's APIC IDs, or vm.apic = \"x2apic\""},
    {Reason::apic_id_modified, "the guest has changed an xAPIC ID", "the guest's APIC IDs"},
    {Reason::apic_base_modified, "the guest has moved its APIC page", "the guest's APIC_BASE"},
    {Reason::nested, "a guest of its own runs, or may run", "kvm.nested = false"},
    {Reason::irqwin, "interrupts of the PIC (ExtINT) need an interrupt window",
     "a guest that uses its I/O APIC instead of the PIC"},
    {Reason::pit_reinj, "the in-kernel PIT re-injects lost ticks", "vm.pit = \"discard\""},
    {Reason::sev, "its memory is encrypted", "vm.apicv_inhibits without \"sev\""},
    {Reason::logical_id_aliased, "its APICs have no one-to-one logical IDs, or are in different modes",
     "the guest's LDR and DFR, or vm.apic = \"x2apic\""},
    {Reason::physical_id_too_big, "it has more vCPUs than AVIC's table of physical IDs can name",
     "fewer vm.vcpus, or host.features with \"+x2avic\" and \"+x2avic_ext\""},
    {Reason::x2apic, "the kernel follows the rule of 2021 and the guest may use x2APIC",
     "kvm.avic_x2apic_inhibit = false, or vm.apic = \"xapic\""},
};

const Cause* cause_of(Reason reason) {
  for (const Cause& cause : causes) {
    if (cause.reason == reason) return &cause;
  }
  return nullptr;
}

/// Share of the run in percent.
std::uint64_t percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : (part * 100 + whole / 2) / whole;
}

}  // namespace

std::vector<Advice> avic_advice(const Scenario& scenario, const VmConfig& vm, const VmFacts& facts) {
  std::vector<Advice> result;
  if (!scenario.kvm.avic) return result;
  if (!scenario.host.features.has(svm::Feature::avic)) {
    result.push_back({"avic-absent",
                      fmt::format("{}: AVIC is enabled, but the CPU of profile {} has none.", vm.name,
                                  scenario.host.profile),
                      "host.features = [\"+avic\"], or another host.profile"});
    return result;
  }
  bool used = true;
  for (const ApicvInhibits::Row& row : facts.inhibits) {
    const Cause* cause = cause_of(row.reason);
    const std::uint64_t share = percent(row.time_cycles, facts.run_cycles);
    if (cause == nullptr || (share == 0 && row.reason != Reason::irqwin)) continue;
    if (share >= 50) used = false;
    result.push_back({fmt::format("avic-inhibited-{}", inhibit_name(row.reason)),
                      fmt::format("{}: AVIC is enabled, but inhibited for {} % of the time ({}, {} {}): {}.",
                                  vm.name, share, inhibit_name(row.reason), row.count,
                                  row.count == 1 ? "time" : "times", cause->why),
                      cause->setting});
  }
  if (!used) return result;
  if (facts.hypercall_ipis != 0) {
    result.push_back(
        {"avic-ipis-by-hypercall",
         fmt::format("{}: AVIC is enabled, but {} IPIs left the guest as PV_SEND_IPI hypercalls, "
                     "which AVIC cannot carry out: the guest prefers them to ICR writes.",
                     vm.name, facts.hypercall_ipis),
         "vm.pv without \"send_ipi\""});
  }
  if (facts.icr_exits != 0 && vm.apic == "x2apic" && !scenario.host.features.has(svm::Feature::x2avic)) {
    result.push_back(
        {"avic-hybrid",
         fmt::format("{}: AVIC is enabled, but {} IPIs of this x2APIC guest exited, since the CPU "
                     "has no x2AVIC; only their delivery needs no exit.",
                     vm.name, facts.icr_exits),
         "vm.apic = \"xapic\", or host.features = [\"+x2avic\"]"});
  }
  if (facts.incomplete_ipis != 0 && !facts.ipi_virtualization) {
    result.push_back(
        {"avic-ipiv-off",
         fmt::format("{}: AVIC is enabled, but all {} IPIs to others exited: enable_ipiv is off{}.", vm.name,
                     facts.incomplete_ipis,
                     scenario.kvm.enable_ipiv ? ", because kernel 6.18 does not trust family 17h "
                                                "with it (erratum 1235)"
                                              : ""),
         scenario.kvm.enable_ipiv ? "another host.profile or host.kernel" : "kvm.enable_ipiv = true"});
  }
  return result;
}

}  // namespace svmsim::model
