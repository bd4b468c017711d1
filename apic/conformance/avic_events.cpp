// What can happen to a VM with AVIC in a case.

#include "apic/conformance/avic_machine.hpp"
#include "apic/conformance/guest_verbs.hpp"
#include "svm/conformance/case_reader.hpp"
#include "svm/conformance/program_reader.hpp"

namespace svmsim::apic::conformance {

namespace {

using Machine = AvicMachine;
using Action = Verb<Machine>::Action;

template <void (Machine::*member)()>
Action plain_machine(NodeTable&, std::size_t) {
  return [](Machine& m) { (m.*member)(); };
}

Action read_store(NodeTable& table, std::size_t unit) {
  const std::uint32_t offset = required_offset(table);
  const std::uint32_t value = required_32(table, "value");
  return [=](Machine& m) { m.store(unit, offset, value); };
}

Action read_load(NodeTable& table, std::size_t unit) {
  const std::uint32_t offset = required_offset(table);
  return [=](Machine& m) { m.load(unit, offset); };
}

// A whole guest: the keys of a VMRUN of [[case]].
Action read_guest(NodeTable& table, std::size_t unit) {
  svm::conformance::CaseRun run;
  if (const CaseNode* vmcb = table.get("vmcb"))
    run.vmcb = svm::conformance::read_vmcb_change(*vmcb, table.path("vmcb"), table.problems());
  run.surroundings = svm::conformance::read_surroundings(table);
  run.skip = table.boolean("skip").value_or(false);
  if (const CaseNode* program = table.get("program"))
    run.program = svm::conformance::read_program(*program, table.path("program"), table.problems());
  run.handlers = svm::conformance::read_handlers(table);
  return [unit, run](Machine& m) { m.run_guest(unit, run); };
}

struct VmrunKeys {
  std::optional<std::uint8_t> v_tpr;
  bool avic = true;
};

[[nodiscard]] VmrunKeys read_vmrun_keys(NodeTable& table) {
  VmrunKeys keys;
  if (const auto v_tpr = table.number("v_tpr", 15)) keys.v_tpr = static_cast<std::uint8_t>(*v_tpr);
  keys.avic = table.boolean("avic").value_or(true);
  return keys;
}

Action read_vmrun(NodeTable& table, std::size_t unit) {
  const VmrunKeys keys = read_vmrun_keys(table);
  return [=](Machine& m) { m.vmrun(unit, keys.v_tpr, keys.avic); };
}

// VMRUN and the end of its microcode.
Action read_enter(NodeTable& table, std::size_t unit) {
  const VmrunKeys keys = read_vmrun_keys(table);
  return [=](Machine& m) {
    m.vmrun(unit, keys.v_tpr, keys.avic);
    m.entered(unit);
  };
}

Action read_ring(NodeTable& table, std::size_t) {
  const std::uint64_t value = required(table, "value", UINT64_MAX);
  return [=](Machine& m) { m.ring_by_msr(value); };
}

Action read_request(NodeTable& table, std::size_t unit) {
  const std::uint8_t vector = required_8(table, "vector");
  const bool level = table.boolean("level").value_or(false);
  return [=](Machine& m) { m.request(unit, vector, level); };
}

Action read_withdraw(NodeTable& table, std::size_t unit) {
  const std::uint8_t vector = required_8(table, "vector");
  return [=](Machine& m) { m.withdraw(unit, vector); };
}

Action read_poke(NodeTable& table, std::size_t unit) {
  const auto written = read_register_value(table).value_or(RegisterValue{});
  return [=](Machine& m) { m.poke(unit, written.offset, static_cast<std::uint32_t>(written.value)); };
}

Action read_set_entry(NodeTable& table, std::size_t unit) {
  const std::uint64_t raw = required(table, "raw", UINT64_MAX);
  return [=](Machine& m) { m.set_entry(unit, raw); };
}

Action read_load_vcpu(NodeTable& table, std::size_t unit) {
  std::optional<std::uint32_t> host;
  if (const auto on = table.number("on", 0xfff)) host = static_cast<std::uint32_t>(*on);
  return [=](Machine& m) { m.load_vcpu(unit, host); };
}

Action read_wait(NodeTable& table, std::size_t) {
  const std::uint64_t cycles = required(table, "cycles", std::uint64_t{1} << 40);
  return [=](Machine& m) { m.wait(cycles); };
}

Action read_irte(NodeTable& table, std::size_t unit) {
  if (table.node().find("low") != nullptr) {
    const Irte irte{required(table, "low", UINT64_MAX), required(table, "high", UINT64_MAX)};
    return [=](Machine& m) { m.set_irte(irte); };
  }
  const std::uint8_t vector = required_8(table, "vector");
  const auto tag = static_cast<std::uint32_t>(table.number("tag", UINT32_MAX).value_or(0));
  return [=](Machine& m) { m.make_irte(unit, vector, tag); };
}

Action read_irte_run(NodeTable& table, std::size_t) {
  const std::uint32_t host = required_32(table, "on");
  return [=](Machine& m) { m.irte_running(host); };
}

Action read_irte_stop(NodeTable& table, std::size_t) {
  const bool log = table.boolean("ga_log").value_or(false);
  return [=](Machine& m) { m.irte_stopped(log); };
}

Action read_post(NodeTable& table, std::size_t) {
  const auto device = static_cast<std::uint16_t>(table.number("device", UINT16_MAX).value_or(0));
  return [=](Machine& m) { m.post(device); };
}

}  // namespace

const std::vector<Verb<AvicMachine>>& AvicMachine::verbs() {
  static const std::vector<Verb<Machine>> all = [] {
    std::vector<Verb<Machine>> verbs = GuestVerbs<Machine>::all();
    const std::vector<Verb<Machine>> more{
        {"store", read_store},
        {"load", read_load},
        {"guest", read_guest},
        {"hlt", plain_verb<Machine, &Machine::hlt>},
        {"vmrun", read_vmrun},
        {"entered", plain_verb<Machine, &Machine::entered>},
        {"enter", read_enter},
        {"vmexit", plain_verb<Machine, &Machine::vmexit>},
        {"doorbell", plain_verb<Machine, &Machine::doorbell>},
        {"doorbell_msr", read_ring},
        {"request", read_request},
        {"withdraw", read_withdraw},
        {"poke", read_poke},
        {"set_entry", read_set_entry},
        {"load_vcpu", read_load_vcpu},
        {"put_vcpu", plain_verb<Machine, &Machine::put_vcpu>},
        {"wait", read_wait},
        {"irte", read_irte},
        {"irte_run", read_irte_run},
        {"irte_stop", read_irte_stop},
        {"post", read_post},
        {"take_log_entry", plain_machine<&Machine::take_log_entry>},
        {"restart_log", plain_machine<&Machine::restart_log>},
    };
    verbs.insert(verbs.end(), more.begin(), more.end());
    return verbs;
  }();
  return all;
}

}  // namespace svmsim::apic::conformance
